"""Pauses of the cycle collector, and room for frames: calls at any depth take no memory from the system, whatever stands below them."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ngraph.op_graph import memory
from ngraph.op_graph.memory import no_collection, with_room

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


@pytest.fixture
def collected():
    """The generations that the collector has visited since."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def cycles(many):
    for _ in range(many):
        a = []
        a.append(a)


def test_what_a_pause_made_is_not_visited_behind_it(collected, monkeypatch):
    monkeypatch.setattr(memory, "_aged", 0)
    threshold = gc.get_threshold()[0]
    with no_collection(), no_collection():
        kept = [[] for _ in range(20 * threshold)]
    assert gc.isenabled() and gc.get_count()[0] < threshold and not collected
    assert len(kept) == 20 * threshold


def test_pauses_leave_no_more_than_so_many_cycles(collected, monkeypatch):
    monkeypatch.setattr(memory, "_aged", 0)
    monkeypatch.setattr(memory, "MOST_AGED", 1000)
    for _ in range(5):
        with no_collection():
            cycles(600)
    assert collected == [2, 2]


def test_pauses_thaw_nothing():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with no_collection():
            cycles(10)
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
