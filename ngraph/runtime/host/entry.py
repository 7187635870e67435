"""The entry from Python into a table in the fewest nanoseconds: one generated function, in Python's calling convention, for all calls.

Its behaviour is data: words that describe each argument's requirements, the destination of its address, and the results to make. It
reads NumPy's arrays by the offsets of their fields, found by probing arrays with known fields; where they are not found, there
is no such entry. Calls that do not fit go to the Python path, which converts the arguments or raises the error.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.runtime.host import bytecode
from ngraph.runtime.host import pool as pools
from ngraph.runtime.host.pool import FIELDS, expanded
from ngraph.targets import Cpu, host

FAST = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS
READY = 0x0001 | 0x0100  # of an array: contiguous in C order, aligned
ARRAY_TYPE, EMPTY = 2, 184  # in NumPy's table of functions: PyArray_Type, PyArray_Empty
NONE, SINGLE, TUPLE = range(3)  # structures of results

FIELDS["call"] = {
    name: 8 * k
    for k, name in enumerate(
        (
            "count given made results form slow busy frame pool run type empty tuple retain release call none watched watches "
            "version size order calls"
        ).split()
    )
}
FIELDS["value"] = {name: 8 * k for k, name in enumerate("rank dtype lengths places at object".split())}  # an argument or a result
VALUE = 8  # words of one; a watch is two: an address, and the expected value


class ArrayObjectLayout(NamedTuple):
    """The offsets of an array object's fields, in bytes."""

    kind: int
    data: int
    rank: int
    lengths: int
    dtype: int
    flags: int
    items: int  # of a tuple


ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %count, ptr %names) nounwind {
entry:
  %pdesc = getelementptr i8, ptr %self, i64 DATA
  %call = load ptr, ptr %pdesc
  %want = get i64 %call.count
  %right = icmp eq i64 %count, %want
  %plain = icmp eq ptr %names, null
  %good = and i1 %right, %plain
  %busy = get i64 %call.busy
  %idle = icmp eq i64 %busy, 0
  %go = and i1 %good, %idle
  br i1 %go, label %watches, label %slow
watches:                                          ; nobody else is at work on the state, and it lies where it lay
  %nw = get i64 %call.watched
  %pw = get ptr %call.watches
  br label %watch
watch:
  %w = phi i64 [ 0, %watches ], [ %w1, %watched ]
  %wmore = icmp slt i64 %w, %nw
  br i1 %wmore, label %watch1, label %given
watch1:
  %woff = shl i64 %w, 4
  %watch.p = getelementptr i8, ptr %pw, i64 %woff
  %wa = load ptr, ptr %watch.p
  %wv.p = getelementptr i8, ptr %watch.p, i64 8
  %wv = load i64, ptr %wv.p
  %wis = load i64, ptr %wa
  %wok = icmp eq i64 %wis, %wv
  br i1 %wok, label %watched, label %slow
watched:
  %w1 = add i64 %w, 1
  br label %watch
given:
  %type = get ptr %call.type
  %pgiven = get ptr %call.given
  br label %arg
arg:
  %k = phi i64 [ 0, %given ], [ %k1, %placed ]
  %more = icmp slt i64 %k, %want
  br i1 %more, label %look, label %make
look:
  %voff = shl i64 %k, 6
  %value = getelementptr i8, ptr %pgiven, i64 %voff
  %parg = getelementptr ptr, ptr %args, i64 %k
  %x = load ptr, ptr %parg
  %ptype = getelementptr i8, ptr %x, i64 KIND
  %xtype = load ptr, ptr %ptype
  %isarray = icmp eq ptr %xtype, %type
  br i1 %isarray, label %fields, label %slow
fields:
  %prank = getelementptr i8, ptr %x, i64 RANK
  %rank32 = load i32, ptr %prank
  %rank = sext i32 %rank32 to i64
  %pdtype = getelementptr i8, ptr %x, i64 DTYPE
  %dtype = load ptr, ptr %pdtype
  %pflags = getelementptr i8, ptr %x, i64 FLAGS
  %flags = load i32, ptr %pflags
  %wrank = get i64 %value.rank
  %wdtype = get ptr %value.dtype
  %ok1 = icmp eq i64 %rank, %wrank
  %ok2 = icmp eq ptr %dtype, %wdtype
  %masked = and i32 %flags, READY
  %ok3 = icmp eq i32 %masked, READY
  %ok12 = and i1 %ok1, %ok2
  %ok = and i1 %ok12, %ok3
  br i1 %ok, label %dims, label %slow
dims:
  %plengths = getelementptr i8, ptr %x, i64 LENGTHS
  %lengths = load ptr, ptr %plengths
  %wlengths = get ptr %value.lengths
  br label %dim
dim:
  %d = phi i64 [ 0, %dims ], [ %d1, %same ]
  %dmore = icmp slt i64 %d, %rank
  br i1 %dmore, label %compare, label %place
compare:
  %pl = getelementptr i64, ptr %lengths, i64 %d
  %pwl = getelementptr i64, ptr %wlengths, i64 %d
  %l = load i64, ptr %pl
  %wl = load i64, ptr %pwl
  %leq = icmp eq i64 %l, %wl
  br i1 %leq, label %same, label %slow
same:
  %d1 = add i64 %d, 1
  br label %dim
place:
  %pdata = getelementptr i8, ptr %x, i64 DATA
  %data = load i64, ptr %pdata
  call void @point(ptr %value, i64 %data)
  br label %placed
placed:
  %k1 = add i64 %k, 1
  br label %arg
make:                                             ; from here on the call is ours
  put i64 1, %call.busy
  %results = get i64 %call.results
  %pmade = get ptr %call.made
  %empty = get ptr %call.empty
  %retain = get ptr %call.retain
  %release = get ptr %call.release
  br label %new
new:
  %r = phi i64 [ 0, %make ], [ %r1, %new1 ]
  %rmore = icmp slt i64 %r, %results
  br i1 %rmore, label %allocate, label %run
allocate:
  %roff = shl i64 %r, 6
  %value1 = getelementptr i8, ptr %pmade, i64 %roff
  %rdtype = get ptr %value1.dtype
  call void %retain(ptr %rdtype)
  %rrank = get i64 %value1.rank
  %rrank32 = trunc i64 %rrank to i32
  %rlengths = get ptr %value1.lengths
  %y = call ptr %empty(i32 %rrank32, ptr %rlengths, ptr %rdtype, i32 0)
  %none = icmp eq ptr %y, null
  br i1 %none, label %undo, label %new1
new1:
  %pydata = getelementptr i8, ptr %y, i64 DATA
  %ydata = load i64, ptr %pydata
  call void @point(ptr %value1, i64 %ydata)
  put ptr %y, %value1.object
  %r1 = add i64 %r, 1
  br label %new
run:
  %frame = get ptr %call.frame
  %pool = get ptr %call.pool
  %runs = get ptr %call.run
  put i64 0, %frame.pc
  %status = call i64 %runs(ptr %pool, ptr %frame)
  %fine = icmp eq i64 %status, DONE
  br i1 %fine, label %tell, label %undo
tell:
  %calls = get i64 %call.calls
  %calls1 = add i64 %calls, 1
  put i64 %calls1, %call.calls
  %version = get ptr %call.version
  %writes = icmp ne ptr %version, null
  br i1 %writes, label %raise, label %give
raise:
  %old = load i64, ptr %version
  %raised = add i64 %old, 1
  store i64 %raised, ptr %version
  br label %give
give:
  put i64 0, %call.busy
  %form = get i64 %call.form
  switch i64 %form, label %nothing [ i64 1, label %single
    i64 2, label %tuple ]
single:
  %value4 = getelementptr i8, ptr %pmade, i64 0
  %o = get ptr %value4.object
  ret ptr %o
nothing:
  %nil = get ptr %call.none
  call void %retain(ptr %nil)
  ret ptr %nil
tuple:                                            ; in the order of results; -1 stands for one without a value
  %newtuple = get ptr %call.tuple
  %size = get i64 %call.size
  %t = call ptr %newtuple(i64 %size)
  %tnone = icmp eq ptr %t, null
  br i1 %tnone, label %undo, label %items
items:
  %items.p = getelementptr i8, ptr %t, i64 ITEMS
  %order = get ptr %call.order
  %nil2 = get ptr %call.none
  br label %item
item:
  %i = phi i64 [ 0, %items ], [ %i1, %item2 ]
  %imore = icmp slt i64 %i, %size
  br i1 %imore, label %item1, label %out
item1:
  %po = getelementptr i64, ptr %order, i64 %i
  %which = load i64, ptr %po
  %novalue = icmp slt i64 %which, 0
  br i1 %novalue, label %item0, label %item3
item0:
  call void %retain(ptr %nil2)
  br label %item2
item3:
  %vo = shl i64 %which, 6
  %value3 = getelementptr i8, ptr %pmade, i64 %vo
  %vobj = get ptr %value3.object
  br label %item2
item2:
  %obj = phi ptr [ %nil2, %item0 ], [ %vobj, %item3 ]
  %slot = getelementptr ptr, ptr %items.p, i64 %i
  store ptr %obj, ptr %slot
  %i1 = add i64 %i, 1
  br label %item
out:
  ret ptr %t
undo:                                             ; lets go of the results made so far
  %n = phi i64 [ %r, %allocate ], [ %results, %run ], [ %results, %tuple ]
  %why = phi i64 [ INTERRUPTED, %allocate ], [ %status, %run ], [ INTERRUPTED, %tuple ]
  put i64 0, %call.busy
  br label %drop
drop:
  %q = phi i64 [ 0, %undo ], [ %q1, %drop1 ]
  %qmore = icmp slt i64 %q, %n
  br i1 %qmore, label %drop1, label %fail
drop1:
  %qoff = shl i64 %q, 6
  %value2 = getelementptr i8, ptr %pmade, i64 %qoff
  %qobj = get ptr %value2.object
  call void %release(ptr %qobj)
  %q1 = add i64 %q, 1
  br label %drop
fail:                                             ; a check has found something: the same call once more, by Python, says what
  %found = icmp eq i64 %why, HOST_STEP
  br i1 %found, label %slow, label %nothing.more
nothing.more:
  ret ptr null
slow:
  %other = get ptr %call.slow
  %vector = get ptr %call.call
  %result = call ptr %vector(ptr %other, ptr %args, i64 %count, ptr %names)
  ret ptr %result
}

