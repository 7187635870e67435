"""Arrays that a program is given stay its giver's: what is written into them later changes nothing, and no flag of theirs is turned."""

import mmap

import numpy as np
import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.op_graph import text as graphs
from ngraph.program import text as programs
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower

TRANSFORMERS = ["cpu", "numpy", "direct"]
ROWS, COLUMNS = 600, 500  # more than a mebibyte: smaller arrays are always copied
A, B, N, ONE = (ng.make_axis(n, name=k) for k, n in {"A": ROWS, "B": COLUMNS, "N": 4, "one": 1}.items())
FIRST = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("f")
X = np.random.default_rng(1).standard_normal((4, ROWS)).astype("f")


def plain(_):
    a = FIRST.copy()
    return a, a


def seen_through_an_earlier_view(_):
    a = FIRST.copy()
    view = a[:]
    a.flags.writeable = False
    return a, view


def a_view_that_is_read_only(_):
    a = FIRST.copy()
    view = a[:]
    view.flags.writeable = False
    return view, a


def broadcast_to_its_own_shape(_):
    a = FIRST.copy()
    return np.broadcast_to(a, a.shape), a


def bytes_that_change(_):
    memory = bytearray(FIRST.tobytes())
    return np.frombuffer(memoryview(memory).toreadonly(), "f").reshape(FIRST.shape), np.frombuffer(memory, "f").reshape(FIRST.shape)


def anonymous_pages(_):
    memory = mmap.mmap(-1, FIRST.nbytes)
    memory[:] = FIRST.tobytes()
    writes = np.frombuffer(memory, "f").reshape(FIRST.shape)
    reads = writes[:]
    reads.flags.writeable = False
    return reads, writes


def mapped(folder, mode):
    np.save(folder / "a.npy", FIRST)
    made = np.load(folder / "a.npy", mmap_mode=mode)
    view = made[:]
    made.flags.writeable = False
    return made, view


def transposed(_):
    a = FIRST.T.copy()
    return a.T, a.T


def of_torch(_):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(FIRST.copy())
    return tensor, tensor.numpy()


