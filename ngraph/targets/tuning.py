"""Every number that decides how programs are planned and kernels are scheduled and written, and that no rule of the language fixes.

Each stands with its unit, what it bounds, and where it comes from:

    Rule        follows from how processors, LLVM or the arithmetic work
    Limit       bounds compile time, code size or memory, where more gains nothing
    Chosen      the best of a few on the workloads of bench/ratios.py, two cores of an AMD EPYC with AVX-512, on that day

`make sensitivity` halves and doubles each one and says which plans and kernels change. No result depends on them beyond the order in
which sums are added up, and that order depends on nothing else here than the numbers and the target.
"""

from __future__ import annotations

# ---- lengths

ASSUMED_LENGTH = 64
"""[places] Taken for an axis whose length is open. Limit: plans for open lengths are for the first calls; versions by lengths follow."""

# ---- schedules of stages

SCATTERED_LANE_COST = 1.0
"""[vector instructions] Of each lane whose element lies apart from its neighbours. Rule: each is one load and one insertion."""
LOAD_COST = 0.35
"""[vector instructions] Of a load beside arithmetic. Rule: two or three loads begin while one multiply-add does."""
BROADCAST_RELATIVE_COST = 0.5
"""[of a load] Of one element that goes to all lanes. Rule: it costs no cache bandwidth."""
MAX_SHUFFLED_STEP = 4
"""[elements] Step between lanes up to which whole vectors are loaded and shuffled. Rule: step k takes k loads and 2k - 1 shuffles."""
SUMS_IN_FLIGHT = 8
"""[accumulators] That hide the latency of an addition. Rule: four cycles, two begin in each."""
SPARE_REGISTERS = 4
"""[registers] That a tile of accumulators leaves free, half of them beside its columns. Rule: operands and the next operand."""
MAX_COLUMNS = 4
"""[vectors] Of a tile without rows. Rule: more hide no more latency, see SUMS_IN_FLIGHT."""
MAX_READ_STREAMS = 8
"""[streams] Of lines that one loop reads. Chosen: 2026-11-22, matrix times vector; prefetchers follow some sixteen."""
MIN_LOOP_BODY = 12
"""[instructions] Below which a loop is mostly overhead. Chosen: 2026-11-22, elementwise kernels of few instructions."""

# ---- costs of values

EXPENSIVE = 5
"""[vector instructions] Above which a value is kept, not computed again. Chosen: 2026-11-20, elementwise chains between reductions."""
REREAD = 8
"""[times] That a value must be asked for again to be kept, however cheap. Chosen: 2026-11-20, products of matrices."""
SMALL = 4096
"""[bytes or elements] That are not worth a thought. Limit: less than a launch takes."""
PRODUCT = 0.7
"""[vector instructions] Of a product that is summed: half of them its own, half of its sum. Rule: operands are loaded beside it."""

# ---- code of stages

MAX_UNROLLED_STEPS = 4
"""[steps] Of a sum that are written out. Limit: code size; the addresses of more do not get cheaper."""
INTERLEAVED_PLACES = 4
"""[places of a tile] Whose chains of instructions are written beside each other. Chosen: 2026-11-21, chains of exp and tanh."""
MIN_INTERLEAVED_COST = 5
"""[vector instructions] Of a line from which on chains are interleaved. Rule: shorter ones are reordered by the processor."""
PAGE_BYTES = 4096
"""[bytes] Of a page, at whose end prefetchers stop, and after which lines compete for one set of the L1 cache. Rule: pages have 4 KiB."""
MIN_INSTRUCTIONS_PER_LINE = 12
"""[vector instructions] Per line from memory, from which on pages are prefetched. Chosen: 2026-11-22, chains over 64 MB."""
MIN_STEPS_TO_PREFETCH = 32
"""[steps] Of a sum, from which on its epilogue's operands are prefetched. Chosen: 2026-11-22, short sums."""
PREFETCH_ROUNDS = 4
"""[rounds] Over the rows of a tile, before the end of a sum, at which prefetching begins. Chosen: 2026-11-21."""
MIN_PARTIAL_LANES = 4
"""[lanes] Of the shortest part of a vector. Rule: LLVM's masked loads of fewer elements are scalar."""
SPILLED_UNROLL = 2
"""[steps] With which LLVM keeps the sums of a large tile in memory; not taken. Rule of LLVM 20, seen in its assembly."""
MAX_LISTED_OFFSETS = 1 << 14
"""[steps] Whose offsets a kernel lists. Limit: 128 KiB of constants for each operand."""

# ---- memory and versions of a kernel

STACK_BYTES = 32 << 10
"""[bytes] Of Locals that lie on the stack; more lie in the thread's scratch. Limit: threads of others may have small stacks."""
MAX_PEELED_AXES = 2
"""[axes] Whose shorter last block has code of its own. Limit: code size, which doubles with each."""
HOT_BLOCKS = 2
"""[blocks] Along an axis up to which the last one is written for speed. Limit: code size."""
MIN_WORK_ITEMS_TO_PREFETCH = 16
"""[work items] From which on what the next one reads is prefetched. Rule: fewer are over before memory answers."""

# ---- cores

PLANNED_CORES = 2
"""[cores] That every plan is made for. Rule: how many a machine has must not decide in which order a sum is added up."""
MIN_SHARED_ROWS = 8
"""[places] Of a block that more cores share out, along an axis that is contiguous nowhere. Rule: a register tile wants rows."""
MIN_SHARED_PANEL = 64
"""[places] Of a block that more cores share out, along a contiguous axis. Rule: whole vectors, and cache lines of one core each."""

# ---- rates of a machine, where a description does not say more

MEMORY_BANDWIDTH = 18e9
"""[bytes / second] Of main memory, all cores together. Rule: half of what two cores of a server measure; only ratios matter."""
CACHE_BANDWIDTH = 60e9
"""[bytes / second] Of the caches of one core. Rule: a load of 64 bytes in about three cycles."""
LANE_SPEED = 2.5e9
"""[operations / second] Elementwise, of 32 bits of a vector. Rule: about one vector instruction in each cycle."""
LAUNCH_SECONDS = 1e-6
"""[seconds] That a kernel takes to begin and to end on all threads. Rule: a round trip of a cache line between cores, with spread."""
USABLE_L1 = 0.75
"""[of the first cache] That a kernel may count on. Rule: the stack, and lines that prefetchers bring, take the rest."""
USABLE_L2 = 600 / 1024
"""[of the second cache] That a kernel may count on. Chosen: 2026-11-21, products of matrices."""
USABLE_L3 = 0.5
"""[of the third cache] That a kernel may count on. Rule: other programs and cores share it."""
