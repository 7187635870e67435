"""The fast entry from Python into a bytecode table: one generated function in CPython's vectorcall convention, shared by all computations.

Data tells it what to do: words that describe each argument's requirements, the destinations of its address, and the results to make. It
reads NumPy's arrays by the offsets of their fields, which are found by probing arrays with known fields; if they are not found, calls
go through Python. Arrays of other libraries describe themselves through DLPack's C exchange API (`op_graph.dlpack`), which also makes
the results, where these are to be arrays of such a library. Calls that do not fit go to the Python path, which converts the arguments or
raises the error.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph.dlpack import CPU, DLTensor, ExchangeAPI, ManagedTensor, dtype_word, exchange_api
from ngraph.op_graph.expr import ExprLike
from ngraph.runtime.host import bytecode
from ngraph.runtime.host import pool as pools
from ngraph.runtime.host.blocks import BLOCKS, blocks
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.runtime.host.pool import COPY, FIELDS, expanded
from ngraph.targets import Cpu, host

FAST = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS
ALIGNED, WRITEABLE = 0x0100, 0x0400  # flags of an array
ARRAY_TYPE, NEW = 2, 94  # in NumPy's table of functions: PyArray_Type, PyArray_NewFromDescr
SIZE = 16  # where a tuple and a list have their number of items
OUT = sys.intern("out")
NONE, SINGLE, TUPLE = range(3)  # structures of results

FIELDS["call"] = {
    name: 8 * k
    for k, name in enumerate(
        (
            "count given made results form slow busy frame pool run type empty tuple retain release call none watched watches "
            "version size order calls outname takes listtype tupletype writes sorted sortedout allocate blocks export scratch clear known "
            "kinds opens open settles settled limits limit short twins"
        ).split()
    )
}
FIELDS["value"] = {  # an argument or a result; lengths and strides in the caller's order of dims, strides in bytes
    name: 8 * k
    for k, name in enumerate(
        "rank dtype lengths places at object strides code ready itemsize align bytes writes start turned steps wish data twin".split()
    )
}
FIELDS["open"] = {name: 8 * k for k, name in enumerate("number dim word".split())}  # a length that calls bring, and a word for it
FIELDS["settled"] = {name: 8 * k for k, name in enumerate("frame start ways threads release again".split())}  # `ComputingFrame`
FIELDS["limit"] = {name: 8 * k for k, name in enumerate("word most".split())}  # addresses of words
FIELDS["tensor"] = {field[0]: getattr(DLTensor, field[0]).offset for field in DLTensor._fields_}
VALUE_SHIFT = 8  # the binary logarithm of the bytes of a value; a watch is two words: an address, and the expected value
VALUE = (1 << VALUE_SHIFT) // 8


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
  %busy = get i64 %call.busy
  %idle = icmp eq i64 %busy, 0
  %go = and i1 %right, %idle
  br i1 %go, label %named, label %slow
named:                                            ; the only keyword accepted is out
  %results = get i64 %call.results
  %plain = icmp eq ptr %names, null
  br i1 %plain, label %begin, label %keyword
keyword:
  %pnsize = getelementptr i8, ptr %names, i64 SIZE
  %nsize = load i64, ptr %pnsize
  %pname = getelementptr i8, ptr %names, i64 ITEMS
  %name = load ptr, ptr %pname
  %outname = get ptr %call.outname
  %one = icmp eq i64 %nsize, 1
  %isout = icmp eq ptr %name, %outname
  %keyed = and i1 %one, %isout
  br i1 %keyed, label %wanted, label %slow
wanted:
  %pout = getelementptr ptr, ptr %args, i64 %count
  %out = load ptr, ptr %pout
  %takes = get i64 %call.takes
  switch i64 %takes, label %slow [ i64 1, label %begin
    i64 2, label %several ]
several:                                          ; out= is a list or a tuple with one array per result
  %psize = getelementptr i8, ptr %out, i64 SIZE
  %ptype.out = getelementptr i8, ptr %out, i64 KIND
  %type.out = load ptr, ptr %ptype.out
  %listtype = get ptr %call.listtype
  %tupletype = get ptr %call.tupletype
  %islist = icmp eq ptr %type.out, %listtype
  %istuple = icmp eq ptr %type.out, %tupletype
  %sequence = or i1 %islist, %istuple
  br i1 %sequence, label %sized, label %slow
sized:
  %osize = load i64, ptr %psize
  %fits = icmp eq i64 %osize, %results
  br i1 %fits, label %listed, label %slow
listed:
  %inside = getelementptr i8, ptr %out, i64 ITEMS
  %elsewhere = load ptr, ptr %inside
  %items.out = select i1 %islist, ptr %elsewhere, ptr %inside
  br label %begin
begin:                                            ; from here on this thread owns the call
  %outs = phi ptr [ null, %named ], [ %pout, %wanted ], [ %items.out, %listed ]
  %outgiven = phi ptr [ null, %named ], [ %out, %wanted ], [ %out, %listed ]
  put i64 1, %call.busy
  %nw = get i64 %call.watched
  %pw = get ptr %call.watches
  br label %watch
watch:                                            ; the locks of the state are free, and its buffers have not moved
  %w = phi i64 [ 0, %begin ], [ %w1, %watched ]
  %wmore = icmp slt i64 %w, %nw
  br i1 %wmore, label %watch1, label %lengths
watch1:
  %woff = shl i64 %w, 4
  %watch.p = getelementptr i8, ptr %pw, i64 %woff
  %wa = load ptr, ptr %watch.p
  %wv.p = getelementptr i8, ptr %watch.p, i64 8
  %wv = load i64, ptr %wv.p
  %wis = load i64, ptr %wa
  %wok = icmp eq i64 %wis, %wv
  br i1 %wok, label %watched, label %refuse
watched:
  %w1 = add i64 %w, 1
  br label %watch
lengths:
  %opens = get i64 %call.opens
  %known = icmp eq i64 %opens, 0
  br i1 %known, label %given, label %bring
bring:
  %settled = call i64 @settle(ptr %call, ptr %args, i64 %opens)
  switch i64 %settled, label %refuse [ i64 DONE, label %given
    i64 INTERRUPTED, label %stop ]
stop:
  br label %end
given:
  %pgiven = get ptr %call.given
  %pmade = get ptr %call.made
  %hasout = icmp ne ptr %outs, null
  br label %arg
arg:
  %k = phi i64 [ 0, %given ], [ %k1, %placed ]
  %more = icmp slt i64 %k, %want
  br i1 %more, label %look, label %into
look:
  %voff = shl i64 %k, VALUE_SHIFT
  %value = getelementptr i8, ptr %pgiven, i64 %voff
  %parg = getelementptr ptr, ptr %args, i64 %k
  %x = load ptr, ptr %parg
  %ok = call i1 @take(ptr %call, ptr %value, ptr %x)
  br i1 %ok, label %placed, label %refuse
placed:
  %k1 = add i64 %k, 1
  br label %arg
into:
  br i1 %hasout, label %target, label %overlaps
target:
  %u = phi i64 [ 0, %into ], [ %u1, %taken ]
  %umore = icmp slt i64 %u, %results
  br i1 %umore, label %target1, label %overlaps
target1:
  %uoff = shl i64 %u, VALUE_SHIFT
  %value5 = getelementptr i8, ptr %pmade, i64 %uoff
  %pu = getelementptr ptr, ptr %outs, i64 %u
  %ux = load ptr, ptr %pu
  %uok = call i1 @take(ptr %call, ptr %value5, ptr %ux)
  br i1 %uok, label %taken, label %refuse
taken:
  %u1 = add i64 %u, 1
  br label %target
overlaps:
  %writes = get i64 %call.writes
  %writing = icmp ne i64 %writes, 0
  %checked = or i1 %writing, %hasout
  br i1 %checked, label %overlaps1, label %make
overlaps1:
  %sum = add i64 %want, %results
  %several.values = select i1 %hasout, i64 %sum, i64 %want
  %sorted1 = get ptr %call.sorted
  %sorted2 = get ptr %call.sortedout
  %sorted = select i1 %hasout, ptr %sorted2, ptr %sorted1
  %apart = call i1 @apart(ptr %pgiven, ptr %sorted, i64 %several.values)
  br i1 %apart, label %make, label %refuse
make:
  %empty = get ptr %call.empty
  %retain = get ptr %call.retain
  %release = get ptr %call.release
  %type = get ptr %call.type
  %foreign = get ptr %call.allocate
  %isforeign = icmp ne ptr %foreign, null
  %scratch = get ptr %call.scratch
  br i1 %hasout, label %run, label %new
new:
  %r = phi i64 [ 0, %make ], [ %r1, %new1 ]
  %rmore = icmp slt i64 %r, %results
  br i1 %rmore, label %allocate, label %run
allocate:
  %roff = shl i64 %r, VALUE_SHIFT
  %value1 = getelementptr i8, ptr %pmade, i64 %roff
  %turned = get ptr %value1.turned
  %rlengths = get ptr %value1.lengths
  br i1 %isforeign, label %theirs, label %ours
ours:
  %rdtype = get ptr %value1.dtype
  call void %retain(ptr %rdtype)
  %rrank = get i64 %value1.rank
  %rrank32 = trunc i64 %rrank to i32
  %y1 = call ptr %empty(ptr %type, ptr %rdtype, i32 %rrank32, ptr %rlengths, ptr %turned, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %y1, null
  br i1 %none, label %undo, label %ours1
ours1:
  %pydata = getelementptr i8, ptr %y1, i64 DATA
  %ydata1 = load i64, ptr %pydata
  br label %new1
theirs:                                           ; allocates by that library in memory order, then restores the caller's order of dims
  %wish = get ptr %value1.wish
  %blocks = get ptr %call.blocks
  %failed = call i32 %foreign(ptr %wish, ptr %scratch, ptr %blocks, ptr @ignore)
  %failed1 = icmp ne i32 %failed, 0
  br i1 %failed1, label %undo, label %theirs1
theirs1:
  %managed = load ptr, ptr %scratch
  %pmdata = getelementptr i8, ptr %managed, i64 MANAGED_DATA
  %mdata = load i64, ptr %pmdata
  %pmoffset = getelementptr i8, ptr %managed, i64 MANAGED_OFFSET
  %moffset = load i64, ptr %pmoffset
  %ydata2 = add i64 %mdata, %moffset
  %isturned = icmp ne ptr %turned, null
  br i1 %isturned, label %turn, label %export
turn:
  %pmlengths = getelementptr i8, ptr %managed, i64 MANAGED_LENGTHS
  store ptr %rlengths, ptr %pmlengths
  %pmstrides = getelementptr i8, ptr %managed, i64 MANAGED_STRIDES
  %steps = get ptr %value1.steps
  store ptr %steps, ptr %pmstrides
  br label %export
export:
  %exports = get ptr %call.export
  %unexported = call i32 %exports(ptr %managed, ptr %scratch)
  %unexported1 = icmp ne i32 %unexported, 0
  %y2 = load ptr, ptr %scratch
  br i1 %unexported1, label %undo, label %new1
new1:
  %y = phi ptr [ %y1, %ours1 ], [ %y2, %export ]
  %ydata = phi i64 [ %ydata1, %ours1 ], [ %ydata2, %export ]
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
  br i1 %fine, label %ran, label %undo
ran:
  %twins = get i64 %call.twins
  %twofold = icmp ne i64 %twins, 0
  br i1 %twofold, label %twin, label %tell
twin:                                             ; copies results of the same values as one before
  %t2 = phi i64 [ 0, %ran ], [ %next.t, %twin2 ]
  %tmore = icmp slt i64 %t2, %results
  br i1 %tmore, label %twin1, label %tell
twin1:
  %toff = shl i64 %t2, VALUE_SHIFT
  %value6 = getelementptr i8, ptr %pmade, i64 %toff
  %value7 = get ptr %value6.twin
  %istwin = icmp ne ptr %value7, null
  br i1 %istwin, label %copies, label %twin2
copies:
  %to = get ptr %value6.data
  %from = get ptr %value7.data
  %bytes = get i64 %value6.bytes
  call void @copy(ptr %to, ptr %from, i64 %bytes)
  br label %twin2
twin2:
  %next.t = add i64 %t2, 1
  br label %twin
tell:
  %calls = get i64 %call.calls
  %calls1 = add i64 %calls, 1
  put i64 %calls1, %call.calls
  %version = get ptr %call.version
  %changes = icmp ne ptr %version, null
  br i1 %changes, label %raise, label %give
raise:
  %old = load i64, ptr %version
  %raised = add i64 %old, 1
  store i64 %raised, ptr %version
  br label %give
give:
  br i1 %hasout, label %giveout, label %giveform
giveout:
  call void %retain(ptr %outgiven)
  br label %end
giveform:
  %form = get i64 %call.form
  switch i64 %form, label %nothing [ i64 1, label %single
    i64 2, label %tuple ]
single:
  %value4 = getelementptr i8, ptr %pmade, i64 0
  %o = get ptr %value4.object
  br label %end
nothing:
  %nil = get ptr %call.none
  call void %retain(ptr %nil)
  br label %end
tuple:                                            ; results in order; -1 stands for a result without a value
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
  br i1 %imore, label %item1, label %leave
item1:
  %po = getelementptr i64, ptr %order, i64 %i
  %which = load i64, ptr %po
  %novalue = icmp slt i64 %which, 0
  br i1 %novalue, label %item0, label %item3
item0:
  call void %retain(ptr %nil2)
  br label %item2
item3:
  %vo = shl i64 %which, VALUE_SHIFT
  %value3 = getelementptr i8, ptr %pmade, i64 %vo
  %vobj = get ptr %value3.object
  br label %item2
item2:
  %obj = phi ptr [ %nil2, %item0 ], [ %vobj, %item3 ]
  %slot = getelementptr ptr, ptr %items.p, i64 %i
  store ptr %obj, ptr %slot
  %i1 = add i64 %i, 1
  br label %item
leave:
  br label %end
undo:                                             ; releases the results made so far
  %n = phi i64 [ %r, %ours ], [ %r, %theirs ], [ %r, %export ], [ %results, %run ], [ %results, %tuple ]
  %why = phi i64 [ INTERRUPTED, %ours ], [ HOST_STEP, %theirs ], [ INTERRUPTED, %export ], [ %status, %run ], [ INTERRUPTED, %tuple ]
  %n1 = select i1 %hasout, i64 0, i64 %n
  br label %drop
drop:
  %q = phi i64 [ 0, %undo ], [ %q1, %drop1 ]
  %qmore = icmp slt i64 %q, %n1
  br i1 %qmore, label %drop1, label %fail
drop1:
  %qoff = shl i64 %q, VALUE_SHIFT
  %value2 = getelementptr i8, ptr %pmade, i64 %qoff
  %qobj = get ptr %value2.object
  call void %release(ptr %qobj)
  %q1 = add i64 %q, 1
  br label %drop
fail:                                             ; a check failed: Python repeats the call and raises the error
  %found = icmp eq i64 %why, HOST_STEP
  br i1 %found, label %refuse, label %end
end:                                              ; others may call only now: making a tuple may run their Python code
  %given.back = phi ptr [ null, %stop ], [ %outgiven, %giveout ], [ %o, %single ], [ %nil, %nothing ], [ %t, %leave ], [ null, %fail ]
  put i64 0, %call.busy
  ret ptr %given.back
refuse:
  put i64 0, %call.busy
  br label %slow
slow:
  %other = get ptr %call.slow
  %vector = get ptr %call.call
  %result = call ptr %vector(ptr %other, ptr %args, i64 %count, ptr %names)
  ret ptr %result
}

define internal i64 @settle(ptr %call, ptr %args, i64 %opens) nounwind noinline { ; reads open lengths; computes what depends on new ones
entry:
  %rows = get ptr %call.open
  %given = get ptr %call.given
  %short = get i64 %call.short                      ; whether the last lengths did not fit
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %stored ]
  %changed = phi i64 [ %short, %entry ], [ %changed1, %stored ]
  %more = icmp slt i64 %i, %opens
  br i1 %more, label %look, label %compare
look:
  %off = mul i64 %i, OPEN_BYTES
  %open = getelementptr i8, ptr %rows, i64 %off
  %number = get i64 %open.number
  %voff = shl i64 %number, VALUE_SHIFT
  %value = getelementptr i8, ptr %given, i64 %voff
  %px = getelementptr ptr, ptr %args, i64 %number
  %x = load ptr, ptr %px
  %lengths = call ptr @lengths(ptr %call, ptr %value, ptr %x)
  %unknown = icmp eq ptr %lengths, null
  br i1 %unknown, label %no, label %stored
stored:
  %dim = get i64 %open.dim
  %pl = getelementptr i64, ptr %lengths, i64 %dim
  %l = load i64, ptr %pl
  %word = get ptr %open.word
  %old = load i64, ptr %word
  store i64 %l, ptr %word
  %differ = xor i64 %l, %old
  %changed1 = or i64 %changed, %differ
  %i1 = add i64 %i, 1
  br label %next
no:                                               ; some words have changed
  put i64 1, %call.short
  ret i64 HOST_STEP
compare:
  %same = icmp eq i64 %changed, 0
  br i1 %same, label %yes, label %begin
begin:
  put i64 1, %call.short
  %pool = get ptr %call.pool
  %runs = get ptr %call.run
  %frames = get i64 %call.settles
  %pframes = get ptr %call.settled
  br label %frame
frame:
  %f = phi i64 [ 0, %begin ], [ %f1, %computed ]
  %fmore = icmp slt i64 %f, %frames
  br i1 %fmore, label %compute, label %limits
compute:
  %foff = mul i64 %f, SETTLED_BYTES
  %settled = getelementptr i8, ptr %pframes, i64 %foff
  %frame1 = get ptr %settled.frame
  %start = get i64 %settled.start
  put i64 1, %frame1.threads
  put i64 0, %frame1.release
  put i64 %start, %frame1.pc
  %status = call i64 %runs(ptr %pool, ptr %frame1)
  %done = icmp eq i64 %status, DONE
  br i1 %done, label %computed, label %broken
computed:
  %pways = get ptr %settled.ways
  %ways = load i64, ptr %pways
  %threads = get i64 %settled.threads
  %wide = icmp sgt i64 %ways, 1
  %on = select i1 %wide, i64 %threads, i64 1
  put i64 %on, %frame1.threads
  %release = get i64 %settled.release
  %least = select i1 %wide, i64 0, i64 1
  %lets = icmp sgt i64 %release, %least
  %let = zext i1 %lets to i64
  put i64 %let, %frame1.release
  %f1 = add i64 %f, 1
  br label %frame
limits:
  %nlimits = get i64 %call.limits
  %plimits = get ptr %call.limit
  br label %bound
bound:
  %b = phi i64 [ 0, %limits ], [ %b1, %bound1 ]
  %bmore = icmp slt i64 %b, %nlimits
  br i1 %bmore, label %bound1, label %fill
bound1:
  %boff = shl i64 %b, 4
  %limit = getelementptr i8, ptr %plimits, i64 %boff
  %pword = get ptr %limit.word
  %pmost = get ptr %limit.most
  %need = load i64, ptr %pword
  %most = load i64, ptr %pmost
  %over = icmp ugt i64 %need, %most
  %b1 = add i64 %b, 1
  br i1 %over, label %above, label %bound
above:
  ret i64 HOST_STEP
fill:
  %g = phi i64 [ 0, %bound ], [ %g1, %filled ]
  %gmore = icmp slt i64 %g, %frames
  br i1 %gmore, label %fill1, label %fits
fill1:
  %goff = mul i64 %g, SETTLED_BYTES
  %settled1 = getelementptr i8, ptr %pframes, i64 %goff
  %again = get i64 %settled1.again
  %isagain = icmp ne i64 %again, 0
  br i1 %isagain, label %fill2, label %filled
fill2:
  %frame2 = get ptr %settled1.frame
  put i64 0, %frame2.pc
  %status1 = call i64 %runs(ptr %pool, ptr %frame2)
  %done1 = icmp eq i64 %status1, DONE
  br i1 %done1, label %filled, label %broken
filled:
  %g1 = add i64 %g, 1
  br label %fill
fits:
  put i64 0, %call.short
  br label %yes
yes:
  ret i64 DONE
broken:
  %why = phi i64 [ %status, %compute ], [ %status1, %fill2 ]
  ret i64 %why
}

define internal ptr @lengths(ptr %call, ptr %value, ptr %x) nounwind { ; the shape of an array of a value's rank; else null
entry:
  %ptype = getelementptr i8, ptr %x, i64 KIND
  %xtype = load ptr, ptr %ptype
  %type = get ptr %call.type
  %isarray = icmp eq ptr %xtype, %type
  %wrank = get i64 %value.rank
  br i1 %isarray, label %fields, label %kinds
fields:
  %prank = getelementptr i8, ptr %x, i64 RANK
  %rank32 = load i32, ptr %prank
  %rank1 = sext i32 %rank32 to i64
  %plengths = getelementptr i8, ptr %x, i64 LENGTHS
  %lengths1 = load ptr, ptr %plengths
  br label %ranks
kinds:
  %nkinds = get i64 %call.known
  %pkinds = get ptr %call.kinds
  br label %kind
kind:
  %j = phi i64 [ 0, %kinds ], [ %j1, %kind2 ]
  %jmore = icmp slt i64 %j, %nkinds
  br i1 %jmore, label %kind1, label %no
kind1:
  %joff = shl i64 %j, 4
  %row = getelementptr i8, ptr %pkinds, i64 %joff
  %itstype = load ptr, ptr %row
  %same.type = icmp eq ptr %itstype, %xtype
  br i1 %same.type, label %describe, label %kind2
kind2:
  %j1 = add i64 %j, 1
  br label %kind
describe:
  %pdescribe = getelementptr i8, ptr %row, i64 8
  %describes = load ptr, ptr %pdescribe
  %dl = get ptr %call.scratch
  %unknown = call i32 %describes(ptr %x, ptr %dl)
  %known = icmp eq i32 %unknown, 0
  br i1 %known, label %described, label %forget
forget:
  %clear = get ptr %call.clear
  call void %clear()
  br label %no
described:
  %tensor = getelementptr i8, ptr %dl, i64 0
  %rank232 = get i32 %tensor.rank
  %rank2 = sext i32 %rank232 to i64
  %lengths2 = get ptr %tensor.lengths
  br label %ranks
ranks:
  %rank = phi i64 [ %rank1, %fields ], [ %rank2, %described ]
  %lengths = phi ptr [ %lengths1, %fields ], [ %lengths2, %described ]
  %ok = icmp eq i64 %rank, %wrank
  %found = select i1 %ok, ptr %lengths, ptr null
  ret ptr %found
no:
  ret ptr null
}

define internal i1 @take(ptr %call, ptr %value, ptr %x) nounwind alwaysinline { ; checks an array against a value's description
entry:                                            ; and records its address
  %ptype = getelementptr i8, ptr %x, i64 KIND
  %xtype = load ptr, ptr %ptype
  %type = get ptr %call.type
  %isarray = icmp eq ptr %xtype, %type
  br i1 %isarray, label %fields, label %other
fields:
  %wrank = get i64 %value.rank
  %prank = getelementptr i8, ptr %x, i64 RANK
  %rank32 = load i32, ptr %prank
  %rank = sext i32 %rank32 to i64
  %pdtype = getelementptr i8, ptr %x, i64 DTYPE
  %dtype = load ptr, ptr %pdtype
  %pflags = getelementptr i8, ptr %x, i64 FLAGS
  %flags = load i32, ptr %pflags
  %flags64 = zext i32 %flags to i64
  %wdtype = get ptr %value.dtype
  %ready = get i64 %value.ready
  %ok1 = icmp eq i64 %rank, %wrank
  %ok2 = icmp eq ptr %dtype, %wdtype
  %masked = and i64 %flags64, %ready
  %ok3 = icmp eq i64 %masked, %ready
  %ok12 = and i1 %ok1, %ok2
  %ok4 = and i1 %ok12, %ok3
  br i1 %ok4, label %array, label %no
array:
  %plengths = getelementptr i8, ptr %x, i64 LENGTHS
  %lengths = load ptr, ptr %plengths
  %strides = getelementptr i64, ptr %lengths, i64 %rank
  %pdata = getelementptr i8, ptr %x, i64 DATA
  %data = load i64, ptr %pdata
  %placed = call i1 @place(ptr %value, ptr %lengths, ptr %strides, i64 1, i64 %data)
  ret i1 %placed
other:
  %taken = call i1 @describe(ptr %call, ptr %value, ptr %x)
  ret i1 %taken
no:
  ret i1 false
}

define internal i1 @describe(ptr %call, ptr %value, ptr %x) nounwind noinline { ; the same for array types of other libraries seen so far
entry:
  %ptype = getelementptr i8, ptr %x, i64 KIND
  %xtype = load ptr, ptr %ptype
  %wrank = get i64 %value.rank
  %nkinds = get i64 %call.known
  %pkinds = get ptr %call.kinds
  br label %kind
kind:
  %j = phi i64 [ 0, %entry ], [ %j1, %kind2 ]
  %jmore = icmp slt i64 %j, %nkinds
  br i1 %jmore, label %kind1, label %no
kind1:
  %joff = shl i64 %j, 4
  %row = getelementptr i8, ptr %pkinds, i64 %joff
  %itstype = load ptr, ptr %row
  %same.type = icmp eq ptr %itstype, %xtype
  br i1 %same.type, label %describe, label %kind2
kind2:
  %j1 = add i64 %j, 1
  br label %kind
describe:
  %pdescribe = getelementptr i8, ptr %row, i64 8
  %describes = load ptr, ptr %pdescribe
  %dl = get ptr %call.scratch
  %unknown = call i32 %describes(ptr %x, ptr %dl)
  %known = icmp eq i32 %unknown, 0
  br i1 %known, label %described, label %forget
forget:
  %clear = get ptr %call.clear
  call void %clear()
  br label %no
described:
  %tensor = getelementptr i8, ptr %dl, i64 0
  %device = get i32 %tensor.device_type
  %rank32 = get i32 %tensor.rank
  %rank = sext i32 %rank32 to i64
  %code32 = get i32 %tensor.dtype
  %code = zext i32 %code32 to i64
  %lengths = get ptr %tensor.lengths
  %strides = get ptr %tensor.strides
  %base = get i64 %tensor.data
  %offset = get i64 %tensor.offset
  %data = add i64 %base, %offset
  %wcode = get i64 %value.code
  %align = get i64 %value.align
  %off = and i64 %data, %align
  %t1 = icmp eq i32 %device, 1
  %t2 = icmp eq i64 %rank, %wrank
  %t3 = icmp eq i64 %code, %wcode
  %t4 = icmp ne i64 %base, 0
  %t5 = icmp eq i64 %off, 0
  %t12 = and i1 %t1, %t2
  %t34 = and i1 %t3, %t4
  %t1234 = and i1 %t12, %t34
  %t6 = and i1 %t1234, %t5
  %isscalar = icmp eq i64 %wrank, 0
  %stepped = icmp ne ptr %strides, null
  %t7 = or i1 %isscalar, %stepped
  %t8 = and i1 %t6, %t7
  %unit = get i64 %value.itemsize
  br i1 %t8, label %dims, label %no
dims:
  %placed = call i1 @place(ptr %value, ptr %lengths, ptr %strides, i64 %unit, i64 %data)
  ret i1 %placed
no:
  ret i1 false
}

define internal i1 @place(ptr %value, ptr %lengths, ptr %strides, i64 %unit, i64 %data) nounwind alwaysinline {
entry:                                            ; compares lengths and strides, these in units; records the address
  %wrank = get i64 %value.rank
  %wlengths = get ptr %value.lengths
  %wstrides = get ptr %value.strides
  br label %dim
dim:
  %d = phi i64 [ 0, %entry ], [ %d1, %same ]
  %dmore = icmp slt i64 %d, %wrank
  br i1 %dmore, label %compare, label %place
compare:
  %pl = getelementptr i64, ptr %lengths, i64 %d
  %pwl = getelementptr i64, ptr %wlengths, i64 %d
  %ps = getelementptr i64, ptr %strides, i64 %d
  %pws = getelementptr i64, ptr %wstrides, i64 %d
  %l = load i64, ptr %pl
  %wl = load i64, ptr %pwl
  %s = load i64, ptr %ps
  %ws = load i64, ptr %pws
  %bytes = mul i64 %s, %unit
  %leq = icmp eq i64 %l, %wl
  %seq = icmp eq i64 %bytes, %ws
  %single = icmp eq i64 %wl, 1
  %sok = or i1 %seq, %single
  %both = and i1 %leq, %sok
  br i1 %both, label %same, label %no
same:
  %d1 = add i64 %d, 1
  br label %dim
place:
  put i64 %data, %value.start
  call void @point(ptr %value, i64 %data)
  ret i1 true
no:
  ret i1 false
}

define internal i1 @apart(ptr %values, ptr %sorted, i64 %n) nounwind { ; returns whether written values overlap no other
entry:
  br label %next
next:                                             ; insertion sort by address: the order of the last call is nearly that of this one
  %i = phi i64 [ 1, %entry ], [ %i1, %put ]
  %imore = icmp slt i64 %i, %n
  br i1 %imore, label %insert, label %scan
insert:
  %pi = getelementptr i64, ptr %sorted, i64 %i
  %key = load i64, ptr %pi
  %koff = shl i64 %key, VALUE_SHIFT
  %value = getelementptr i8, ptr %values, i64 %koff
  %at = get i64 %value.start
  br label %back
back:
  %j = phi i64 [ %i, %insert ], [ %j1, %shift ]
  %j1 = sub i64 %j, 1
  %jmore = icmp sge i64 %j1, 0
  br i1 %jmore, label %before, label %put
before:
  %pj = getelementptr i64, ptr %sorted, i64 %j1
  %other = load i64, ptr %pj
  %ooff = shl i64 %other, VALUE_SHIFT
  %value1 = getelementptr i8, ptr %values, i64 %ooff
  %oat = get i64 %value1.start
  %later = icmp ugt i64 %oat, %at
  br i1 %later, label %shift, label %put
shift:
  %pj1 = getelementptr i64, ptr %sorted, i64 %j
  store i64 %other, ptr %pj1
  br label %back
put:
  %pk = getelementptr i64, ptr %sorted, i64 %j
  store i64 %key, ptr %pk
  %i1 = add i64 %i, 1
  br label %next
scan:
  %q = phi i64 [ 0, %next ], [ %q1, %fine ]
  %end = phi i64 [ 0, %next ], [ %end1, %fine ]
  %written = phi i64 [ 0, %next ], [ %written1, %fine ]
  %qmore = icmp slt i64 %q, %n
  br i1 %qmore, label %look, label %yes
look:
  %pq = getelementptr i64, ptr %sorted, i64 %q
  %which = load i64, ptr %pq
  %qoff = shl i64 %which, VALUE_SHIFT
  %value2 = getelementptr i8, ptr %values, i64 %qoff
  %start = get i64 %value2.start
  %bytes = get i64 %value2.bytes
  %writes = get i64 %value2.writes
  %iswritten = icmp ne i64 %writes, 0
  %limit = select i1 %iswritten, i64 %end, i64 %written
  %stop = add i64 %start, %bytes
  %over = icmp ult i64 %start, %limit
  %some = icmp ne i64 %bytes, 0
  %bad = and i1 %over, %some
  br i1 %bad, label %shared, label %fine
fine:
  %further = icmp ugt i64 %stop, %end
  %end1 = select i1 %further, i64 %stop, i64 %end
  %further1 = icmp ugt i64 %stop, %written
  %mine = and i1 %further1, %iswritten
  %written1 = select i1 %mine, i64 %stop, i64 %written
  %q1 = add i64 %q, 1
  br label %scan
yes:
  ret i1 true
shared:
  ret i1 false
}

define internal void @ignore(ptr %context, ptr %kind, ptr %message) nounwind { ; ignores allocators' errors: Python repeats the call
entry:
  ret void
}

define internal void @point(ptr %value, i64 %data) nounwind { ; stores an address at every destination
entry:
  put i64 %data, %value.data
  %places = get i64 %value.places
  %at = get ptr %value.at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %put ]
  %more = icmp slt i64 %i, %places
  br i1 %more, label %put, label %leave
put:
  %pa = getelementptr ptr, ptr %at, i64 %i
  %a = load ptr, ptr %pa
  store i64 %data, ptr %a
  %i1 = add i64 %i, 1
  br label %next
leave:
  ret void
}
"""


