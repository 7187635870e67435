"""Memory of large results of other libraries' types, which is used again when the caller has let go of them.

A result of 40 MB that the library allocates anew in each call costs ten thousand page faults, more than the arithmetic of many programs:
the C library gives such memory back to the system at once. Here a block that its array's owner has released is kept for the next result
that fits. Generated code (`BLOCKS`, part of the entry's module) stands in place of the library's allocator: it has the signature of that
of DLPack's C exchange API, and gives a managed tensor whose deleter keeps the block. Smaller results are allocated by the library.

Blocks are those of a process and a library, not of a computation: what a backward pass has released the next forward pass takes. Kept
and used blocks together never exceed the most that was used at one time; the oldest are freed first. When no computation is left that
makes such results, all are freed. A deleter may be called by any thread, without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from typing import Any

import numpy as np

from ngraph.op_graph.dlpack import VERSION, DLTensor, ExchangeAPI, ManagedTensor
from ngraph.runtime.host import pool as pools
from ngraph.runtime.host.pool import FIELDS

MIN_BYTES = 1 << 20  # of a result; glibc's malloc keeps smaller memory by itself in most programs
MIN_HUGE_BYTES = 1 << 22  # of a block that is allocated in huge pages, as NumPy does
HUGE_PAGE = 1 << 21
MAX_KEPT = 4096  # blocks
MAX_RANK = 10
ROOM = 256 + (1 << 16)  # bytes of a block before its array: a record, and a distance that spreads blocks over the sets of caches
MINOR = 3  # of DLPack's version

FIELDS["blocks"] = {
    name: 8 * k for k, name in enumerate("lock users count used held most distance library reserve free advise list".split())
}
FIELDS["managed"] = {f[0]: getattr(ManagedTensor, f[0]).offset for f in ManagedTensor._fields_ if f[0] != "tensor"}
FIELDS["managed"] |= {f[0]: ManagedTensor.tensor.offset + getattr(DLTensor, f[0]).offset for f in DLTensor._fields_}
_AFTER = ctypes.sizeof(ManagedTensor)
FIELDS["managed"] |= {"start": _AFTER, "bytes": _AFTER + 8, "dims": _AFTER + 16, "steps": _AFTER + 16 + 8 * MAX_RANK}
FIELDS["wish"] = {f[0]: getattr(DLTensor, f[0]).offset for f in DLTensor._fields_}
FIELDS["kept"] = {"block": 0, "bytes": 8}  # a row of the list: the managed tensor of a block, and how many bytes its array may have

BLOCKS = f"""
define internal void @hold(ptr %blocks) nounwind {{
entry:
  %lock = ref %blocks.lock
  br label %try
try:
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %leave, label %wait
wait:
  PAUSE
  br label %try
leave:
  ret void
}}

define internal void @let(ptr %blocks) nounwind {{
entry:
  %lock = ref %blocks.lock
  store atomic i64 0, ptr %lock release, align 8
  ret void
}}

define internal void @drop(ptr %blocks, i64 %k) nounwind {{ ; takes a row out of the list, which stays in the order of release
entry:
  %count = get i64 %blocks.count
  %list = get ptr %blocks.list
  %last = sub i64 %count, 1
  put i64 %last, %blocks.count
  br label %next
next:
  %i = phi i64 [ %k, %entry ], [ %i1, %move ]
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i, %last
  br i1 %more, label %move, label %leave
move:
  %to = getelementptr [2 x i64], ptr %list, i64 %i
  %from = getelementptr [2 x i64], ptr %list, i64 %i1
  %row = load <2 x i64>, ptr %from, align 8
  store <2 x i64> %row, ptr %to, align 8
  br label %next
leave:
  ret void
}}

define internal void @discard(ptr %blocks, ptr %managed) nounwind {{ ; gives a block back to the system
entry:
  %bytes = get i64 %managed.bytes
  %held = get i64 %blocks.held
  %held1 = sub i64 %held, %bytes
  put i64 %held1, %blocks.held
  %start = get ptr %managed.start
  %free = get ptr %blocks.free
  call void %free(ptr %start)
  ret void
}}

define internal void @oldest(ptr %blocks) nounwind {{ ; frees the block that was released first
entry:
  %list = get ptr %blocks.list
  %managed = load ptr, ptr %list
  call void @drop(ptr %blocks, i64 0)
  call void @discard(ptr %blocks, ptr %managed)
  ret void
}}

define void @empty(ptr %blocks) nounwind {{ ; frees all that are kept
entry:
  call void @hold(ptr %blocks)
  br label %next
next:
  %count = get i64 %blocks.count
  %more = icmp sgt i64 %count, 0
  br i1 %more, label %one, label %leave
one:
  call void @oldest(ptr %blocks)
  br label %next
leave:
  %used = get i64 %blocks.used
  put i64 %used, %blocks.most
  call void @let(ptr %blocks)
  ret void
}}