class Exchanged:
    """Something that gives its memory by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def by_dlpack(_):
    a = FIRST.copy()
    return Exchanged(a), a


def of_xarray(_):
    xarray = pytest.importorskip("xarray")
    a = FIRST.copy()
    return xarray.DataArray(a, dims=("A", "B")), a


GIVEN = {
    f.__name__: f
    for f in (
        *(plain, seen_through_an_earlier_view, a_view_that_is_read_only, broadcast_to_its_own_shape, bytes_that_change),
        *(anonymous_pages, transposed, of_torch, by_dlpack, of_xarray),
    )
} | {"mapped_for_both": lambda folder: mapped(folder, "r+"), "mapped_privately": lambda folder: mapped(folder, "c")}


@pytest.mark.parametrize("how", ["variable", "persistent_tensor", "constant", "function"])
@pytest.mark.parametrize("kind", GIVEN)
def test_writing_into_a_given_array_changes_nothing(kind, how, tmp_path):
    """Neither before the first call nor after it: what is packed, what is read in place, and what `get` gives are one value."""
    given, writes = GIVEN[kind](tmp_path)
    flags = getattr(getattr(given, "flags", None), "writeable", None)
    if how == "constant":
        w = ng.constant(given, [A, B])
    else:
        w = getattr(ng, "variable" if how == "function" else how)([A, B], initial_value=(lambda: given) if how == "function" else given)
    x = ng.placeholder([N, A])
    for k, name in enumerate(TRANSFORMERS):
        with ngt.allocate_transformer(name) as t:
            packed, plus = t.computation(ng.dot(x, w), x), t.computation(w + 0.0)
            if how == "function":
                writes[:] = FIRST  # it may give something else each time
                packed(X)
            for n in range(3):
                writes[:] = 100 * k + n
                np.testing.assert_allclose(packed(X), X @ FIRST, rtol=1e-3, atol=1e-3)
                np.testing.assert_array_equal(plus(), FIRST)
                if how != "constant":
                    np.testing.assert_array_equal(t.get(w), FIRST)
    assert getattr(getattr(given, "flags", None), "writeable", None) == flags


def test_small_values_and_lists_are_copied_too():
    row, rows = np.ones(3, "f"), [[1.0, 2.0, 3.0]]
    C = ng.make_axis(3, name="C")
    ops = [
        ng.variable([C], initial_value=row),
        ng.variable([ONE, C], initial_value=rows),
        ng.constant(row, [C]),
        ng.constant(rows, [ONE, C]),
    ]
    row[:], rows[0][1] = 7, 7.0
    for name in TRANSFORMERS:
        values = ngt.allocate_transformer(name).computation([op + 0 for op in ops])()
        assert [v.ravel().tolist() for v in values] == [[1, 1, 1], [1, 2, 3]] * 2


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_what_is_set_got_given_and_made_is_nobody_elses(name):
    x, w, v = ng.placeholder([A, B]), ng.variable([A, B], initial_value=0), ng.variable([A, B], initial_value=FIRST)
    with ngt.allocate_transformer(name) as t:
        takes = t.computation([ng.assign(w, x), ng.value_of(v), x], x)
        look = t.computation([w + 0, w])
        given = FIRST.copy()
        for _ in range(3):  # the first way in, and the fast one
            given[:] = FIRST
            _, value, again = takes(given)
            assert not any(np.shares_memory(a, b) for a, b in ((value, again), (given, again), (given, t.state.arrays[w])))
            given[:] = value[:] = again[:] = 5
            for got in (*look(), t.get(w), t.get(v)):
                np.testing.assert_array_equal(got, FIRST)
                got[:] = 6
        out = np.empty_like(FIRST)
        gives = t.computation(w * 1)
        for _ in range(3):
            assert gives(out=out) is out and (out == FIRST).all()
            out[:] = 9
        given[:] = FIRST + 1
        t.set(w, given)
        given[:] = 7
        for got in (*look(), gives(), t.get(w)):
            np.testing.assert_array_equal(got, FIRST + 1)


def test_arrays_that_come_with_a_text_are_copied():
    w, c = ng.variable([A, B], initial_value=FIRST), ng.constant(FIRST, [A, B])
    arrays = {}
    data = graphs.to_json([w + c], arrays)
    given = {name: a.copy() for name, a in arrays.items()}
    (again,) = graphs.from_json(data, given)
    lowered = lower([c * 2]).program
    table = {name: a.copy() for name, a in programs.arrays(lowered).items()}
    program = programs.parse(programs.text(lowered), table)
    assert len(given) == 2 and len(table) == 1
    for a in (*given.values(), *table.values()):
        assert a.flags.writeable
        a[:] = 0
    np.testing.assert_array_equal(ngt.allocate_transformer("numpy").computation(again)(), FIRST * 2)
    np.testing.assert_array_equal(interpret(program, ())[0][0], FIRST * 2)


def test_other_files_that_are_written_are_told(tmp_path):
    """What `cpu` packed, and what the file would say now, are not mixed."""
    np.save(tmp_path / "a.npy", FIRST)
    w = ng.variable([A, B], initial_value=np.load(tmp_path / "a.npy", mmap_mode="r"))
    x = ng.placeholder([N, A])
    with ngt.allocate_transformer("cpu") as t:
        packed = t.computation(ng.dot(x, w), x)
        packed(X)
        writes = np.load(tmp_path / "a.npy", mmap_mode="r+")
        writes[:] = 0
        writes.flush()
        np.testing.assert_allclose(packed(X), X @ FIRST, rtol=1e-3, atol=1e-3)
        with pytest.raises(ng.NgraphError, match=r"a\.npy was mapped, and was written since"):
            t.get(w)
    np.save(tmp_path / "b.npy", FIRST)
    v = ng.variable([A, B], initial_value=np.load(tmp_path / "b.npy", mmap_mode="r"))
    (tmp_path / "b.npy").unlink()
    np.save(tmp_path / "b.npy", FIRST * 0)  # another file in its place does no harm
    with ngt.allocate_transformer("cpu") as t:
        np.testing.assert_array_equal(t.get(v), FIRST)
