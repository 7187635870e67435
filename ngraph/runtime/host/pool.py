"""Threads that run programs: their code, generated as IR text, and the one pool of this process.

A program is a table of instructions (`bytecode`) that `walk` runs in sequence without returning to Python. A kernel's work items
are divided into ranges. Each thread takes those of its own share first, then others' remaining ones, by a counter: so a thread that sleeps
or is preempted delays no other, and since no result depends on the thread of a range, neither do bits. Workers spin while a program runs
and for a moment after it, then sleep on a futex. One program at a time has the pool: another caller runs alone, on its own thread.

In a process whose main library has threads of OpenMP, these spin, too, and would take the processors from workers: a long program is run
by a team of theirs instead (`borrow`), and so is a short one that follows shortly after, while they still spin.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph.config import config
from ngraph.runtime.host import bytecode
from ngraph.runtime.host.locks import fork_safe_lock
from ngraph.targets import Cpu, host, read_text

MOST = 256  # threads
AWAKE = 1_000_000  # nanoseconds for which a team's threads spin after a program, at the least: GCC's OpenMP lets them pause 300,000 times

# offsets of fields, in bytes; fields that different threads write have cache lines of their own
FIELDS: dict[str, dict[str, int]] = {
    "pool": {"generation": 0, "finished": 64}
    | {name: 128 + 8 * k for k, name in enumerate("fn args items grain grains ways scratch stride".split())}
    | {"sleepers": 192, "lock": 256, "active": 320, "stop": 324}
    | {
        name: 328 + 8 * k
        for k, name in enumerate("spins workers syscall clock save restore signals back parallel number size lent used".split())
    }
    | {"slots": 512},
    "task": {"pool": 0, "frame": 8, "status": 16},
    "slot": {"taken": 0, "pool": 8, "me": 16},
    "frame": {name: 8 * k for name, k in bytecode.FRAME.items()},
    "rec": bytecode.FIELDS,
}

PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"),
}
SYSTEM = {"x86_64": {"futex": 202, "yield": 24}, "aarch64": {"futex": 98, "yield": 124}}

# In these texts `%x = get TYPE %frame.pc` loads a field, `put TYPE %x, %frame.pc` stores one, `%x = ref %frame.pc` is its address;
# %frame2 is a frame too. `get monotonic` and `put monotonic` are for fields that one thread may read while another writes them.
#
# Why the memory orderings suffice (tests/runtime/host/pool_model.py models these texts, searches all interleavings under the memory model
# of C++, and compares its operations with those of the texts):
# - The fields of a job are monotonic: a late worker may read some or all fields of the next job. The two fences then make it see that
#   every counter of its own job is closed, so it claims nothing; a worker in time has acquired the generation, stored after the fields.
# - `stop` is monotonic, because it is written before a sequentially consistent addition to the generation, which workers acquire first.
# - `generation` and `sleepers` are sequentially consistent: a worker adds itself to the sleepers and then compares the generation (in
#   the system call), a caller changes the generation and then reads the sleepers, and one of the two sees the other.
# - `finished` is added to with acquire and release, and acquired: the caller sees what kernels wrote. Its reset is monotonic, since the
#   generation is stored after it. The caller's own load of the generation is monotonic, since it holds the lock.
# - `lent` is monotonic where workers and a caller read it: a worker that acquired the generation of a team's job sees that it is lent, or
#   that the program has ended since, and then the counters are closed. The team's other threads acquire what the first one releases.
# - `active` is a hint; the store that closes a counter needs no ordering of its own, since the fence of the next job follows it.
WORK = """
define internal i32 @work(ptr %pool, i32 %g, i64 %me, ptr %frame) nounwind { ; runs ranges; returns 1 if the caller was interrupted
entry:
  %fn = get monotonic ptr %pool.fn
  %args = get monotonic ptr %pool.args
  %items = get monotonic i64 %pool.items
  %grain = get monotonic i64 %pool.grain
  %grains = get monotonic i64 %pool.grains
  %ways = get monotonic i64 %pool.ways
  %scratch = get monotonic ptr %pool.scratch
  %stride = get monotonic i64 %pool.stride
  %back = get monotonic i64 %pool.back
  fence acquire                                     ; the fields are read before the counters, whose tags tell whose job they are
  %rev = icmp eq i64 %back, 2
  %off = mul i64 %me, %stride
  %mine = getelementptr i8, ptr %scratch, i64 %off
  %slots = ref %pool.slots
  %tag = zext i32 %g to i64
  %in = icmp ult i64 %me, %ways
  %caller = icmp ne ptr %frame, null
  br i1 %in, label %share, label %out
share:                                            ; loops over the threads' shares of the ranges, beginning with its own
  %k = phi i64 [ 0, %entry ], [ %k1, %empty ]
  %done = phi i64 [ 0, %entry ], [ %d, %empty ]
  %v0 = add i64 %me, %k
  %v = urem i64 %v0, %ways
  %lo0 = mul i64 %v, %grains
  %lo = udiv i64 %lo0, %ways
  %hi0 = add i64 %lo0, %grains
  %hi = udiv i64 %hi0, %ways
  %slot0 = shl i64 %v, 6
  %slot = getelementptr i8, ptr %slots, i64 %slot0
  br label %claim
claim:                                            ; the counter carries the job's generation, so a late worker claims nothing
  %d = phi i64 [ %done, %share ], [ %d, %try ], [ %d1, %ran ], [ %d1, %looked ]
  %c = load atomic i64, ptr %slot acquire, align 8
  %ctag = lshr i64 %c, 32
  %same = icmp eq i64 %ctag, %tag
  br i1 %same, label %rest, label %report
rest:
  %n = and i64 %c, 4294967295
  %up = add i64 %lo, %n
  %some = icmp ult i64 %up, %hi
  %above = sub i64 %hi, %n
  %down = sub i64 %above, 1
  %at = select i1 %rev, i64 %down, i64 %up
  br i1 %some, label %try, label %empty
try:
  %c1 = add i64 %c, 1
  %pair = cmpxchg ptr %slot, i64 %c, i64 %c1 acq_rel acquire, align 8
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %take, label %claim
take:
  %first = mul i64 %at, %grain
  %last0 = add i64 %first, %grain
  %over = icmp ult i64 %last0, %items
  %last = select i1 %over, i64 %last0, i64 %items
  call void %fn(ptr %args, i64 %first, i64 %last, ptr %mine)
  br label %ran
ran:
  %d1 = add i64 %d, 1
  br i1 %caller, label %looked, label %claim
looked:
  %stopped = call i32 @look(ptr %pool, ptr %frame)
  %is = icmp eq i32 %stopped, 0
  br i1 %is, label %claim, label %abort
empty:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %ways
  br i1 %more, label %share, label %report
abort:                                            ; claims all remaining ranges without running them
  %j = phi i64 [ 0, %looked ], [ %j1, %abort ]
  %left = phi i64 [ %d1, %looked ], [ %left1, %abort ]
  %aslot0 = shl i64 %j, 6
  %aslot = getelementptr i8, ptr %slots, i64 %aslot0
  %tag32 = shl i64 %tag, 32
  %full = or i64 %tag32, 2147483647
  %old0 = atomicrmw xchg ptr %aslot, i64 %full acq_rel, align 8
  %old = and i64 %old0, 4294967295
  %alo0 = mul i64 %j, %grains
  %alo = udiv i64 %alo0, %ways
  %ahi0 = add i64 %alo0, %grains
  %ahi = udiv i64 %ahi0, %ways
  %size = sub i64 %ahi, %alo
  %rest0 = sub i64 %size, %old
  %any0 = icmp sgt i64 %rest0, 0
  %rest1 = select i1 %any0, i64 %rest0, i64 0
  %left1 = add i64 %left, %rest1
  %j1 = add i64 %j, 1
  %jmore = icmp ult i64 %j1, %ways
  br i1 %jmore, label %abort, label %report
report:
  %sum = phi i64 [ %d, %claim ], [ %d, %empty ], [ %left1, %abort ]
  %code = phi i32 [ 0, %claim ], [ 0, %empty ], [ 1, %abort ]
  %something = icmp ne i64 %sum, 0
  br i1 %something, label %add, label %end
add:
  %finished = ref %pool.finished
  %f = atomicrmw add ptr %finished, i64 %sum acq_rel, align 8
  br label %end
end:
  ret i32 %code
out:
  ret i32 0
}