define internal void @point(ptr %value, i64 %data) nounwind { ; an address goes to all words that want it
entry:
  %places = get i64 %value.places
  %at = get ptr %value.at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %put ]
  %more = icmp slt i64 %i, %places
  br i1 %more, label %put, label %out
put:
  %pa = getelementptr ptr, ptr %at, i64 %i
  %a = load ptr, ptr %pa
  store i64 %data, ptr %a
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}
"""


def text(target: Cpu, layout: ArrayObjectLayout) -> str:
    """Returns the module with the function `entry`."""
    words = {"KIND": layout.kind, "DATA": layout.data, "RANK": layout.rank, "LENGTHS": layout.lengths, "DTYPE": layout.dtype}
    words |= {"DONE": bytecode.DONE, "HOST_STEP": bytecode.HOST_CALLBACK, "INTERRUPTED": bytecode.INTERRUPTED}
    words |= {"FLAGS": layout.flags, "ITEMS": layout.items, "READY": READY}
    return expanded(re.sub(rf"\b({'|'.join(words)})\b", lambda m: str(words[m[1]]), ENTRY), target)


# ---- what stands where in Python's objects --------------------------------------------------------------------------


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


def _int(address: int) -> int:
    return int(ctypes.c_int32.from_address(address).value)


@functools.cache
def layout() -> ArrayObjectLayout | None:
    """Returns the offsets of objects' fields, if they are as known: every field is compared with Python's values for several arrays."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    known = ArrayObjectLayout(8, 16, 24, 32, 56, 64, 24)
    if np.ndarray.__basicsize__ < known.flags + 8 or object.__basicsize__ != 16:
        return None
    samples: list[np.ndarray] = [np.zeros((3, 5), np.float32), np.zeros((2, 3, 4), np.int8)[:, ::2], np.zeros(()), np.zeros((4, 2)).T]
    for a in samples:
        at = id(a)
        if _word(at + known.kind) != id(np.ndarray) or _word(at + known.data) != a.ctypes.data or _int(at + known.rank) != a.ndim:
            return None
        if _word(at + known.dtype) != id(a.dtype) or _int(at + known.flags) != a.flags.num:
            return None
        lengths, dims = _word(at + known.lengths), range(a.ndim)
        if a.ndim and _word(at + known.lengths + 8) != lengths + 8 * a.ndim:  # strides follow the lengths
            return None
        if [_word(lengths + 8 * d) for d in dims] != [*a.shape]:
            return None
    pair = (samples[0], samples[1])
    if [_word(id(pair) + known.items + 8 * k) for k in range(2)] != [id(x) for x in pair]:
        return None
    return known