def text(target: Cpu, layout: ArrayObjectLayout) -> str:
    """Returns the module with the function `entry`."""
    words = {"KIND": layout.kind, "DATA": layout.data, "RANK": layout.rank, "LENGTHS": layout.lengths, "DTYPE": layout.dtype}
    words |= {"DONE": bytecode.DONE, "HOST_STEP": bytecode.HOST_CALLBACK, "INTERRUPTED": bytecode.INTERRUPTED}
    words |= {"FLAGS": layout.flags, "ITEMS": layout.items, "SIZE": SIZE, "VALUE_SHIFT": VALUE_SHIFT}
    words |= {"OPEN_BYTES": 8 * len(FIELDS["open"]), "SETTLED_BYTES": 8 * len(FIELDS["settled"])}
    words |= {f"MANAGED_{f.upper()}": ManagedTensor.tensor.offset + getattr(DLTensor, f).offset for f in FIELDS["tensor"]}
    return expanded(re.sub(rf"\b({'|'.join(words)})\b", lambda m: str(words[m[1]]), ENTRY) + BLOCKS + COPY, target)


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
    pair, both = (samples[0], samples[1]), [samples[0], samples[1]]
    if [_word(id(pair) + known.items + 8 * k) for k in range(2)] != [id(x) for x in pair] or _word(id(pair) + SIZE) != 2:
        return None
    if [_word(_word(id(both) + known.items) + 8 * k) for k in range(2)] != [id(x) for x in both] or _word(id(both) + SIZE) != 2:
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
    names = {"tuple": "PyTuple_New", "retain": "Py_IncRef", "release": "Py_DecRef", "call": "PyObject_Vectorcall", "clear": "PyErr_Clear"}
    found = {field: pools.address_of(getattr(api, name)) for field, name in names.items()}
    types = {"type": id(np.ndarray), "listtype": id(list), "tupletype": id(tuple)}
    return {**found, **types, "empty": _word(table + 8 * NEW), "none": id(None), "outname": id(OUT)}


