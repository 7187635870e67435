"""Scopes: the innermost block holds, each thread and task has its own, an error closes it."""

import asyncio
import threading

import pytest

from ngraph.parts.scopes import ScopedValue


@pytest.fixture
def depth():
    return ScopedValue("depth", 0)


def test_the_innermost_block_holds(depth):
    assert depth.get() == 0
    with depth.of(1) as given, depth.of(depth.get() + 1):
        assert (given, depth.get()) == (1, 2)
    assert depth.get() == 0


def test_an_error_closes_the_block(depth):
    with pytest.raises(LookupError), depth.of(1):
        raise LookupError
    assert depth.get() == 0


def test_each_thread_and_task_has_its_own(depth):
    seen = []
    with depth.of(1):
        thread = threading.Thread(target=lambda: seen.append(depth.get()))
        thread.start()
        thread.join()

        async def task(n):
            with depth.of(n):
                await asyncio.sleep(0)
                return depth.get()

        async def both():
            return await asyncio.gather(task(5), task(6))

        assert asyncio.run(both()) == [5, 6] and depth.get() == 1
    assert seen == [0]
