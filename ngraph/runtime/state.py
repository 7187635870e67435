"""State: one array per variable, shared by the computations of a transformer."""

from __future__ import annotations

import ctypes
import inspect
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

import numpy as np

from ngraph.errors import ArgumentError, OutOfMemoryError, StateError, show_line
from ngraph.op_graph.arrays import content_of, file_of, reading
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.dtypes import check_fits
from ngraph.op_graph.labelled import arranged
from ngraph.op_graph.op import Op
from ngraph.program.lower import unique
from ngraph.runtime.arguments import converted
from ngraph.runtime.lock import ReadersWriter

BORROWED = 1 << 20  # bytes from which on an initial value is not copied before somebody writes the variable
_STATES: weakref.WeakSet[StateArrays] = weakref.WeakSet()


def _forked() -> None:
    for state in list(_STATES):
        state.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Device:
    """Where arrays live. This one is the host: a device of its own kind overrides all of it.

    maps    whether who computes with arrays can leave those that are only read in a mapped file
    """

    maps = False

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory for an array, zeros in it."""
        return np.zeros(shape, dtype)

    def put(self, array: np.ndarray) -> Any:
        """A host array, copied onto the device."""
        return read(array)

    def borrow(self, array: np.ndarray) -> Any:
        """A host array for reading alone: as it is where it is large, dense, and nobody can write what is in it; else a copy."""
        here = type(self).put is Device.put and array.nbytes >= BORROWED and array.flags.c_contiguous and array.flags.aligned
        return array if here and content_of(array) is not None and (self.maps or file_of(array) is None) else self.put(array)

    def get(self, buffer: Any) -> np.ndarray:
        """What lies on the device, copied to the host."""
        return read(buffer)


class Alone:
    """What belongs to this process: neither copied nor pickled."""

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"{self!r} can be neither copied nor pickled: its state and its code belong to this process",
            fix="make another transformer there; save() and restore() carry state over, ngraph.op_graph.text.save and load graphs",
        )


class StateArrays(Alone):
    """The arrays of variables, made from their initial values when first needed.

    version  raised by each write         torn   variables whose update was cut off         closed   no more to be had
    moved    raised where a variable gets another array
    borrowed variables that have their initial value's own memory still
    stamps   the version in which Python last wrote a variable      quick   what generated code writes by itself, and how often it did
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device()
        self.arrays: dict[Op, Any] = {}
        self.names: dict[str, Op] = {}  # in the order in which computations brought them
        self.lock = ReadersWriter()
        self.writes, self.moves = ctypes.c_int64(0), ctypes.c_int64(0)  # words, for generated code counts and reads them too
        self.borrowed: set[Op] = set()
        self.stamps: dict[Op, int] = {}
        self.quick: list[tuple[frozenset[Op], ctypes.c_int64]] = []
        self.torn: set[Op] = set()
        self.closed = False
        self.lent: weakref.WeakSet[Lent] = weakref.WeakSet()
        self._known: set[Op] = set()
        self._tried: dict[str, int] = {}
        self._start()
        _STATES.add(self)

    @property
    def version(self) -> int:
        return self.writes.value + sum([word.value for _, word in self.quick])

    @property
    def moved(self) -> int:
        return self.moves.value

    def move(self) -> None:
        """Variables have got other arrays: what computations have looked up is forgotten. Nobody reads or writes meanwhile."""
        self.moves.value += 1
        with self.making:
            for lent in self.lent:
                lent.forget()

    def wrote(self, variables: Iterable[Op]) -> None:
        """Counts a write of these variables."""
        self.writes.value += 1
        self.stamps.update(dict.fromkeys(variables, self.writes.value))

    def counter(self, variables: Iterable[Op]) -> ctypes.c_int64:
        """A word with which generated code counts its writes of these variables."""
        self.quick.append((frozenset(variables), ctypes.c_int64(0)))
        self.moves.value += 1  # others see that there is one more to watch
        return self.quick[-1][1]

    def words(self, variables: Collection[Op]) -> list[ctypes.c_int64]:
        """The words that stay while none of these variables is written; the first counts what Python writes."""
        return [self.writes, *[word for written, word in self.quick if not written.isdisjoint(variables)]]

    def _start(self) -> None:
        self.making = threading.RLock()  # initial values and names; asked for last
        self.compiling = threading.RLock()  # one at a time; asked for first

    def forked(self) -> None:
        """In a child process: what a thread was writing that is no longer there is torn."""
        if self.lock.forked():
            self.torn.update(self.arrays)
        self._start()

    def add(self, name: str, variable: Op) -> None:
        """Makes a variable known; its name in files is the first free one."""
        with self.making:
            if variable not in self._known:
                self._known.add(variable)
                self.names[unique(name, self.names, self._tried)] = variable

    def ensure(self, variables: Iterable[Op]) -> None:
        """Gives those variables that have none yet their initial values; the lock is held. Raises StateError after the end."""
        with self.making:
            if self.closed:
                raise StateError("this transformer is closed", fix="make a new one")
            for v in variables:
                if v not in self.arrays:
                    try:
                        value = initial(v)
                        self.arrays[v] = made = self.device.borrow(value)
                    except MemoryError:
                        what = f"there is no room for the variable {v.label} {show_axes(v.axes)}"
                        raise OutOfMemoryError(what, line=v.line, fix="make it smaller") from None
                    if made is value:
                        self.borrowed.add(v)

    def own(self, variables: Iterable[Op]) -> None:
        """Gives variables that are about to be written arrays of their own."""
        with self.making:
            for v in self.borrowed.intersection(variables):
                self.arrays[v] = self.device.put(self.arrays[v])
                self.borrowed.discard(v)
                self.move()

    def get(self, variable: Op) -> np.ndarray:
        """A copy of a variable's value."""
        self._check(variable)
        with self.lock.reading():
            self.ensure((variable,))
            return self.device.get(self.arrays[variable])

    def set(self, variable: Op, value: Any) -> None:
        """Gives a variable a value. Raises ArgumentError where shape or dtype do not fit."""
        self._check(variable)
        self.put({variable: fitted(value, variable)})

    def put(self, arrays: Mapping[Op, np.ndarray]) -> None:
        """Gives variables values that fit: all of them or, where something fails, none."""
        buffers = {v: self.device.put(a) for v, a in arrays.items()}
        with self.lock.writing():
            self.wrote(buffers)
            self.move()
            self.arrays.update(buffers)
            self.borrowed.difference_update(buffers)
            self.torn.difference_update(buffers)

    def close(self) -> None:
        """Lets go of the arrays, once nobody reads or writes them."""
        with self.lock.writing():
            self.closed = True
            self.move()
            self.arrays.clear()
            self.borrowed.clear()

    def _check(self, variable: Any) -> None:
        if not isinstance(variable, Op) or not variable.is_variable:
            raise StateError(f"{getattr(variable, 'label', repr(variable))} is no variable, so has no state")
        self.add(variable.hint or variable.opdef.name, variable)