# ---- a description --------------------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """An array argument or result: its lengths, its dtype, and the addresses of the words that store its address.

    Lengths are numbers, or expressions over what calls bring.

    order    its dims from the slowest in memory to the fastest; the caller's own where it is ()
    written  whether a call writes it
    twin     the number of an earlier result, of which this is a copy
    """

    lengths: tuple[ExprLike, ...]
    dtype: Any
    words: Sequence[int]
    order: tuple[int, ...] = ()
    written: bool = False
    twin: int | None = None

    @staticmethod
    def of(shape: tuple[ExprLike, ...], dtype: Any, words: Sequence[int], order: tuple[int, ...] = (), written: bool = False) -> Spot:
        """Returns that of memory whose dims, from the slowest to the fastest, have these lengths."""
        lengths = list(shape)
        for n, d in zip(shape, order, strict=False):
            lengths[d] = n
        return Spot(tuple(lengths), dtype, words, order, written)

    @property
    def steps(self) -> tuple[ExprLike, ...]:
        """Strides in elements."""
        found: list[ExprLike] = [0] * len(self.lengths)
        step: ExprLike = 1
        for d in reversed(self.order or range(len(self.lengths))):
            found[d], step = step, step * self.lengths[d]
        return tuple(found)


class ArrayForms(NamedTuple):
    """The forms of a caller's arrays.

    given, made  {number of the argument, or of the result: its dims from the slowest in memory to the fastest}, where these are in
                 another order
    api          of the library whose arrays results are; NumPy's where it is None
    """

    given: Mapping[int, tuple[int, ...]] = {}
    made: Mapping[int, tuple[int, ...]] = {}
    api: ExchangeAPI | None = None


class ComputingFrame(NamedTuple):
    """A frame whose table computes from lengths.

    ways     the address of a word that is above 1 where a run pays on `threads` threads
    release  when others run meanwhile: 0 never, 1 on several threads, 2 always
    again    whether the table itself runs for new lengths
    """

    address: int
    start: int  # the instruction from which on it computes
    ways: int
    threads: int
    release: int
    again: bool = False


class LengthsOfCalls(NamedTuple):
    """The computations due where a call brings other lengths than the one before.

    rows    for each word of a length: the number of the argument, its dim, the address of the word
    frames  of tables that compute from them
    limits  (address, address): words, and what they must not exceed; else `slow` is called
    """

    rows: Sequence[tuple[int, int, int]] = ()
    frames: Sequence[ComputingFrame] = ()
    limits: Sequence[tuple[int, int]] = ()


PLAIN = ArrayForms()  # NumPy arrays in the order of their dims
_calls: weakref.WeakSet[NativeFunction] = weakref.WeakSet()
_making = fork_safe_lock()  # of the code of entries
_learning = fork_safe_lock()


def _forked() -> None:
    for call in list(_calls):
        call.set(busy=0)  # a caller inside it does not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Method(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


_methods: dict[int, _Method] = {}


def _method(address: int) -> _Method:
    """Returns the PyMethodDef of a function in C, one for all threads, which is never freed: Python reads it in each call."""
    return _methods.setdefault(address, _Method(b"computation", address, FAST, None))


class NativeFunction:
    """A function for Python over a frame. `order`: the index in `made` of each result, None where it has no value; or just one, or nothing.

    slow     the function called instead where something does not fit
    watches  (address, value): words that must have these values, else `slow` is called
    version  the address of a word that is incremented after each call
    api      of the library whose arrays results are; NumPy's where it is None
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
        api: ExchangeAPI | None = None,
    ):
        functions = _functions()
        assert functions is not None
        self.kept: list[Any] = [code, pool, slow]  # owners of the words' targets
        self.open: list[tuple[int, ExprLike]] = []  # addresses of words, and what they hold for the lengths of a call
        self.words = np.zeros(len(FIELDS["call"]), np.int64)
        form = TUPLE if isinstance(order, Sequence) else NONE if order is None else SINGLE
        every = [-1 if k is None else k for k in order] if isinstance(order, Sequence) else []
        rows = self._spots([*given, *[s._replace(written=True) for s in made]])
        self.set(count=len(given), given=rows, made=rows + 8 * VALUE * len(given), results=len(made), form=form, **functions)
        for k, s in enumerate(made):
            if s.twin is not None:
                first = rows + 8 * VALUE * len(given)
                ctypes.c_int64.from_address(first + 8 * VALUE * k + FIELDS["value"]["twin"]).value = first + 8 * VALUE * s.twin
        self.set(twins=sum(s.twin is not None for s in made))
        sorts = [self._kept(range(n)) for n in (len(given), len(given) + len(made))]
        takes = form if form == SINGLE or (form == TUPLE and every == [*range(len(made))]) else NONE
        self.set(writes=sum(s.written for s in given), sorted=sorts[0], sortedout=sorts[1], takes=takes)
        self.set(scratch=self._kept([0] * (ctypes.sizeof(DLTensor) // 8 + 1)))
        self.types: list[type] = []
        if api is not None:
            kept = blocks(code, api)
            kept.serve(self)
            self.set(allocate=kept.allocate, blocks=kept.address, export=api.functions.export)
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

    @property
    def short(self) -> bool:
        """Whether the last lengths that came did not fit."""
        return bool(self.words[FIELDS["call"]["short"] // 8])

    def begin(self) -> bool:
        """Keeps calls away until `busy` is 0 again; false where one is at work."""
        words, busy = self.words, FIELDS["call"]["busy"] // 8
        if words[busy]:
            return False
        words[busy] = 1  # no other thread has run since the line above: Python lets others run at calls and at jumps back only
        return True

    def settle(self, brought: LengthsOfCalls) -> None:
        """Lets calls bring lengths. `open` says what its tables have to compute."""
        rows, frames, limits = ([int(n) for row in table for n in row] for table in brought)
        self.set(open=self._kept(rows), settled=self._kept(frames), limit=self._kept(limits), short=1)
        self.set(opens=len(brought.rows), settles=len(brought.frames), limits=len(brought.limits))

    def watch(self, watches: Sequence[tuple[int, int]]) -> None:
        """Replaces the watched words."""
        self.watches = np.array(watches, np.int64).reshape(-1, 2)
        self.set(watched=len(watches), watches=self.watches.ctypes.data)

    def learn(self, types: Iterable[type]) -> None:
        """Lets arrays of these types come the fast way, where their library has DLPack's C exchange API."""
        new = [t for t in types if t not in self.types and exchange_api(t) is not None]
        if new:
            with _learning:
                self.types = list(dict.fromkeys([*self.types, *new]))
                rows = [word for t in self.types for word in (id(t), exchange_api(t).functions.describe)]  # type: ignore[union-attr]  # each has one
                self.set(kinds=self._kept(rows))
                self.set(known=len(self.types))

    def _kept(self, numbers: Sequence[ExprLike]) -> int:
        """The address of these numbers; those that are not known yet are 0, and in `open`."""
        array = np.array([*[n if isinstance(n, int) else 0 for n in numbers], 0], np.int64)
        self.kept.append(array)
        at = int(array.ctypes.data)
        self.open += [(at + 8 * k, n) for k, n in enumerate(numbers) if not isinstance(n, int)]
        return at

    def _spots(self, spots: Sequence[Spot]) -> int:
        rows: list[ExprLike] = []
        for s in spots:
            self.kept.append(s.dtype)
            size, steps = s.dtype.itemsize, s.steps
            word = dtype_word(s.dtype)
            lengths, own = self._kept(s.lengths), self._kept(steps)
            turned = steps != s._replace(order=()).steps
            strides = self._kept([size * n for n in steps])
            dims = [s.lengths[d] for d in s.order or range(len(s.lengths))]
            wish = DLTensor(None, CPU, 0, len(dims), word, self._kept(dims), self._kept(Spot(tuple(dims), s.dtype, ()).steps), 0)
            self.kept.append(wish)
            row = {
                "rank": len(s.lengths),
                "dtype": id(s.dtype),
                "lengths": lengths,
                "places": len(s.words),
                "at": self._kept(s.words),
                "strides": strides,
                "code": word or -1,
                "ready": ALIGNED | (WRITEABLE if s.written else 0),
                "itemsize": size,
                "align": size - 1,
                "bytes": math.prod(s.lengths, start=size),
                "writes": int(s.written),
                "turned": strides if turned else 0,
                "steps": own,
                "wish": ctypes.addressof(wish),
            }
            rows += [row.get(name, 0) for name in FIELDS["value"]] + [0] * (VALUE - len(FIELDS["value"]))
        return self._kept(rows)


_code: list[Any] = []


def kept_blocks(api: ExchangeAPI, user: Any) -> tuple[int, int] | None:
    """Returns `source` of `ExchangeAPI.empty` for memory that is used again while `user` lives; None while the entry is not made."""
    if not _code or _code[0] is None:
        return None
    kept = blocks(_code[0], api)
    kept.serve(user)
    return kept.allocate, kept.address


def code(load: Callable[..., Any]) -> Any:
    """Returns the entry's code, made once; None where objects have another layout.

    `load` makes loaded code of the IR text that `text` returns for a target and this layout.
    """
    if not _code:
        with _making:
            if not _code:
                found = layout()
                there = found is not None and _functions() is not None
                _code.append(load(text, host(), found) if found is not None and there else None)
    return _code[0]
