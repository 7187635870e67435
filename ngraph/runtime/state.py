"""State: one array per variable, shared by the computations of a transformer."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn

import numpy as np

from ngraph.errors import ArgumentError, GraphError, OutOfMemoryError, StateError, show_line
from ngraph.op_graph.arrays import content_of, file_of, reading
from ngraph.op_graph.axes import show_axes
from ngraph.op_graph.dtypes import check_fits
from ngraph.op_graph.labelled import arranged
from ngraph.op_graph.op import Op
from ngraph.ops.state import takes_axes
from ngraph.program.lower import unique
from ngraph.runtime.arguments import converted
from ngraph.runtime.lock import ReadersWriter

BORROWED = 1 << 20  # bytes from which on an initial value is not copied before the variable is written
_STATES: weakref.WeakSet[StateArrays] = weakref.WeakSet()


def _forked() -> None:
    for state in list(_STATES):
        state.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Device:
    """The memory of arrays. This one is the host's: another device overrides all of it.

    maps    whether kernels can read arrays in a mapped file
    """

    maps = False

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Allocates an array of zeros."""
        return np.zeros(shape, dtype)

    def put(self, array: np.ndarray) -> Any:
        """Copies a host array to the device."""
        return read(array)

    def borrow(self, array: np.ndarray) -> Any:
        """Returns a host array for reading: itself where it is large, dense, and its memory cannot be written; else a copy."""
        here = type(self).put is Device.put and array.nbytes >= BORROWED and array.flags.c_contiguous and array.flags.aligned
        return array if here and content_of(array) is not None and (self.maps or file_of(array) is None) else self.put(array)

    def get(self, buffer: Any) -> np.ndarray:
        """Copies an array from the device to the host."""
        return read(buffer)


class Alone:
    """An object that belongs to this process: it can be neither copied nor pickled."""

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"{self!r} can be neither copied nor pickled: its state and its code belong to this process",
            fix="make another transformer there; save() and restore() carry state over, ngraph.op_graph.text.save and load graphs",
        )


class StateArrays(Alone):
    """The arrays of variables, created from their initial values when first needed.

    version  incremented by each write    torn   variables whose update was interrupted     closed   no longer usable
    moved    incremented where a variable gets another array
    borrowed variables that still have their initial value's own memory
    stamps   the version in which Python last wrote a variable
    quick    by the variables that generated code writes: its counter of these writes; replaced as a whole, for those who read it
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device()
        self.arrays: dict[Op, Any] = {}
        self.names: dict[str, Op] = {}  # in the order in which computations added them
        self.lock = ReadersWriter()
        self.writes, self.moves = ctypes.c_int64(0), ctypes.c_int64(0)  # words, since generated code counts and reads them, too
        self.borrowed: set[Op] = set()
        self.stamps: dict[Op, int] = {}
        self.quick: dict[frozenset[Op], ctypes.c_int64] = {}
        self.torn: set[Op] = set()
        self.closed = False
        self.lent: weakref.WeakSet[Lent] = weakref.WeakSet()
        self._known: set[Op] = set()
        self._tried: dict[str, int] = {}
        self._start()
        _STATES.add(self)

    @property
    def version(self) -> int:
        return self.writes.value + sum([word.value for word in self.quick.values()])

    @property
    def moved(self) -> int:
        return self.moves.value

    def move(self) -> None:
        """Invalidates addresses that computations have looked up, since variables have other arrays. The lock is held."""
        with self.making:
            self.moves.value += 1
            for lent in self.lent:
                lent.forget()

    def wrote(self, variables: Iterable[Op]) -> None:
        """Counts a write of these variables."""
        self.writes.value += 1
        self.stamps.update(dict.fromkeys(variables, self.writes.value))

    def counter(self, variables: Iterable[Op]) -> ctypes.c_int64:
        """Returns a word with which generated code counts its writes of these variables."""
        written = frozenset(variables)
        with self.making:
            if written not in self.quick:
                self.quick = {**self.quick, written: ctypes.c_int64(0)}
                self.moves.value += 1  # others see that there is one more to watch
            return self.quick[written]

    def words(self, variables: Collection[Op]) -> list[ctypes.c_int64]:
        """Returns the words that stay constant while none of these variables is written; the first counts writes by Python."""
        return [self.writes, *[word for written, word in self.quick.items() if not written.isdisjoint(variables)]]

    def _start(self) -> None:
        self.making = threading.RLock()  # initial values and names; acquired last
        self.compiling = threading.RLock()  # one at a time; acquired first

    def forked(self) -> None:
        """Marks state as inconsistent in a child process, where a thread that was writing it no longer exists."""
        if self.lock.forked():
            self.torn.update(self.arrays)
        self._start()

    def add(self, name: str, variable: Op) -> None:
        """Adds a variable; its name in files is the first free one."""
        with self.making:
            if variable not in self._known:
                self._known.add(variable)
                self.names[unique(name, self.names, self._tried)] = variable

    def ensure(self, variables: Iterable[Op]) -> None:
        """Creates missing arrays of these variables from their initial values; the lock is held. Raises StateError after the end."""
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
        """Returns a copy of a variable's value."""
        self._check(variable)
        with self.lock.reading():
            self.ensure((variable,))
            return self.device.get(self.arrays[variable])

    def set(self, variable: Op, value: Any) -> None:
        """Sets a variable's value. Raises ArgumentError where shape or dtype do not fit."""
        self._check(variable)
        self.put({variable: fitted(value, variable)})

    def put(self, arrays: Mapping[Op, np.ndarray]) -> None:
        """Sets variables to values that fit: all of them or, where something fails, none."""
        buffers = {v: self.device.put(a) for v, a in arrays.items()}
        with self.lock.writing():
            self.wrote(buffers)
            self.move()
            self.arrays.update(buffers)
            self.borrowed.difference_update(buffers)
            self.torn.difference_update(buffers)

    def lend(self, arrays: Mapping[Op, np.ndarray]) -> None:
        """Makes these arrays themselves the values of variables, until others are lent: whoever writes one lends it again.

        They fit, and are dense. What computations have made of the variables alone is made again.
        """
        with self.lock.writing():
            self.wrote(arrays)
            self.move()
            self.arrays.update(arrays)
            self.borrowed.update(arrays)

    def close(self) -> None:
        """Releases the arrays, once no thread reads or writes them."""
        with self.lock.writing():
            self.closed = True
            self.move()
            self.arrays.clear()
            self.borrowed.clear()

    def _check(self, variable: Any) -> None:
        if not isinstance(variable, Op) or not variable.is_variable:
            raise StateError(f"{getattr(variable, 'label', repr(variable))} is not a variable, so has no state")
        self.add(variable.hint or variable.opdef.name, variable)