class Lent:
    """What a computation takes from the state in each call, looked up again only where that has changed.

    variables   whose arrays it takes       still   those of them that it only reads
    """

    def __init__(self, state: StateArrays, variables: Sequence[Op], still: Collection[Op]):
        self.state, self.variables, self.still = state, variables, still
        self.found: list[Any] = []
        self.seen: tuple[int, int] | None = None
        self.base, self.words = 0, list[ctypes.c_int64]()
        with state.making:
            state.lent.add(self)

    def arrays(self) -> list[Any]:
        """Their arrays, made where there are none yet: one list while they stay the same, which then loses them. The lock is held."""
        if not self.found:
            self.state.ensure(self.variables)
            self.found = [self.state.arrays[v] for v in self.variables]
        return self.found

    def forget(self) -> None:
        """Lets go of the arrays, for all who have the list."""
        self.found.clear()
        self.found = []

    def stamp(self) -> int:
        """A number that stays while none of those that are only read is written, and then grows."""
        state = self.state
        seen = state.writes.value, state.moves.value
        if seen != self.seen:
            self.words = state.words(self.still)[1:]
            self.base = max(map(state.stamps.get, self.still, repeat(0)), default=0)
            self.seen = seen
        return self.base + sum([word.value for word in self.words])


def read(array: np.ndarray) -> np.ndarray:
    """A dense copy, of what lies in a mapped file too. Raises ParseError where that has become shorter."""
    with reading(array):
        return np.array(array, order="C")


def shape_of(variable: Op) -> tuple[int, ...]:
    """The lengths of a variable's axes. Raises StateError where one is not known."""
    unknown = [a.label for a in variable.axes if a.length is None]
    if unknown:
        raise StateError(
            f"variable {variable.label} {show_axes(variable.axes)}: the length of {', '.join(unknown)} is not known",
            line=variable.line,
            fix="give the axis its length, or the variable an array as its initial value",
        )
    return tuple([len(a) for a in variable.axes])


def fitted(value: Any, variable: Op) -> np.ndarray:
    """A value as an array of the variable's dtype and shape; it may broadcast to it."""
    shape = shape_of(variable)
    array = converted(
        arranged(value, variable.axes, f"variable {variable.label}", ArgumentError), variable.dtype, f"variable {variable.label}"
    )
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ArgumentError(
            f"variable {variable.label} {show_axes(variable.axes)} cannot hold an array of shape {array.shape}",
            details=(f"made at {show_line(variable.line)}",),
        ) from None


def initial(variable: Op) -> np.ndarray:
    """The variable's initial value: a number, an array, or what a function of nothing or of its Axes gives; 0 without one."""
    value = variable.attrs.get("initial_value")
    if value is None:
        return np.zeros(shape_of(variable), variable.dtype.np)
    if callable(value) and not isinstance(value, np.ndarray):
        shape_of(variable)
        value = value(variable.axes) if _takes_axes(value) else value()
    if isinstance(value, Op):
        value = value.attrs["value"]
    value = getattr(value, "array", value)
    check_fits(f"the initial value of {variable.label}", value, variable.dtype)
    if variable.dtype.kind == "bool" or variable.dtype.is_integer and np.asarray(value).dtype.kind == "f":
        value = np.asarray(value).astype(variable.dtype.np)  # a number made for floats, such as 0.0, is meant for any variable
    return fitted(value, variable)


def _takes_axes(function: Any) -> bool:
    """Whether a function can be called with one positional argument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
