"""Ways through a graph that is given by what each thing leads to; without recursion, so of any depth.

>>> needs = {"c": ["a", "b"], "b": ["a"], "a": []}
>>> list(post_order("c", needs.get))
['a', 'b', 'c']
>>> sorted(closure("b", needs.get))
['a', 'b']
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def post_order(roots: Iterable[T], needs: Callable[[T], Iterable[T]], done: Container[T] | None = None) -> Iterator[T]:
    """Yields what the roots need, directly or not, and then they themselves: each once, behind what it needs, from left to right.

    `done`: where the caller notes each before it asks for the next, such as a dict of results; what is there already is left out. The
    graph has no circles; `needs` is asked again about a thing whose needs have been met, so it may depend on what has been noted.
    """
    own: set[T] = set()
    there: Container[T] = own if done is None else done
    stack = list(roots)[::-1]
    while stack:
        x = stack[-1]
        if x in there:
            stack.pop()
            continue
        waiting = [n for n in needs(x) if n not in there]
        if waiting:
            stack += waiting[::-1]
        else:
            stack.pop()
            if done is None:
                own.add(x)
            yield x


def closure(roots: Iterable[T], leads_to: Callable[[T], Iterable[T]]) -> set[T]:
    """The roots, and all that they lead to, directly or not; the graph may have circles."""
    found: set[T] = set()
    todo = list(roots)
    while todo:
        x = todo.pop()
        if x not in found:
            found.add(x)
            todo += leads_to(x)
    return found