define ptr @worker(ptr %slot) nounwind {               ; the main loop of a worker thread
entry:
  %pool = get ptr %slot.pool
  %me = get i64 %slot.me
  %gen = ref %pool.generation
  %sleepers = ref %pool.sleepers
  %active = ref %pool.active
  %spins = get i64 %pool.spins
  %g0 = load atomic i32, ptr %gen acquire, align 4
  %stopped = get monotonic i32 %pool.stop
  %late = icmp ne i32 %stopped, 0                     ; the pool was stopped before this worker started
  br i1 %late, label %end, label %wait
wait:
  %last = phi i32 [ %g0, %entry ], [ %last, %spin ], [ %last, %awake ], [ %g, %own ], [ %g, %go ]
  %n = phi i64 [ 0, %entry ], [ %n1, %spin ], [ 0, %awake ], [ 0, %own ], [ 0, %go ]
  %g = load atomic i32, ptr %gen acquire, align 4
  %new = icmp ne i32 %g, %last
  br i1 %new, label %check, label %spin
check:
  %stop = get monotonic i32 %pool.stop
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %end, label %own
own:                                              ; a thread of the team has this one's number, and its scratch
  %lent = get monotonic i64 %pool.lent
  %theirs = icmp ne i64 %lent, 0
  br i1 %theirs, label %wait, label %go
go:
  %w = call i32 @work(ptr %pool, i32 %g, i64 %me, ptr null)
  br label %wait
spin:
  PAUSE
  %n1 = add i64 %n, 1
  %a = load atomic i32, ptr %active monotonic, align 4
  %busy = icmp ne i32 %a, 0
  %longer = shl i64 %spins, 5
  %limit = select i1 %busy, i64 %longer, i64 %spins
  %more = icmp ult i64 %n1, %limit
  br i1 %more, label %wait, label %sleep
sleep:
  %s0 = atomicrmw add ptr %sleepers, i32 1 seq_cst, align 4
  %syscall = get ptr %pool.syscall
  %l64 = zext i32 %last to i64
  %r = call i64 (i64, ...) %syscall(i64 FUTEX, ptr %gen, i64 128, i64 %l64, i64 0, i64 0, i64 0)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst, align 4
  br label %wait
end:
  ret ptr null
}

define internal void @wake(ptr %pool) nounwind {       ; wakes sleeping workers, if there are any
entry:
  %sleepers = ref %pool.sleepers
  %s = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %s, 0
  br i1 %any, label %call, label %out
call:
  %gen = ref %pool.generation
  %syscall = get ptr %pool.syscall
  %r = call i64 (i64, ...) %syscall(i64 FUTEX, ptr %gen, i64 129, i64 1048576, i64 0, i64 0, i64 0)
  br label %out
out:
  ret void
}

