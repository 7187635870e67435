"""Programs as users of Keras write them give the numbers of Keras on JAX (`programs_of_jax.json`, by `programs.py record`)."""

import json
import os
import runpy

import numpy as np
import pytest

import ngraph.keras  # noqa: F401  # it makes the backend, which Keras looks up when it is imported

import keras  # isort: skip  # behind ngraph.keras

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = runpy.run_path(os.path.join(HERE, "programs.py"))
with open(os.path.join(HERE, "programs_of_jax.json"), encoding="utf-8") as recorded:
    JAX = json.load(recorded)


@pytest.mark.parametrize("name", list(JAX))
def test_a_program_gives_the_numbers_of_jax(name):
    keras.utils.set_random_seed(1)
    found = PROGRAMS["flat"](PROGRAMS["plain"](PROGRAMS["PROGRAMS"][name]()))
    np.testing.assert_allclose(found, JAX[name], rtol=1e-4, atol=1e-4)
