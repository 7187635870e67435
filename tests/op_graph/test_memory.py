"""Room for frames: calls at any depth take no memory from the system, whatever stands below them."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ngraph.op_graph.memory import with_room

resource = pytest.importorskip("resource")
CALLS = 2000


def called():
    return None


def faults(depth):
    """Page faults of this thread while a function is called many times, so many frames deep."""
    if depth:
        return faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        called()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="frames of other Pythons lie elsewhere")
def test_calls_at_the_end_of_a_chunk_of_frames_map_no_memory():
    def most(function):
        """The most faults at any of 400 depths, in a thread, whose frames begin in a chunk of its own."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: max(map(function, range(400)))).result()

    assert most(faults) > CALLS // 2, "chunks of frames are mapped no more: `with_room` is not needed"
    assert most(with_room(faults)) < 100


def test_results_errors_and_names_pass_through():
    def f(a, *, b=1):
        """Adds."""
        return a + b

    g = with_room(f)
    assert g(1, b=2) == 3 and g.__doc__ == "Adds." and g.__name__ == "f"
    with pytest.raises(TypeError):
        g("a")