define i32 @stop(ptr %pool) nounwind {                 ; tells workers to end; returns 0 if a program is running and they go on
entry:
  %lock = ref %pool.lock
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acq_rel monotonic, align 4
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %tell, label %out
tell:
  put monotonic i32 1, %pool.stop
  %gen = ref %pool.generation
  %g = atomicrmw add ptr %gen, i32 1 seq_cst, align 4
  call void @wake(ptr %pool)
  br label %out
out:
  %told = zext i1 %won to i32
  ret i32 %told
}

define void @stopped(ptr %pool) nounwind {             ; called when all workers have ended: accepts programs and new workers again
entry:
  put monotonic i32 0, %pool.stop
  %lock = ref %pool.lock
  store atomic i32 0, ptr %lock release, align 4
  ret void
}
"""

FORK = """
define internal i32 @fork(ptr %pool, ptr %frame, ptr %rec, i64 %ways) nounwind { ; runs a kernel on several threads; 1: interrupted
entry:
  %fn = get ptr %rec.fn
  %args = get ptr %rec.args
  %items = get i64 %rec.items
  %grain = get i64 %rec.grain
  %long = get i64 %rec.long
  %back = get i64 %rec.back
  %scratch = get ptr %frame.scratch
  %stride = get i64 %frame.stride
  %up0 = add i64 %items, %grain
  %up = sub i64 %up0, 1
  %grains = udiv i64 %up, %grain
  fence release                                     ; orders the closed counters before the fields: whoever reads a field sees them closed
  put monotonic ptr %fn, %pool.fn
  put monotonic ptr %args, %pool.args
  put monotonic i64 %items, %pool.items
  put monotonic i64 %grain, %pool.grain
  put monotonic i64 %grains, %pool.grains
  put monotonic i64 %ways, %pool.ways
  put monotonic ptr %scratch, %pool.scratch
  put monotonic i64 %stride, %pool.stride
  put monotonic i64 %back, %pool.back
  %finished = ref %pool.finished
  store atomic i64 0, ptr %finished monotonic, align 8
  %gen = ref %pool.generation
  %g = load atomic i32, ptr %gen monotonic, align 4
  %g1 = add i32 %g, 1
  %tag = zext i32 %g1 to i64
  %tag32 = shl i64 %tag, 32
  %slots = ref %pool.slots
  br label %deal
deal:
  %v = phi i64 [ 0, %entry ], [ %v1, %deal ]
  %slot0 = shl i64 %v, 6
  %slot = getelementptr i8, ptr %slots, i64 %slot0
  store atomic i64 %tag32, ptr %slot release, align 8
  %v1 = add i64 %v, 1
  %more = icmp ult i64 %v1, %ways
  br i1 %more, label %deal, label %go
go:
  %old = atomicrmw xchg ptr %gen, i32 %g1 seq_cst, align 4
  %is = icmp ne i64 %long, 0
  %lent = get monotonic i64 %pool.lent
  %own = icmp eq i64 %lent, 0
  %waits = and i1 %is, %own
  br i1 %waits, label %rouse, label %work
rouse:
  call void @wake(ptr %pool)
  br label %work
work:
  %watch = select i1 %is, ptr %frame, ptr null
  %code = call i32 @work(ptr %pool, i32 %g1, i64 0, ptr %watch)
  br label %join
join:
  %k = phi i64 [ 0, %work ], [ %k1, %pause ], [ %k1, %yield ]
  %f = load atomic i64, ptr %finished acquire, align 8
  %all = icmp eq i64 %f, %grains
  br i1 %all, label %shut, label %pause
pause:
  PAUSE
  %k1 = add i64 %k, 1
  %spins = get i64 %pool.spins
  %wait = icmp ult i64 %k1, %spins
  br i1 %wait, label %join, label %yield
yield:
  %syscall = get ptr %pool.syscall
  %y = call i64 (i64, ...) %syscall(i64 YIELD)
  br label %join
shut:                                             ; closes the counters, so that a late worker cannot claim ranges of the next job
  %u = phi i64 [ 0, %join ], [ %u1, %shut ]
  %shut0 = shl i64 %u, 6
  %shutslot = getelementptr i8, ptr %slots, i64 %shut0
  store atomic i64 -1, ptr %shutslot monotonic, align 8
  %u1 = add i64 %u, 1
  %umore = icmp ult i64 %u1, %ways
  br i1 %umore, label %shut, label %out
out:
  ret i32 %code
}

define internal i64 @clock(ptr %pool, ptr %frame) nounwind { ; returns the monotonic time in nanoseconds
entry:
  %clock = get ptr %pool.clock
  %spec = ref %frame.second
  %r = call i32 %clock(i32 1, ptr %spec)
  %s = get i64 %frame.second
  %n = get i64 %frame.nano
  %s9 = mul i64 %s, 1000000000
  %t = add i64 %s9, %n
  ret i64 %t
}