define void @released(ptr %managed) nounwind {{ ; the deleter
entry:
  %blocks = get ptr %managed.context
  call void @hold(ptr %blocks)
  %bytes = get i64 %managed.bytes
  %used = get i64 %blocks.used
  %used1 = sub i64 %used, %bytes
  put i64 %used1, %blocks.used
  %users = get i64 %blocks.users
  %wanted = icmp sgt i64 %users, 0
  %count = get i64 %blocks.count
  %room = icmp slt i64 %count, {MAX_KEPT}
  %keeps = and i1 %wanted, %room
  br i1 %keeps, label %keep, label %give
keep:
  %list = get ptr %blocks.list
  %kept = getelementptr [2 x i64], ptr %list, i64 %count
  put ptr %managed, %kept.block
  put i64 %bytes, %kept.bytes
  %count1 = add i64 %count, 1
  put i64 %count1, %blocks.count
  br label %leave
give:
  call void @discard(ptr %blocks, ptr %managed)
  br label %leave
leave:
  call void @let(ptr %blocks)
  ret void
}}

define i32 @allocate(ptr %wish, ptr %out, ptr %blocks, ptr %error) nounwind {{ ; `blocks` stands where errors have their context
entry:
  %rank32 = get i32 %wish.rank
  %rank = sext i32 %rank32 to i64
  %word = get i32 %wish.dtype
  %bits0 = lshr i32 %word, 8
  %bits1 = and i32 %bits0, 255
  %bits = zext i32 %bits1 to i64
  %lengths = get ptr %wish.lengths
  %strides = get ptr %wish.strides
  br label %dim
dim:
  %d = phi i64 [ 0, %entry ], [ %d1, %dim1 ]
  %product = phi i64 [ %bits, %entry ], [ %product1, %dim1 ]
  %dmore = icmp slt i64 %d, %rank
  br i1 %dmore, label %dim1, label %sized
dim1:
  %pn = getelementptr i64, ptr %lengths, i64 %d
  %n = load i64, ptr %pn
  %product1 = mul i64 %product, %n
  %d1 = add i64 %d, 1
  br label %dim
sized:
  %wanted0 = lshr i64 %product, 3
  %wanted1 = add i64 %wanted0, 4095
  %wanted = and i64 %wanted1, -4096
  %large = icmp sge i64 %wanted0, {MIN_BYTES}
  %flat = icmp sle i64 %rank, {MAX_RANK}
  %mine = and i1 %large, %flat
  br i1 %mine, label %search, label %theirs
theirs:
  %library = get ptr %blocks.library
  %status = call i32 %library(ptr %wish, ptr %out, ptr null, ptr %error)
  ret i32 %status
search:                                           ; of the smallest that are large enough, up to twice the bytes, the last released
  call void @hold(ptr %blocks)
  %count = get i64 %blocks.count
  %list = get ptr %blocks.list
  %twice = shl i64 %wanted, 1
  br label %look
look:
  %k = phi i64 [ 0, %search ], [ %k1, %look1 ]
  %best = phi i64 [ -1, %search ], [ %best1, %look1 ]
  %least = phi i64 [ %twice, %search ], [ %least1, %look1 ]
  %kmore = icmp slt i64 %k, %count
  br i1 %kmore, label %look1, label %looked
look1:
  %kept = getelementptr [2 x i64], ptr %list, i64 %k
  %has = get i64 %kept.bytes
  %fits = icmp sge i64 %has, %wanted
  %less = icmp sle i64 %has, %least
  %better = and i1 %fits, %less
  %best1 = select i1 %better, i64 %k, i64 %best
  %least1 = select i1 %better, i64 %has, i64 %least
  %k1 = add i64 %k, 1
  br label %look
looked:
  %found = icmp sge i64 %best, 0
  br i1 %found, label %take, label %miss
take:
  %kept2 = getelementptr [2 x i64], ptr %list, i64 %best
  %old = get ptr %kept2.block
  call void @drop(ptr %blocks, i64 %best)
  br label %use
miss:                                             ; the oldest are freed until all are no more than were in use at one time
  %used = get i64 %blocks.used
  %most = get i64 %blocks.most
  %then = add i64 %used, %wanted
  %higher = icmp sgt i64 %then, %most
  %bound = select i1 %higher, i64 %then, i64 %most
  put i64 %bound, %blocks.most
  br label %spare
spare:
  %held = get i64 %blocks.held
  %left = get i64 %blocks.count
  %sum = add i64 %held, %wanted
  %above = icmp sgt i64 %sum, %bound
  %any = icmp sgt i64 %left, 0
  %frees = and i1 %above, %any
  br i1 %frees, label %free, label %reserve
free:
  call void @oldest(ptr %blocks)
  br label %spare
reserve:
  %whole = add i64 %wanted, {ROOM}
  %huge = icmp sge i64 %wanted, {MIN_HUGE_BYTES}
  %align = select i1 %huge, i64 {HUGE_PAGE}, i64 4096
  %reserves = get ptr %blocks.reserve
  %failed = call i32 %reserves(ptr %out, i64 %align, i64 %whole)
  %start = load ptr, ptr %out
  %none = icmp ne i32 %failed, 0
  br i1 %none, label %fail, label %reserved
fail:
  call void @let(ptr %blocks)
  br label %theirs
reserved:
  %advise = get ptr %blocks.advise
  %can = icmp ne ptr %advise, null
  %advised = and i1 %can, %huge
  br i1 %advised, label %madvise, label %make
madvise:
  %ignored = call i32 %advise(ptr %start, i64 %whole, i32 14)
  br label %make
make:
  %distance = get i64 %blocks.distance
  %distance1 = add i64 %distance, 4352
  %distance2 = and i64 %distance1, 65535
  put i64 %distance2, %blocks.distance
  %managed = getelementptr i8, ptr %start, i64 %distance
  put ptr %start, %managed.start
  put i64 %wanted, %managed.bytes
  %held2 = get i64 %blocks.held
  %held3 = add i64 %held2, %wanted
  put i64 %held3, %blocks.held
  br label %use
use:
  %m = phi ptr [ %old, %take ], [ %managed, %make ]
  %managed2 = getelementptr i8, ptr %m, i64 0
  %size = get i64 %managed2.bytes
  %before = get i64 %blocks.used
  %now = add i64 %before, %size
  put i64 %now, %blocks.used
  %most2 = get i64 %blocks.most
  %over = icmp sgt i64 %now, %most2
  %most3 = select i1 %over, i64 %now, i64 %most2
  put i64 %most3, %blocks.most
  call void @let(ptr %blocks)
  put i64 {VERSION | MINOR << 32}, %managed2.version
  put ptr %blocks, %managed2.context
  put ptr @released, %managed2.deleter
  put i64 0, %managed2.flags
  %array = getelementptr i8, ptr %m, i64 256
  put ptr %array, %managed2.data
  %device = get i64 %wish.device_type
  put i64 %device, %managed2.device_type
  put i32 %rank32, %managed2.rank
  put i32 %word, %managed2.dtype
  put i64 0, %managed2.offset
  %dims = ref %managed2.dims
  %steps = ref %managed2.steps
  put ptr %dims, %managed2.lengths
  put ptr %steps, %managed2.strides
  br label %copy
copy:
  %c = phi i64 [ 0, %use ], [ %c1, %copy1 ]
  %cmore = icmp slt i64 %c, %rank
  br i1 %cmore, label %copy1, label %done
copy1:
  %pl = getelementptr i64, ptr %lengths, i64 %c
  %l = load i64, ptr %pl
  %tl = getelementptr i64, ptr %dims, i64 %c
  store i64 %l, ptr %tl
  %ps = getelementptr i64, ptr %strides, i64 %c
  %s = load i64, ptr %ps
  %ts = getelementptr i64, ptr %steps, i64 %c
  store i64 %s, ptr %ts
  %c1 = add i64 %c, 1
  br label %copy
done:
  store ptr %m, ptr %out
  ret i32 0
}}
"""


class ResultBlocks:
    """The blocks of the arrays of one library. Numbers of bytes: `used` by arrays that live, `held` altogether, `most` used at a time."""

    def __init__(self, code: Any, api: ExchangeAPI):
        library = ctypes.CDLL(None)
        self.list = np.zeros((MAX_KEPT, 2), np.int64)
        self.words = np.zeros(len(FIELDS["blocks"]), np.int64)
        self.code, self.living = code, set[object]()  # a token for each user
        functions = {"library": api.functions.allocate, "list": self.list.ctypes.data}
        functions |= {"reserve": pools.address_of(library.posix_memalign), "free": pools.address_of(library.free)}
        functions["advise"] = pools.address_of(library.madvise) if sys.platform == "linux" else 0
        for name, value in functions.items():
            self.words[FIELDS["blocks"][name] // 8] = value
        self.allocate, self.address = code.address("allocate"), int(self.words.ctypes.data)
        self._empty = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("empty"))
        for kept in (code, self.words, self.list):  # arrays may outlive the interpreter's modules, and then tell the deleter
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        _blocks.append(self)

    def __getattr__(self, name: str) -> int:
        if name not in FIELDS["blocks"]:
            raise AttributeError(name)
        return int(self.words[FIELDS["blocks"][name] // 8])

    def serve(self, user: Any) -> None:
        """Keeps blocks while `user` lives, which allocates here."""
        token = object()
        self.living.add(token)
        self._count()
        weakref.finalize(user, self._leave, token).atexit = False

    def _leave(self, token: object) -> None:
        """Forgets a user. Takes no lock: the collector may call it anywhere."""
        self.living.discard(token)
        self._count()
        if not self.living:
            self._empty(self.address)
            self._count()  # another thread may have come meanwhile

    def _count(self) -> None:
        while self.users != len(self.living):  # another thread may count, too, and write what it saw before
            self.words[FIELDS["blocks"]["users"] // 8] = len(self.living)


_blocks: list[ResultBlocks] = []


@functools.cache
def blocks(code: Any, api: ExchangeAPI) -> ResultBlocks:
    """Returns the blocks of a library's arrays; `code` has the functions of `BLOCKS`."""
    return ResultBlocks(code, api)


def _forked() -> None:
    for each in _blocks:
        each.words[FIELDS["blocks"]["lock"] // 8] = 0  # who held it does not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