class Lent:
    """The state that a computation uses in each call, looked up again only where it has changed.

    variables   whose arrays it uses       still   those of them that it only reads
    """

    def __init__(self, state: StateArrays, variables: Sequence[Op], still: Collection[Op]):
        self.state, self.variables, self.still = state, variables, still
        self.found: list[Any] = []
        self.seen: tuple[int, int] | None = None
        self.base, self.words = 0, list[ctypes.c_int64]()
        with state.making:
            state.lent.add(self)

    def arrays(self) -> list[Any]:
        """Returns their arrays, created where missing: one list while they stay the same, which is emptied afterwards. The lock is held."""
        if not self.found:
            self.state.ensure(self.variables)
            self.found = [self.state.arrays[v] for v in self.variables]
        return self.found

    def forget(self) -> None:
        """Releases the arrays, for all holders of the list."""
        self.found.clear()
        self.found = []

    def stamp(self) -> int:
        """Returns a number that is constant while none of the variables that are only read is written, and then grows."""
        state = self.state
        seen = state.writes.value, state.moves.value
        if seen != self.seen:
            self.words = state.words(self.still)[1:]
            self.base = max(map(state.stamps.get, self.still, repeat(0)), default=0)
            self.seen = seen
        return self.base + sum([word.value for word in self.words])


def read(array: np.ndarray) -> np.ndarray:
    """Returns a dense copy, also of an array in a mapped file. Raises ParseError where that was truncated."""
    with reading(array):
        return np.array(array, order="C")


def shape_of(variable: Op) -> tuple[int, ...]:
    """Returns the lengths of a variable's axes; an open one takes the length that it met. Raises StateError where one is unknown."""
    for a in variable.axes:
        if a.length is None and isinstance(met := a.family.found_length(), int):
            a.length = met
    unknown = [a.label for a in variable.axes if a.length is None]
    if unknown:
        raise StateError(
            f"variable {variable.label} {show_axes(variable.axes)}: the length of {', '.join(unknown)} is not known",
            line=variable.line,
            fix="give the axis its length, or the variable an array as its initial value",
        )
    return tuple([len(a) for a in variable.axes])


def fitted(value: Any, variable: Op) -> np.ndarray:
    """Returns a value as an array of the variable's dtype and shape; it may broadcast to it."""
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
    """Returns the variable's initial value: a number, an array, or the result of a function of nothing or of its Axes; 0 without one."""
    value = variable.attrs.get("initial_value")
    if value is None:
        return np.zeros(shape_of(variable), variable.dtype.np)
    if callable(value) and not isinstance(value, np.ndarray):
        shape_of(variable)
        value = value(variable.axes) if takes_axes(value) else value()
    if isinstance(value, Op):
        if not value.is_constant:
            raise GraphError(
                f"the initial value of {variable.label} is computed: its function gives {value.label}",
                details=(f"{variable.label} made at {show_line(variable.line)}",),
                fix="give numbers of NumPy, or one of ng.GaussianInit, ng.GlorotInit and the like",
            )
        value = value.attrs["value"]
    value = getattr(value, "array", value)
    check_fits(f"the initial value of {variable.label}", value, variable.dtype)
    floats = np.asarray(value).dtype.kind == "f"
    if variable.dtype.kind == "bool" or floats and (variable.dtype.is_integer or variable.dtype.kind == "narrow"):
        value = np.asarray(value).astype(variable.dtype.np)  # a number made for floats, such as 0.0, is valid for any variable
    return fitted(value, variable)