define internal i32 @look(ptr %pool, ptr %frame) nounwind { ; every 50 ms: runs Python's signal handlers; returns nonzero if one raised
entry:
  %quiet = get i64 %frame.quiet
  %deaf = icmp ne i64 %quiet, 0
  br i1 %deaf, label %no, label %hear
hear:
  %t = call i64 @clock(ptr %pool, ptr %frame)
  %last = get i64 %frame.looked
  %since = sub i64 %t, %last
  %late = icmp ugt i64 %since, 50000000
  br i1 %late, label %ask, label %no
ask:
  put i64 %t, %frame.looked
  %signals = get ptr %pool.signals
  %saved = get ptr %frame.saved
  %held = icmp eq ptr %saved, null
  br i1 %held, label %direct, label %take
direct:
  %r0 = call i32 %signals()
  ret i32 %r0
take:
  %restore = get ptr %pool.restore
  call void %restore(ptr %saved)
  %r1 = call i32 %signals()
  %save = get ptr %pool.save
  %again = call ptr %save()
  put ptr %again, %frame.saved
  ret i32 %r1
no:
  ret i32 0
}
"""

WALK = """
define internal i64 @walk(ptr %pool, ptr %frame) nounwind { ; runs instructions, starting at frame.pc
entry:
  %table = get ptr %frame.table
  %scratch = get ptr %frame.scratch
  %now = get i64 %frame.now
  %times = get ptr %frame.times
  %timed = icmp ne ptr %times, null
  br label %next
next:
  %count = get i64 %frame.count
  %count1 = add i64 %count, 1
  put i64 %count1, %frame.count
  %some64 = and i64 %count1, 63
  %due = icmp eq i64 %some64, 0
  br i1 %due, label %glance, label %fetch
glance:
  %stopped = call i32 @look(ptr %pool, ptr %frame)
  %stop = icmp ne i32 %stopped, 0
  br i1 %stop, label %cut, label %fetch
fetch:
  %pc = get i64 %frame.pc
  %at = shl i64 %pc, 6
  %rec = getelementptr i8, ptr %table, i64 %at
  %kind = get i64 %rec.kind
  %pc1 = add i64 %pc, 1
  %a = get i64 %rec.a
  %b = get i64 %rec.b
  %c = get i64 %rec.c
  %pa = inttoptr i64 %a to ptr
  switch i64 %kind, label %end [ i64 1, label %kernel
    i64 2, label %host
    i64 3, label %moves
    i64 4, label %jump
    i64 5, label %unless
    i64 6, label %loop
    i64 7, label %compute
    i64 8, label %copy ]
step:
  put i64 %pc1, %frame.pc
  br label %next
kernel:                                           ; calls fn(args, first, last, scratch) on up to `ways` threads, `grain` work items a call
  %back = get i64 %rec.back                       ; 0, or alternately 1 and 2; 2 runs the work items in reverse order
  %about = icmp ne i64 %back, 0
  br i1 %about, label %swap, label %way
swap:
  %other = sub i64 3, %back
  put i64 %other, %rec.back
  br label %way
way:
  br i1 %timed, label %start, label %kernel1
start:
  %t0 = call i64 @clock(ptr %pool, ptr %frame)
  br label %kernel1
kernel1:
  %t = phi i64 [ 0, %way ], [ %t0, %start ]
  %items = get i64 %rec.items
  %grain = get i64 %rec.grain
  %ways0 = get i64 %rec.ways
  %long = get i64 %rec.long
  %fn = get ptr %rec.fn
  %args = get ptr %rec.args
  %few = icmp slt i64 %ways0, %now
  %ways = select i1 %few, i64 %ways0, i64 %now
  %wide = icmp sgt i64 %ways, 1
  %several = icmp sgt i64 %items, %grain
  %both = and i1 %wide, %several
  br i1 %both, label %fork, label %alone
fork:
  %code = call i32 @fork(ptr %pool, ptr %frame, ptr %rec, i64 %ways)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %cut, label %ran
alone:
  %some = icmp sgt i64 %items, 0
  br i1 %some, label %alone1, label %ran
alone1:
  %rev = icmp eq i64 %back, 1
  br i1 %rev, label %backward, label %forward
backward:
  %bi = phi i64 [ %items, %alone1 ], [ %bj, %backward1 ]
  %bj0 = sub i64 %bi, %grain
  %bneg = icmp slt i64 %bj0, 0
  %bj = select i1 %bneg, i64 0, i64 %bj0
  call void %fn(ptr %args, i64 %bj, i64 %bi, ptr %scratch)
  %code2 = call i32 @look(ptr %pool, ptr %frame)
  %bad2 = icmp ne i32 %code2, 0
  br i1 %bad2, label %cut, label %backward1
backward1:
  %bleft = icmp sgt i64 %bj, 0
  br i1 %bleft, label %backward, label %ran
forward:
  %slow = icmp ne i64 %long, 0
  br i1 %slow, label %pieces, label %once
once:
  call void %fn(ptr %args, i64 0, i64 %items, ptr %scratch)
  br label %ran
pieces:
  %i = phi i64 [ 0, %forward ], [ %j, %pieces1 ]
  %j0 = add i64 %i, %grain
  %in = icmp slt i64 %j0, %items
  %j = select i1 %in, i64 %j0, i64 %items
  call void %fn(ptr %args, i64 %i, i64 %j, ptr %scratch)
  %code1 = call i32 @look(ptr %pool, ptr %frame)
  %bad1 = icmp ne i32 %code1, 0
  br i1 %bad1, label %cut, label %pieces1
pieces1:
  %left = icmp slt i64 %j, %items
  br i1 %left, label %pieces, label %ran
ran:
  br i1 %timed, label %stamp, label %step
stamp:
  %t1 = call i64 @clock(ptr %pool, ptr %frame)
  %dt = sub i64 %t1, %t
  %cell = getelementptr [4 x i64], ptr %times, i64 %pc
  %so = load i64, ptr %cell
  %far = add i64 %so, %dt
  store i64 %far, ptr %cell
  %often.at = getelementptr i64, ptr %cell, i64 1
  %often = load i64, ptr %often.at
  %oftener = add i64 %often, 1
  store i64 %oftener, ptr %often.at
  %from.at = getelementptr i64, ptr %cell, i64 2
  store i64 %t, ptr %from.at
  %till.at = getelementptr i64, ptr %cell, i64 3
  store i64 %t1, ptr %till.at
  br label %step
moves:                                            ; for each of the b triples at a: *first = *second + third
  %any = icmp sgt i64 %b, 0
  br i1 %any, label %moves1, label %step
moves1:
  %m = phi i64 [ 0, %moves ], [ %m1, %moves1 ]
  %triple = getelementptr [3 x i64], ptr %pa, i64 %m
  %to = load ptr, ptr %triple
  %second = getelementptr i64, ptr %triple, i64 1
  %from = load ptr, ptr %second
  %third = getelementptr i64, ptr %triple, i64 2
  %number = load i64, ptr %third
  %w0 = load i64, ptr %from
  %w1 = add i64 %w0, %number
  store i64 %w1, ptr %to
  %m1 = add i64 %m, 1
  %mmore = icmp slt i64 %m1, %b
  br i1 %mmore, label %moves1, label %step
jump:                                             ; continues at instruction a
  put i64 %a, %frame.pc
  br label %next
unless:                                           ; continues at instruction b if the byte that the word at a points to is 0
  %pbyte = load ptr, ptr %pa
  %byte = load i8, ptr %pbyte
  %zero = icmp eq i8 %byte, 0
  br i1 %zero, label %unless1, label %step
copy:
  %pfrom = getelementptr i64, ptr %pa, i64 1
  %psize = getelementptr i64, ptr %pa, i64 2
  %pto = load ptr, ptr %pa
  %pof = load ptr, ptr %pfrom
  %bytes = load i64, ptr %psize
  call void @copy(ptr %pto, ptr %pof, i64 %bytes)
  br label %step
compute:
  call void @compute(ptr %rec)
  br label %step
unless1:
  put i64 %b, %frame.pc
  br label %next
loop:                                             ; increments the word at a; continues at instruction c while it is below b
  %n0 = load i64, ptr %pa
  %n1 = add i64 %n0, 1
  store i64 %n1, ptr %pa
  %again = icmp slt i64 %n1, %b
  br i1 %again, label %loop1, label %step
loop1:
  put i64 %c, %frame.pc
  br label %next
host:                                             ; returns to Python, which resumes at the next instruction
  ret i64 1
end:
  ret i64 0
cut:
  ret i64 2
}

