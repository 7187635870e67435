"""Transformations and loops beside JAX: values, forms of nests and shapes equal those that JAX gave (jax_programs.py)."""

import json

import jax_programs
import numpy as np
import pytest

import ngraph as ng

WANTED = json.loads(jax_programs.ANSWERS.read_text())


def test_every_program_has_an_answer():
    assert WANTED.keys() == jax_programs.PROGRAMS.keys() and len(WANTED) >= 60


@pytest.mark.parametrize("name", jax_programs.PROGRAMS)
def test_answers_are_those_of_jax(name):
    p, values = jax_programs.PROGRAMS[name], jax_programs.values(name)
    holes = jax_programs.mapped(
        lambda text: ng.placeholder(jax_programs.axes_of(text), dtype="int32" if text[:1].isdigit() else "float64"), p.inputs
    )
    made = p.ours(*holes)
    flat, given = ([v for _, v in jax_programs.leaves(some)] for some in (holes, values))
    got = ng.function([v for _, v in jax_programs.leaves(made) if v is not None], *flat)(*given)
    paths = [path for path, v in jax_programs.leaves(made) if v is not None]
    assert paths == [*WANTED[name]]
    for path, value in zip(paths, got, strict=True):
        want = np.asarray(WANTED[name][path])
        assert np.shape(value) == want.shape
        np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-10, err_msg=path)