@functools.cache
def held() -> int | None:
    """Returns the offset of a word in `threading.RLock` that is 0 while the lock is free; None where there is none."""
    lock = threading.RLock()
    words = range(16, type(lock).__basicsize__ - 7, 8)
    free = [w for w in words if _word(id(lock) + w) == 0]
    with lock:
        taken = [w for w in free if _word(id(lock) + w) != 0]
    return next((w for w in taken if _word(id(lock) + w) == 0), None)


@functools.cache
def _functions() -> dict[str, int] | None:
    """Returns the addresses of the functions that the entry calls: of Python, and of NumPy's table."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = getattr(getattr(np, "_core", np).multiarray, "_ARRAY_API", None)
    if capsule is None:
        return None
    table = api.PyCapsule_GetPointer(capsule, None)
    if _word(table + 8 * ARRAY_TYPE) != id(np.ndarray):
        return None
    names = {"tuple": "PyTuple_New", "retain": "Py_IncRef", "release": "Py_DecRef", "call": "PyObject_Vectorcall"}
    found = {field: pools.address_of(getattr(api, name)) for field, name in names.items()}
    return {**found, "type": id(np.ndarray), "empty": _word(table + 8 * EMPTY), "none": id(None)}


# ---- a description --------------------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """An array argument or result: its lengths, its dtype, and the addresses of the words that store its address."""

    lengths: tuple[int, ...]
    dtype: Any
    words: Sequence[int]


_calls: weakref.WeakSet[NativeFunction] = weakref.WeakSet()
_making = threading.Lock()  # of the code of entries


def _forked() -> None:
    global _making
    _making = threading.Lock()
    for call in list(_calls):
        call.set(busy=0)  # a caller inside it does not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Method(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


@functools.cache
def _method(address: int) -> _Method:
    """Returns the PyMethodDef of a function in C, which is never freed: Python reads it even when it frees the function."""
    return _Method(b"computation", address, FAST, None)


class NativeFunction:
    """A function for Python over a frame. `order`: the index in `made` of each result, None where it has no value; or just one, or nothing.

    slow     the function called instead where something does not fit
    watches  (address, value): words that must have these values, else `slow` is called
    version  the address of a word that is incremented after each call
    """

    def __init__(
        self,
        code: Any,
        frame: int,
        pool: Any,
        given: Sequence[Spot],
        made: Sequence[Spot],
        order: Sequence[int | None] | int | None,
        slow: Callable[..., Any],
        watches: Sequence[tuple[int, int]] = (),
        version: int = 0,
    ):
        functions = _functions()
        assert functions is not None
        self.kept: list[Any] = [code, pool, slow]  # owners of the words' targets
        self.words = np.zeros(len(FIELDS["call"]), np.int64)
        form = TUPLE if isinstance(order, Sequence) else NONE if order is None else SINGLE
        every = [-1 if k is None else k for k in order] if isinstance(order, Sequence) else []
        self.set(count=len(given), given=self._spots(given), made=self._spots(made), results=len(made), form=form, **functions)
        self.set(slow=id(slow), frame=frame, pool=pool.address, run=pool.code.address("run"), version=version)
        self.set(size=len(every), order=self._kept(every))
        self.watch(watches)
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
        _calls.add(self)
        self.function: Callable[..., Any] = new(ctypes.addressof(_method(code.address("entry"))), self.words, None)

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.words[FIELDS["call"][name] // 8] = value

    @property
    def calls(self) -> int:
        """The number of calls that ran to their end here."""
        return int(self.words[FIELDS["call"]["calls"] // 8])

    def watch(self, watches: Sequence[tuple[int, int]]) -> None:
        """Replaces the watched words."""
        self.watches = np.array(watches, np.int64).reshape(-1, 2)
        self.set(watched=len(watches), watches=self.watches.ctypes.data)

    def _kept(self, numbers: Sequence[int]) -> int:
        array = np.array([*numbers, 0], np.int64)
        self.kept.append(array)
        return int(array.ctypes.data)

    def _spots(self, spots: Sequence[Spot]) -> int:
        rows: list[int] = []
        for s in spots:
            self.kept.append(s.dtype)
            row = [len(s.lengths), id(s.dtype), self._kept(s.lengths), len(s.words), self._kept(s.words)]
            rows += row + [0] * (VALUE - len(row))
        return self._kept(rows)


_code: list[Any] = []


def code(load: Callable[[str, Cpu], Any]) -> Any:
    """Returns the entry's code, made once; None where objects have another layout. `load` makes loaded code of IR text."""
    if not _code:
        with _making:
            if not _code:
                found = layout()
                there = found is not None and _functions() is not None
                _code.append(load(text(host(), found), host()) if found is not None and there else None)
    return _code[0]