define internal void @compute(ptr %rec) nounwind noinline { ; *a = *b op *c; division rounds down, and division by 0 gives 0
entry:                                            ; a function of its own, so that `walk` needs fewer registers and short calls stay fast
  %pa = get ptr %rec.a
  %wb = get ptr %rec.b
  %wc = get ptr %rec.c
  %op = get i64 %rec.op
  %x = load i64, ptr %wb
  %y = load i64, ptr %wc
  switch i64 %op, label %out [ OPERATIONS ]
INTEGERS
plus:
  %nplus = add i64 %x, %y
  br label %computed
minus:
  %nminus = sub i64 %x, %y
  br label %computed
by:
  %nby = mul i64 %x, %y
  br label %computed
over:
  %none = icmp eq i64 %y, 0
  %safe = select i1 %none, i64 1, i64 %y
  %q0 = sdiv i64 %x, %safe
  %r0 = srem i64 %x, %safe
  %inexact = icmp ne i64 %r0, 0
  %signs = xor i64 %r0, %safe
  %apart = icmp slt i64 %signs, 0
  %low = and i1 %inexact, %apart
  %less = zext i1 %low to i64
  %q1 = sub i64 %q0, %less
  %add = select i1 %low, i64 %safe, i64 0
  %r1 = add i64 %r0, %add
  %quotient = icmp eq i64 %op, QUOTIENT
  %qr = select i1 %quotient, i64 %q1, i64 %r1
  %nover = select i1 %none, i64 0, i64 %qr
  br label %computed
least:
  %lt = icmp slt i64 %x, %y
  %nmin = select i1 %lt, i64 %x, i64 %y
  br label %computed
most:
  %gt = icmp sgt i64 %x, %y
  %nmax = select i1 %gt, i64 %x, i64 %y
  br label %computed
share:                                            ; `bytecode.at_once` of x items in y pieces, for rec.ways threads
  %sways = get i64 %rec.ways
  %sx = add i64 %x, %y
  %sx1 = sub i64 %sx, 1
  %swhole = sdiv i64 %sx1, %y
  %sone = icmp sgt i64 %swhole, 1
  %smost = select i1 %sone, i64 %swhole, i64 1
  %spart = sdiv i64 %smost, PIECES
  %snear = sub i64 %smost, NEAR
  %sfar = icmp sgt i64 %spart, %snear
  %sleast = select i1 %sfar, i64 %spart, i64 %snear
  %sany = icmp sgt i64 %x, 1
  %sitems = select i1 %sany, i64 %x, i64 1
  %stwice = shl i64 %sitems, 1
  %sround = sub i64 %sways, 1
  br label %share1
share1:
  %size = phi i64 [ %smost, %share ], [ %size1, %share1 ]
  %ssize = phi i64 [ %smost, %share ], [ %ssize1, %share1 ]
  %skey = phi i64 [ 9223372036854775807, %share ], [ %skey1, %share1 ]
  %su = add i64 %x, %size
  %su1 = sub i64 %su, 1
  %sranges = sdiv i64 %su1, %size
  %sr = add i64 %sranges, %sround
  %srounds = sdiv i64 %sr, %sways
  %seach = mul i64 %srounds, %size
  %sh = mul i64 %seach, 200
  %sh1 = add i64 %sh, %x
  %shundredths = sdiv i64 %sh1, %stwice
  %sless = icmp slt i64 %shundredths, %skey
  %skey1 = select i1 %sless, i64 %shundredths, i64 %skey
  %ssize1 = select i1 %sless, i64 %size, i64 %ssize
  %size1 = sub i64 %size, 1
  %smore = icmp sgt i64 %size1, %sleast
  br i1 %smore, label %share1, label %share2
share2:
  br label %computed
computed:
  %result = phi i64 READ, [ %nplus, %plus ], [ %nminus, %minus ], [ %nby, %by ],
    [ %nover, %over ], [ %nmin, %least ], [ %nmax, %most ], [ %ssize1, %share2 ]
  store i64 %result, ptr %pa
  br label %out
out:
  ret void
}

