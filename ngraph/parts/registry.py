"""Facts about named things: a registry has a column for each kind of fact, which is declared once and filled in from anywhere.

    >>> ops = Registry("op")
    >>> cost = ops.column("cost", int, 1, "vector instructions that one element takes")
    >>> ops.fill("exp", cost=9)
    >>> cost["exp"], cost["abs"]
    (9, 1)

The room that reads a fact declares its column: type, default, what it means. Whoever knows the fact fills it in, also another package,
also before the column is declared or the named thing exists. A higher level holds against a lower one; two values of one level are an
error that names both places.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
HOME = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")  # the package's folder


LOADERS: dict[str, Callable[[], Any]] = {}  # by the name of a registry, what imports the modules that fill it where nobody has yet


class RegistryError(ValueError):
    """A column that is declared twice, or a fact that is filled in twice or with a value of another type."""


class Fact(NamedTuple):
    """One value: of which column and thing, how strong, and the `file:line` that filled it in."""

    column: str
    name: str
    value: Any
    level: int
    where: str


class Column(dict[str, T], Generic[T]):
    """The facts of one kind by name: `cost["exp"]`, the default where nobody has said anything.

    name, kind, default, doc   what was declared: `kind` is the type of its values, or a tuple of types
    where                      the `file:line` of the declaration
    names                      the names whose fact is true, in the order in which they were filled in; later facts change it
    """

    def __init__(self, registry: Registry, name: str, kind: Any, default: T, doc: str, where: str):
        super().__init__()
        self.names = Names(self)
        self.registry, self.name, self.kind, self.default, self.doc, self.where = registry, name, kind, default, doc, where

    def __missing__(self, name: str) -> T:
        return self.default

    def __hash__(self) -> int:  # type: ignore[override]  # dict declares it None
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<column {self.name} of {self.registry.name}: {len(self)} facts>"

    def of(self, *names: str, level: int = 0) -> Callable[[T], T]:
        """A decorator: the function under it is the fact of these names."""

        def fill(function: T) -> T:
            code = getattr(function, "__code__", None)
            where = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else caller()
            for name in names:
                self.registry.fill(name, level=level, where=where, **{self.name: function})
            return function

        return fill


class Names(Collection[str]):
    """The names of a column whose fact is true."""

    def __init__(self, column: Column[Any]):
        self.column = column

    def __contains__(self, name: object) -> bool:
        return bool(self.column.get(name))  # type: ignore[call-overload]  # names that are no text are not found

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, fact in self.column.items() if fact])

    def __len__(self) -> int:
        return sum(map(bool, self.column.values()))

    def __repr__(self) -> str:
        return f"the names with {self.column.name}"


class Registry:
    """Columns of facts about one kind of things.

    version   a number that grows with each fact, so that what was derived from facts can be derived again
    """

    def __init__(self, name: str):
        self.name, self.version = name, 0
        self.columns: dict[str, Column[Any]] = {}
        self._facts: dict[tuple[str, str], list[Fact]] = {}  # (column, name) -> the strongest first

    def column(self, name: str, kind: type[T] | tuple[type, ...] | Any, default: T, doc: str) -> Column[T]:
        """The new column, with what was filled in before. Raises RegistryError where it is declared already, or a value does not fit."""
        where = caller()
        if name in self.columns:
            raise RegistryError(f"column {name} of {self.name} is declared at {self.columns[name].where} and at {where}")
        made: Column[T] = Column(self, name, kind, default, doc, where)
        for (column, of), facts in self._facts.items():
            if column == name:
                for fact in facts:
                    _fits(made, fact)
                made[of] = facts[0].value
        self.columns[name] = made
        self.version += 1
        return made

    def fill(self, name: str, level: int = 0, where: str = "", **facts: Any) -> None:
        """Notes facts about `name`, all or none. Raises RegistryError for a second value of one level, or one of another type."""
        where = where or caller()
        new = [Fact(column, name, value, level, where) for column, value in facts.items()]
        for fact in new:
            for same in self._facts.get((fact.column, name), []):
                if same.level == level:
                    raise RegistryError(
                        f"{fact.column} of {self.name} {name} is {same.value!r} at {same.where} and {fact.value!r} at {where}; "
                        f"one of them goes, or takes another level"
                    )
            if fact.column in self.columns:
                _fits(self.columns[fact.column], fact)
        for fact in new:
            said = self._facts[fact.column, name] = sorted([*self._facts.get((fact.column, name), []), fact], key=lambda f: -f.level)
            if fact.column in self.columns:
                self.columns[fact.column][name] = said[0].value
        self.version += 1

    def take_back(self, name: str, column: str, level: int = 0) -> None:
        """Removes the fact of this level. Raises KeyError where there is none."""
        said = self._facts[column, name]
        left = [f for f in said if f.level != level]
        if len(left) == len(said):
            raise KeyError(f"{column} of {self.name} {name} has no value of level {level}")
        declared = self.columns.get(column)
        if left:
            self._facts[column, name] = left
        else:
            del self._facts[column, name]
        if declared is not None:
            declared.pop(name, None)
            if left:
                declared[name] = left[0].value
        self.version += 1

    def facts(self, name: str) -> dict[str, list[Fact]]:
        """All that is said about `name`, by column; the value that holds comes first."""
        return {column: facts for (column, of), facts in self._facts.items() if of == name}

    def __iter__(self) -> Iterator[Fact]:
        """Every fact, whether it holds or a stronger one does."""
        return iter([fact for facts in self._facts.values() for fact in facts])

    def load(self) -> None:
        """Runs its loader, once: a name may be missing because nothing has been imported that would fill it in."""
        LOADERS.pop(self.name, lambda: None)()

    def undeclared(self) -> dict[str, list[Fact]]:
        """Facts in columns that nobody has declared (yet), by column."""
        found: dict[str, list[Fact]] = {}
        for (column, _), facts in self._facts.items():
            if column not in self.columns:
                found.setdefault(column, []).extend(facts)
        return found


def _fits(column: Column[Any], fact: Fact) -> None:
    fine = callable(fact.value) if column.kind is Callable else isinstance(fact.value, column.kind)
    if not fine:
        kinds = column.kind if isinstance(column.kind, tuple) else (column.kind,)
        wanted = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
        raise RegistryError(
            f"{column.name} of {column.registry.name} {fact.name} is {fact.value!r} at {fact.where}, "
            f"and its column, declared at {column.where}, holds {wanted}"
        )


def caller() -> str:
    """The `file:line` that is being run outside of this package, or at the top level of one of its files; helpers in between count not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HOME) and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