define void @member(ptr %task) nounwind {              ; what a team's threads do: the first one runs the program, the others its ranges
entry:
  %pool = get ptr %task.pool
  %lent = ref %pool.lent
  %number = get ptr %pool.number
  %me32 = call i32 %number()
  %me = zext i32 %me32 to i64
  %first = icmp eq i32 %me32, 0
  br i1 %first, label %program, label %help
program:
  %frame = get ptr %task.frame
  %status = call i64 @walk(ptr %pool, ptr %frame)
  put i64 %status, %task.status
  store atomic i64 0, ptr %lent release, align 8
  ret void
help:
  %gen = ref %pool.generation
  %g0 = load atomic i32, ptr %gen acquire, align 4
  br label %go
go:                                               ; at once, too: the first job may have been announced before
  %job = phi i32 [ %g0, %help ], [ %g, %wait ]
  %w = call i32 @work(ptr %pool, i32 %job, i64 %me, ptr null)
  br label %wait
wait:
  %g = load atomic i32, ptr %gen acquire, align 4
  %new = icmp ne i32 %g, %job
  br i1 %new, label %go, label %spin
spin:
  PAUSE
  %l = load atomic i64, ptr %lent acquire, align 8
  %on = icmp ne i64 %l, 0
  br i1 %on, label %wait, label %end
end:
  ret void
}

define i64 @run(ptr %pool, ptr %frame) nounwind {      ; called with the GIL held; releases it if frame.release says so
entry:
  %asked = get i64 %frame.threads
  %clocked = call i64 @clock(ptr %pool, ptr %frame)
  put i64 %clocked, %frame.looked
  %release = get i64 %frame.release
  %free = icmp ne i64 %release, 0
  br i1 %free, label %let, label %pooled
let:
  %save = get ptr %pool.save
  %saved = call ptr %save()
  put ptr %saved, %frame.saved
  br label %pooled
pooled:
  put i64 1, %frame.now
  %wide = icmp sgt i64 %asked, 1
  br i1 %wide, label %try, label %alone
try:
  %lock = ref %pool.lock
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acq_rel monotonic, align 4
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %mine, label %alone
mine:
  put i64 %asked, %frame.now
  %parallel = get ptr %pool.parallel
  %size = get i64 %pool.size
  %team = get i64 %frame.team
  %fits = icmp eq i64 %asked, %size               ; 0 where nothing is borrowed
  %large = icmp ne i64 %team, 0
  %used = get i64 %pool.used
  %since = sub i64 %clocked, %used
  %awake = icmp ult i64 %since, AWAKE             ; a team's threads still spin, and would delay the pool's workers
  %wanted = or i1 %large, %awake
  %both = and i1 %fits, %wanted
  br i1 %both, label %lend, label %workers
lend:
  %task = alloca [3 x i64], align 8
  put ptr %pool, %task.pool
  put ptr %frame, %task.frame
  %asked32 = trunc i64 %asked to i32
  put monotonic i64 1, %pool.lent
  call void %parallel(ptr @member, ptr %task, i32 %asked32, i32 0)
  %s3 = get i64 %task.status
  %over = call i64 @clock(ptr %pool, ptr %frame)
  put i64 %over, %pool.used
  br label %unlock
workers:
  %active = ref %pool.active
  store atomic i32 1, ptr %active seq_cst, align 4
  call void @wake(ptr %pool)
  %s1 = call i64 @walk(ptr %pool, ptr %frame)
  store atomic i32 0, ptr %active monotonic, align 4
  br label %unlock
unlock:
  %s4 = phi i64 [ %s3, %lend ], [ %s1, %workers ]
  store atomic i32 0, ptr %lock release, align 4
  br label %done
alone:
  %s2 = call i64 @walk(ptr %pool, ptr %frame)
  br label %done
done:
  %status = phi i64 [ %s4, %unlock ], [ %s2, %alone ]
  br i1 %free, label %take, label %out
take:
  %own = get ptr %frame.saved
  %restore = get ptr %pool.restore
  call void %restore(ptr %own)
  put ptr null, %frame.saved
  br label %out
out:
  ret i64 %status
}

define void @pauses(i64 %n) nounwind {                 ; measures the duration of a pause
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  PAUSE
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %again, label %out
out:
  ret void
}
"""


COPY = """
define internal void @copy(ptr %to, ptr %from, i64 %size) nounwind noinline {
entry:
  br label %wide
wide:
  %i = phi i64 [ 0, %entry ], [ %i1, %wide1 ]
  %i1 = add i64 %i, 64
  %in = icmp sle i64 %i1, %size
  br i1 %in, label %wide1, label %rest
wide1:
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
  %v = load <64 x i8>, ptr %p, align 1
  store <64 x i8> %v, ptr %q, align 1
  br label %wide
rest:
  %j = phi i64 [ %i, %wide ], [ %j1, %rest1 ]
  %some = icmp slt i64 %j, %size
  br i1 %some, label %rest1, label %out
rest1:
  %pj = getelementptr i8, ptr %from, i64 %j
  %qj = getelementptr i8, ptr %to, i64 %j
  %b = load i8, ptr %pj
  store i8 %b, ptr %qj
  %j1 = add i64 %j, 1
  br label %rest
out:
  ret void
}
"""


def expanded(text: str, target: Cpu) -> str:
    """Returns IR with field accesses and the machine's names expanded."""
    machine = target.triple.split("-")[0]
    declared, pause = PAUSE[machine]

    def address(name: str, field: str) -> str:
        return f"getelementptr i8, ptr %{name}, i64 {FIELDS[name.rstrip('0123456789')][field]}"

    text = re.sub(r"(%\w+) = ref %(\w+)\.(\w+)", lambda m: f"{m[1]} = {address(m[2], m[3])}", text)

    def access(order: str | None, type: str) -> tuple[str, str]:
        return (" atomic", f" {order.strip()}, align {4 if type == 'i32' else 8}") if order else ("", "")

    def get(m: re.Match[str]) -> str:
        atomic, order = access(m[2], m[3])
        return f"{m[1]}.at = {address(m[4], m[5])}\n  {m[1]} = load{atomic} {m[3]}, ptr {m[1]}.at{order}"

    count = iter(range(1 << 20))

    def put(m: re.Match[str]) -> str:
        atomic, order = access(m[1], m[2])
        at = f"%to.{next(count)}"
        return f"{at} = {address(m[4], m[5])}\n  store{atomic} {m[2]} {m[3]}, ptr {at}{order}"

    text = re.sub(r"(%\w+) = get (monotonic )?(\w+) %(\w+)\.(\w+)", get, text)
    text = re.sub(r"put (monotonic )?(\w+) (\S+), %(\w+)\.(\w+)", put, text)
    tuned = {"pieces": bytecode.PIECES, "near": bytecode.NEAR, "awake": AWAKE}
    numbers = {word.upper(): str(n) for word, n in {**SYSTEM[machine], **tuned}.items()}
    text = re.sub(rf"\b({'|'.join(numbers)})\b", lambda m: numbers[m[1]], text)
    return f'target triple = "{target.triple}"\n{text.replace("PAUSE", pause)}\n{declared}\n'


LABELS = {"+": "plus", "-": "minus", "*": "by", "//": "over", "%": "over", "min": "least", "max": "most", "at once": "share"}


def operations(text: str) -> str:
    """Returns the text with the cases of `bytecode.OPERATIONS` in it, those that read an integer of memory written out."""
    reads = []
    for name in bytecode.INTEGERS:
        bits = int(name.lstrip("uint"))
        extend = f"{'zext' if name[0] == 'u' else 'sext'} i{bits} %{name}.own to i64" if bits < 64 else f"add i64 %{name}.own, 0"
        load = f"  %{name}.at = inttoptr i64 %x to ptr\n  %{name}.own = load i{bits}, ptr %{name}.at\n"
        reads.append(f"{name}:\n{load}  %n{name} = {extend}\n  br label %computed")
    cases = [f"i64 {k}, label %{LABELS.get(name, name)}" for k, name in enumerate(bytecode.OPERATIONS)]
    words = {"OPERATIONS": "\n    ".join(cases), "INTEGERS": "\n".join(reads), "QUOTIENT": str(bytecode.OPERATIONS.index("//"))}
    words["READ"] = ", ".join([f"[ %n{name}, %{name} ]" for name in bytecode.INTEGERS])
    return re.sub(rf"\b({'|'.join(words)})\b", lambda m: words[m[1]], text)


def text(target: Cpu) -> str:
    """Returns the module with the functions `run`, `worker`, `member`, `stop`, `pauses`."""
    return expanded(WORK + FORK + operations(WALK) + COPY, target)


# ---- number of threads ------------------------------------------------------------------------------------------------


def cores(root: str = "/") -> int:
    """Returns the number of processors that this process may use: by affinity and by its control groups' limits, both versions."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    here = len(allowed(0)) if allowed else os.cpu_count() or 1
    return max(1, min([here, *(int(limit) for limit in _limits(root))]))


def _limits(root: str) -> list[float]:
    """Returns the processors that control groups grant, this process's own group and enclosing ones."""
    found = []
    for line in read_text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "cpu" not in kinds.split(","):
            continue
        mounts = [f"sys/fs/cgroup/{m}" for m in dict.fromkeys((kinds, "cpu", "cpu,cpuacct"))] if kinds else ["sys/fs/cgroup"]
        for mount in mounts:
            parts = [p for p in path.split("/") if p and p != ".."]
            for k in range(len(parts) + 1):
                folder = os.path.join(root, mount, *parts[:k])
                pair = read_text(os.path.join(folder, "cpu.max")).split()
                if not pair:
                    pair = [read_text(os.path.join(folder, f"cpu.cfs_{what}_us")).strip() for what in ("quota", "period")]
                if len(pair) == 2 and all(p.isdigit() and int(p) for p in pair):
                    found.append(int(pair[0]) / int(pair[1]))
    return found


def threads() -> int:
    """Returns the number of threads that a program may run on: NGRAPH_NUM_THREADS, else all processors of this process."""
    return max(1, min(config.num_threads or _cores(), MOST))


_cores_found: list[int] = []


def _cores() -> int:
    if not _cores_found:
        _cores_found.append(cores())
    return _cores_found[0]


# ---- the pool -------------------------------------------------------------------------------------------------------

IDLE = 200e-6  # seconds that a worker spins after a program; within one, 32 times as long


class Pool:
    """The worker threads of this process, started on first use. `address` is the pool argument of `run`."""

    def __init__(self, code: Any):
        self.code = code
        for kept in (self, code):  # never freed: threads run this code until the process ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        self.memory, self.address = aligned(FIELDS["pool"]["slots"] + 64 * MOST)
        self.clear()
        self.run: Callable[[int, int], int] = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address("run"))
        self._stop = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(code.address("stop"))
        self._stopped = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("stopped"))
        self.starting = threading.Lock()
        self.started: list[ctypes.c_ulong] = []
        libc = ctypes.CDLL(None)
        self.put("syscall", address_of(libc.syscall))
        self.put("clock", address_of(libc.clock_gettime))
        for field, name in (("save", "PyEval_SaveThread"), ("restore", "PyEval_RestoreThread"), ("signals", "PyErr_CheckSignals")):
            self.put(field, address_of(getattr(ctypes.pythonapi, name)))
        self.put("spins", self._spins())
        self.borrow(*_lender)

    def borrow(self, parallel: int = 0, number: int = 0, size: int = 0) -> None:
        """See the function `borrow`. Without arguments, all programs run on the pool's own workers again."""
        self.put("size", 0)  # a program that begins meanwhile takes no team
        self.put("parallel", parallel)
        self.put("number", number)
        self.put("size", size)

    def clear(self) -> None:
        """Zeroes the memory and closes all counters, so that no counter carries the tag of a job, not even one that no kernel has used."""
        self.memory[:] = 0
        self.memory[FIELDS["pool"]["slots"] :].view(np.int64)[::8] = -1

    def word(self, field: str) -> Any:
        return ctypes.c_int64.from_address(self.address + FIELDS["pool"][field])

    def put(self, field: str, value: int) -> None:
        self.word(field).value = value

    def _spins(self) -> int:
        """Returns the number of pauses in the time for which a worker spins."""
        pauses = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.code.address("pauses"))
        best = min(_timed(lambda: pauses(1000)) for _ in range(5))
        return max(100, int(IDLE / (best / 1000)))

    def ensure(self, count: int) -> int:
        """Starts workers until there are `count` threads including the caller's; returns the number that there are."""
        if len(self.started) + 1 < count and sys.platform == "linux":
            with self.starting:
                create = ctypes.CDLL(None).pthread_create
                before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for Python's own threads
                try:
                    while len(self.started) + 1 < min(count, MOST):
                        me = len(self.started) + 1
                        slot = self.address + FIELDS["pool"]["slots"] + 64 * me
                        ctypes.c_int64.from_address(slot + FIELDS["slot"]["pool"]).value = self.address
                        ctypes.c_int64.from_address(slot + FIELDS["slot"]["me"]).value = me
                        thread = ctypes.c_ulong()
                        if create(ctypes.byref(thread), None, ctypes.c_void_p(self.code.address("worker")), ctypes.c_void_p(slot)):
                            break  # the system refuses more threads; the program runs on fewer
                        self.started.append(thread)
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return min(count, len(self.started) + 1)

    def stop(self) -> None:
        """Ends the workers, unless a program is running."""
        with self.starting:
            if self.started and self._stop(self.address):
                join = ctypes.CDLL(None).pthread_join
                while self.started:
                    join(self.started.pop(), None)
                self._stopped(self.address)

    def forked(self) -> None:
        """Resets the pool in a forked child process, which has no workers and runs no program."""
        spins = self.word("spins").value
        kept = {f: self.word(f).value for f in ("syscall", "clock", "save", "restore", "signals")}
        self.clear()
        for field, value in kept.items():
            self.put(field, value)
        self.put("spins", spins)
        self.started, self.starting = [], threading.Lock()
        _cores_found.clear()


def aligned(size: int, alignment: int = 64) -> tuple[np.ndarray, int]:
    """Returns zeroed memory of `size` bytes and its address, a multiple of `alignment`."""
    raw = np.zeros(size + alignment, np.uint8)
    off = -raw.ctypes.data % alignment
    return raw[off : off + size], raw.ctypes.data + off


def address_of(function: Any) -> int:
    """Returns the address of a function of a library."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


def _timed(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


_pool: Pool | None = None
_making = fork_safe_lock()


def pool(load: Callable[..., Any]) -> Pool:
    """Returns the pool of this process; `load`, which compiles and loads the IR text of `text` for a target, is called once."""
    global _pool
    if _pool is None:
        with _making:
            if _pool is None:
                _pool = Pool(load(text, host()))
                atexit.register(_pool.stop)
    return _pool


def made() -> bool:
    """Whether this process has its pool."""
    return _pool is not None


_lender: tuple[int, ...] = ()
_may_borrow = True


def borrow(parallel: int, number: int, size: int) -> None:
    """Lets long programs run on the threads of another library, which would otherwise spin beside the pool's own and take their processors.

    parallel  the address of a function that calls another one once on each of so many threads, and then returns, as GCC's OpenMP has it
              (`GOMP_parallel(function, data, threads, flags)`, libgomp.h)
    number    the address of a function that returns the number of a thread among these, the caller's being 0 (`omp_get_thread_num`)
    size      how many threads the library uses itself: for programs on other numbers it would make and end threads in each call

    In a child process this does nothing, since the library's threads are not there.
    """
    global _lender
    if _may_borrow and _lender != (parallel, number, size):
        _lender = (parallel, number, size)
        if _pool is not None:
            _pool.borrow(*_lender)


def _forked() -> None:
    global _lender, _may_borrow
    _lender, _may_borrow = (), False
    if _pool is not None:
        _pool.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
