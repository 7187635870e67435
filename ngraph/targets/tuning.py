"""Every number that decides how programs are planned and kernels are scheduled and written, and that no rule of the language fixes.

Each stands with its unit, what it bounds, and where it comes from:

    Rule        follows from how processors, LLVM or the arithmetic work
    Limit       bounds compile time, code size or memory, where more gains nothing
    Measured    by the command that stands with it
    Chosen      the best of a few on the workloads of bench/ratios.py, two cores of an AMD EPYC with AVX-512, on that day

The figures of tries that led to `Chosen` numbers were not kept, only their day and what they were tried on. `make sensitivity` halves and
doubles each number and says which plans and kernels change, and what that takes (docs/performance.md, bench/sensitivity.json). No result
depends on them beyond the order in which sums are added up, and that order depends on nothing else here than the numbers and the target.
"""

from __future__ import annotations

# ---- lengths

ASSUMED_LENGTH = 64
"""[places] Taken for an axis whose length is open. Limit: plans for open lengths are for the first calls; versions by lengths follow."""
MAX_ASSUMED_PARTS = 64
"""[parts] Of an open length that another one is, up to which it is assumed to be longer. Rule: networks halve pictures some six times."""

ASSUMED_BATCH = 4
"""[places] Taken for the first axis of an input that has another open one. Chosen: 2026-11-23, BERT over batches of 1 to 8 texts."""
ASSUMED_SPREAD = 4
"""[times] That lengths may be shorter than assumed, and yet there are work items for all cores. Rule: a batch of 4 may be of 1."""
MAX_MEAN_LENGTHS = 1 << 12
"""[lengths] Of a loop, over which the mean of what its remainders take is computed. Limit: time to plan; of more, they are a thousandth."""
MIN_SAMPLE_OPERATIONS = 1 << 21
"""[scalar operations] For each place of an input's first axis, from which on it is assumed to be such a batch. Chosen: 2026-11-30, networks
of 0.1 to 50 million, called with batches of 1 to 512 (docs/decisions/0388)."""

# ---- schedules of stages

SCATTERED_LANE_COST = 1.0
"""[vector instructions] Of each lane whose element lies apart from its neighbours. Rule: each is one load and one insertion."""
SCATTERED_STORE_COST = 3 * SCATTERED_LANE_COST
"""[vector instructions] Of each lane that is stored apart from its neighbours. Rule: as a store of one element, with its loop."""
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
MAX_CUT_ROWS = 2
"""[rows] Up to which an iteration of twice as many or more behind whole tiles takes fewer. Rule: each needs an address of its own."""
MAX_COLUMNS = 4
"""[vectors] Of a tile without rows. Rule: more hide no more latency, see SUMS_IN_FLIGHT."""
MAX_READ_STREAMS = 8
"""[streams] Of lines that one loop reads. Chosen: 2026-11-22, matrix times vector; prefetchers follow some sixteen."""
MIN_LOOP_BODY = 12
"""[instructions] Below which a loop is mostly overhead. Chosen: 2026-11-22, elementwise kernels of few instructions."""

# ---- costs of values

MAX_RECOMPUTED_COST = 5
"""[vector instructions] Above which a value is kept, not computed again. Chosen: 2026-11-20, elementwise chains between reductions."""
MIN_REREADS = 8
"""[times] That a value must be asked for again to be kept, however cheap. Chosen: 2026-11-20, products of matrices."""
NEGLIGIBLE_SIZE = 4096
"""[bytes or elements] That are not worth a thought. Limit: less than a launch takes."""
PRODUCT_COST = 0.7
"""[vector instructions] Of a product that is summed: half of them its own, half of its sum. Rule: operands are loaded beside it."""
MATRIX_PRODUCT_COST = 32.0
"""[vector instructions] Of one product of matrices in registers with 16 rows. Rule: it takes 16 cycles of two vector instructions each."""
MATRIX_LOAD_COST = 12.0
"""[vector instructions] To load such a register. Rule: 8 cycles, beside products as far as what is loaded lies in the second cache."""
MATRIX_COST = 100.0
"""[vector instructions] To configure registers of matrices and fill the first of them. Measured: 50 ns, Intel Sapphire Rapids."""
MATRIX_COLUMNS = 2
"""[registers] Of the factor with lanes, beside as many of the other one: a panel's. Limit: eight registers, four of them of sums."""
MIN_MATRIX_TERMS = 8
"""[terms, 4 bytes each] Of a sum for which registers of matrices pay. Limit: half of what an instruction takes."""
MIN_READS_FOR_MATRICES = 32
"""[reads] Of each element of a factor that is copied for registers of matrices. Rule: a copy costs a few vector instructions."""
MATRIX_SPEED = 4
"""[times] That registers of matrices are faster than vectors of pairs. Measured: 4 to 8 times, Intel Sapphire Rapids."""
MIN_MATRIX_LENGTH = 16
"""[places] Of an axis of the result that fills a register of matrices. Limit: its rows, and its lanes."""
MIN_MATRIX_ROWS = 4
"""[rows] Of sums, below which vectors read a factor once for all rows, too. Rule: loads of both factors then take the time."""

# ---- code of stages

MAX_UNROLLED_STEPS = 4
"""[steps] Of a sum that are written out. Limit: code size; the addresses of more do not get cheaper."""
MAX_SLIDING_TERMS = 256
"""[terms] Of the sums of a tile that are written out where a window slides along its rows. Limit: code size; 7 steps of 28 rows are 196."""
MIN_UNROLLED_SHARE = 0.001
"""[of the time of a plan] Of a kernel, for it to have more than one step of a sum written out. Limit: time to compile."""
MATRIX_ROWS_AT_ONCE = 4
"""[rows] Of sums in registers of matrices whose values are written out together. Rule: their chains hide each other's latency."""
MATRIX_ROWS_TRANSPOSED = 16
"""[rows] The same where vectors of them are transposed to be stored. Limit: a vector's lanes."""
SELDOM_SHARE = 4
"""[1 / part] Of a loop's places; tiles that compute no more than that write one step of their sums out. Limit: code size."""
WRITTEN_COST = 0.001
"""[of a tile's time] Of each value that a tile's code has, all sizes of tiles together. Rule: tiles that fill the vector units are equally
fast, and the shorter code is compiled sooner."""
MIN_FULL_SHARE = 0.01
"""[of the time of a plan] Of a kernel, below which each value of its code costs more, by as much as its share is lower. Limit: time to
compile."""
MIN_LOOPED_COST = 3
"""[vector instructions] Of what follows a sum, from which on a loop over the rows of a tile writes it once. Limit: code size."""
MIN_LOOPED_STEPS = 128
"""[steps] Of a sum, for that: the sums are stored and loaded again. Chosen: 2026-11-28, MobileNetV2, whose sums of 24 steps lose 8 %."""
MIN_LOOPED_STEPS_OF_OPEN = 24
"""[steps] The same where the number of rows is open. Limit: code size; tiles of three heights would each have it written out."""
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

MAX_STACK_BYTES = 32 << 10
"""[bytes] Of Locals that lie on the stack; more lie in the thread's scratch. Limit: threads of others may have small stacks."""
MAX_PEELED_AXES = 2
"""[axes] Whose shorter last block has code of its own. Limit: code size, which doubles with each."""
MAX_HOT_BLOCKS = 2
"""[blocks] Along an axis up to which the last one is written for speed. Limit: code size."""
MIN_WORK_ITEMS_TO_PREFETCH = 16
"""[work items] From which on what the next one reads is prefetched. Rule: fewer are over before memory answers."""

BOUNDED_PARTS = (4, 16)
"""[parts] Of an assumed length, up to which lengths have a schedule of their own. Limit: code size, a third of which is for each."""
MIN_BOUNDED_GAIN = 1.1
"""[times] That the schedule for longer lengths takes, for another one to be compiled. Rule: predictions are no better than a tenth."""
MIN_BOUNDED_SHARE = 0.05
"""[of the time of a plan] Of a kernel, for it to have schedules by lengths. Limit: time to compile."""

# ---- cores

PLANNED_CORES = 2
"""[cores] That every plan is made for. Rule: how many a machine has must not decide in which order a sum is added up."""

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
MAX_L3_BYTES_PER_CORE = 16 << 20
"""[bytes] Of the third cache that the system reports, for each of PLANNED_CORES; a virtual machine reports a socket's, which other machines
share. Measured: 26 GB/s up to 32 MiB on two cores, 11 from 64 MiB on, of 480 reported, virtual Xeon, 2026-11-27 (docs/decisions/0262)."""
USABLE_L3 = 0.5
"""[of the third cache] That a kernel may count on. Rule: other programs and cores share it."""

# ---- seconds of schedules
# Measured together: least squares of the logarithms of predicted over measured seconds, 633 different kernels of the peer benchmark, one
# thread of an AMD EPYC 9004 (Zen 4), 2026-11-23; `bench/measured.py` says how well they predict. In units of one vector instruction.

VECTOR_SPEED = 4.6e9
"""[vector instructions / second] Of one core. Measured: see above."""
LEVEL_BANDWIDTH = 220e9
"""[bytes / second] From one cache of a core to the next. Measured: see above."""
STORE_COST = 2.5
"""[vector instructions] Of a store beside arithmetic. Measured: see above; Zen 4 stores half a vector in a cycle."""
GATHERED_LANE_COST = 2.0
"""[vector instructions] Of each lane whose element lies apart from its neighbours, loaded; twice that stored. Measured: see above."""
SHUFFLE_COST = 0.4
"""[vector instructions] Of a shuffle beside loads. Measured: see above."""
PREDICATE_COST = 0.5
"""[vector instructions] Of a predicate of an access. Measured: see above."""
ITERATION_COST = 0.1
"""[vector instructions] Of an iteration of an innermost loop, beside its instructions. Measured: see above."""
LOOP_COST = 0.5
"""[vector instructions] Of entering and leaving a loop. Measured: see above; branches are predicted."""
WORK_ITEM_COST = 5.0
"""[vector instructions] Of beginning a work item. Measured: see above."""
CALL_COST = 3.0
"""[vector instructions] Of calling a kernel. Measured: see above."""
OVERLAPPED_PART = 0.3
"""[of the shorter] Of instructions and moving bytes, that the longer one does not hide. Measured: see above."""

# ---- costs of kernels

SERIAL_TRAFFIC_COST = 1.3
"""[times the traffic] Of a kernel that is a single work item. Rule: one core does not reach the bandwidth of all."""
MIN_VECTOR_LENGTH = 16
"""[places] Of an axis, below which it fills no vector. Rule: 16 floats are the vector of AVX-512."""
PREDICATED_READ_COST = 6
"""[times the work] Of a predicated read of what the same kernel computes. Rule: branches and partial vectors."""
MIN_ITEM_ELEMENTS = 2048
"""[elements] Of a work item, below which its own loops cost more than it shares out. Chosen: 2026-11-21, elementwise kernels."""
MAX_SPLIT_K = 16
"""[parts] Into which a reduction over work items is split. Chosen: 2026-11-21, totals and gradients of biases."""
MAX_SPLIT_K_TIME = 0.9
"""[of the time in one piece] Below which a reduction is split. Chosen: 2026-11-21: predictions are no better than a tenth."""
MIN_CONTIGUOUS_BLOCK = 64
"""[places] Of a contiguous axis that work items leave together. Rule: four vectors of a tile, four cache lines."""
MAX_BLOCK_SIZES = 1 << 14
"""[lengths] Of a block that are tried. Limit: an axis may be longer than there is time to count."""
MIN_TILE_ROWS = 8
"""[places] That a register tile wants of an axis beside the vectors. Rule: SUMS_IN_FLIGHT of them hide a latency."""
COST_ROUNDING = 1e-9
"""[of a cost] By which equal costs may differ. Rule: sums of floats in another order."""
MIN_ITEM_SECONDS = 2.5e-6
"""[seconds] Of a work item, enough to be worth a thread. Rule: LAUNCH_SECONDS, twice and a half."""
MAX_ITEM_SECONDS = 1e-4
"""[seconds] Of a work item, as much as should hang on one thread. Chosen: 2026-11-21, threads that others interrupt."""
GATHERED_READ_COST = 2
"""[vector instructions] Of a read at an index that is itself read: it is kept rather than repeated. Rule: two reads."""

# ---- fusion

MIN_RELATIVE_GAIN = 0.1
"""[of the smaller kernel's time] That a merge has to save, for it binds loops. Chosen: 2026-11-21."""
MAX_READERS_TRIED = 32
"""[kernels] Readers of one value that are tried together. Limit: time to plan, which grows with their square."""
MAX_GROUPS_BETWEEN = 1024
"""[kernels] Between two that are searched for a path. Limit: time to plan; beyond, a path is taken for granted."""
MAX_GROUPS_IN_CLOSURES = 1 << 13
"""[kernels] Whose predecessors and successors are listed. Limit: memory while planning, three bits for each pair, 24 MiB."""
MAX_KERNEL_NODES = 400
"""[nodes] Of one kernel. Limit: time to compile; beyond, nothing is gained."""
MAX_NODES_OF_MANY_PARTNERS = 128
"""[nodes] Of a kernel made of two that are both large. Limit: time to compile."""
MAX_NODES_OF_SMALL_PARTNER = 2
"""[nodes] Of the smaller of two kernels, up to which MAX_KERNEL_NODES holds. Limit: time to compile."""
MAX_CONTRACTIONS = 8
"""[sums of products] Of one kernel. Limit: code size; equal layers then have equal kernels, which are compiled once."""
MIN_KERNELS_TO_SHARE = 2
"""[kernels] That differ in numbers alone, from which on these are read from memory. Limit: time to compile."""
MAX_ORIGINS = 64
"""[ops] Of the user's that a kernel names. Limit: length of reports."""

# ---- rewrites of the tensor graph

PACKING_COST = 3.0
"""[vector instructions] For a value that is put into a group, written and read again. Rule: one of each."""
MAX_DOT_TIME = 0.9
"""[of the time of all products] Below which dot products are taken. Chosen: 2026-11-22, products of matrices."""
MIN_DOT_PRODUCTS = 1 << 16
"""[products] That are worth another form. Rule: some microseconds, as much as some launches."""
MIN_EXACT_TERMS = 64
"""[terms] Of a part of an integer sum in floats, below which the sums of parts take too long. Chosen: 2026-11-22."""
MAX_RANGE_STEPS = 6
"""[operations] Behind a value that its range is derived from. Limit: time to plan."""
MIN_UNPACKED_TERMS = 256
"""[terms] Of a sum, from which on an operand is read as it lies. Chosen: 2026-11-22, few rows times a matrix."""
OPEN_VECTORS = 0.9
"""[of all lanes] Of vectors along an axis of open length that have elements. Chosen: 2026-11-30, graphs of 20 to 1,000 nodes."""
MIN_PARAMETER_RATIO = 8
"""[times the smaller factor] That a product reads, from which on its other factor is taken for parameters. Chosen: 2026-11-22."""
MAX_REMADE_COST = 16
"""[vector instructions] Of a large value that is made again, reads included. Rule: as long as a line from memory takes."""
MAX_SMALL_RATIO = 8
"""[times] That a value is larger than one that counts as small beside it. Chosen: 2026-11-21, norms."""
MAX_EPILOGUE_STEPS = 6
"""[operations] Elementwise, from a sum to a result. Limit: time to plan; bias, norm and activation are four."""
MIN_VECTOR_PART = 4
"""[the part of a vector] That an axis fills for it to be wanted last. Rule: MIN_PARTIAL_LANES of sixteen."""
MAX_WIDENED_BYTES = 64 << 10
"""[bytes] Of constants of 8 bits that are kept as floats. Rule: they stay in the second cache."""
MAX_CLASSES_OF_REDUCTION = 16
"""[residue classes] Of one reduction. Limit: code size."""
MAX_UNROLLED_TERMS = 9
"""[terms] That are written out. Rule: a window of 3 x 3."""
MAX_CLASSES_OF_AXIS = 4
"""[residue classes] Along one axis. Rule: MAX_SHUFFLED_STEP; of more, elements lie too far apart."""
MAX_WINDOW = 5
"""[places] Along a window. Rule: the rounding error of the transforms, 2e-5 in float32."""
MIN_TILED_LENGTH = 6
"""[places] That an axis has to have to be cut into tiles. Chosen: 2026-11-22, convolutions of 7 x 7 pictures."""
TRANSFORM_COST = 6.0
"""[vector instructions] Of a value that is transformed along two axes, written and read again. Chosen: 2026-11-22."""
TRANSPOSE_COST = 22.0
"""[vector instructions] Of a value whose windows run on along its last dim, while tiles want another. Chosen: 2026-11-22, convolutions."""
MAX_WINOGRAD_TIME = 0.8
"""[of the time of all products] Below which fewer products are taken. Chosen: 2026-11-22: they cost some accuracy."""

# ---- packing, padding and places of buffers

MAX_ROW_GROWTH = 1.25
"""[times the memory] That rows of whole vectors may take. Limit: memory."""
ALIGNMENT = 64
"""[bytes] At which buffers and Locals begin. Rule: a cache line, the longest vector."""
MIN_STAGGERED_BYTES = 1 << 16
"""[bytes] Of values that loops walk side by side, from which on they begin apart. Rule: sixteen pages."""
STAGGER_BYTES = 9 * 64
"""[bytes] That such values begin apart in their pages. Rule: more than the lines that prefetchers bring at once."""
MIN_FAR_ROW_BYTES = 1024
"""[bytes] From row to row of an operand, from which on a packed copy is faster. Chosen: 2026-11-21, products of matrices."""
MIN_READS_TO_PACK = 16
"""[times] That an operand is read, from which on a copy in each call pays. Chosen: 2026-11-21, products of matrices."""
MIN_READS_TO_PACK_FAR_ROWS = 128
"""[times] That an operand of far rows is read, from which on a copy pays. Chosen: 2026-11-21, products of matrices."""
MAX_READS_UNPACKED = 64
"""[times] That an operand of a long sum is read, up to which it is read as it lies. Chosen: 2026-11-23, few rows times a matrix."""
MIN_TERMS_PER_READ = 12
"""[terms] Of such a sum for each of these times. Chosen: 2026-11-23, few rows times a matrix."""
CONFLICT_BYTES = 2048
"""[bytes] Rows a multiple of which apart fall into few sets of the first cache. Rule: half of the 4 KiB that its sets cover."""
SUM_BLOCK_VECTORS = 32
"""[vectors] Terms of a sum that a work item takes before it goes to the next tile. Chosen: 2026-11-29, gradients of weights; the rows of a
tile and a panel of two vectors stay in the first two caches."""
MIN_READS_TO_COPY_IN_ITEM = 64
"""[reads] Of each element by one work item, for each of which a copy is made where sums are in blocks. Chosen: 2026-11-29; a copy takes a
tenth of them."""
MIN_SUM_BLOCKS = 2
"""[blocks] Of a sum that is divided into them. Limit: one block is the whole sum."""
COPY_ITEMS_PER_CORE = 4
"""[work items] Of a copy, for each core. Rule: what wanted_items asks for."""
MAX_COPY_GROWTH = 4
"""[times its source] That a copy of overlapping windows may be large. Limit: memory."""
MAX_BORDER = 4
"""[places] Of a border at one end. Limit: memory; windows of nine."""
BORDERED_PART = 4
"""[the part of the third cache] That buffers whose borders last may take. Rule: beyond, memory that others use meanwhile is nearer."""
MIN_READS_TO_PAD = 16
"""[times] That a stage reads a buffer of others, from which on a copy with a border pays. Chosen: 2026-11-21, convolutions."""
MIN_READS_TO_SLIDE = 5
"""[times] The same of a sum over a window alone, whose vectors then slide. Chosen: 2026-11-28, depthwise convolutions; maxima lose 8 %."""
TOP_K_PART = 4
"""[the part of a row] Up to which its first places are searched, and it is not sorted. Chosen: 2026-11-22, top_k."""
BATCHED_TOP_K_PART = 8
"""[the part of a row] The same where places are sorted in batches. Chosen: 2026-11-28, top_k."""
MAX_TOP_K = 64
"""[places] Of a row up to which the best so far are kept in order; more are sorted in batches. Chosen: 2026-11-22, top_k."""

# ---- routines

SCAN_PIECE = 4096
"""[elements] Of a running sum that are added up before what came before is added. Rule: they stay in the first cache."""
MAX_SCAN_PIECES = 256
"""[pieces] Of a running sum. Limit: the second pass adds up all totals before a piece."""
MAX_INSERTION_SORT = 40
"""[elements] Up to which insertion is faster than counting digits. Chosen: 2026-11-22, sort."""
MIN_NETWORK_SORT = 8
"""[elements] From which on a row of a known length is sorted by a network of vectors, if it fits. Chosen: 2026-11-25, argsort."""
MAX_NETWORK_VECTORS = 16
"""[vectors of 64-bit words] Of a row that a network sorts. Limit: instructions grow with n log2(n)**2. Chosen: 2026-11-25, argsort."""
MAX_TOP_K_VECTORS = 4
"""[vectors of 64-bit words] Of a row that a network sorts where its first places alone are used. Chosen: 2026-11-28, top_k."""
RADIX_BITS = 8
"""[bits] Of a digit. Rule: the counts of 256 bins stay in the first cache."""
INSTRUCTIONS_PER_ELEMENT = 4
"""[instructions] Of a routine for each element that it reads or writes. Rule: a load, its address, a comparison or sum, a store."""
MAX_INTERLEAVED_BYTES = 1 << 17
"""[bytes] Of matrices that are factored side by side in vectors. Rule: they stay in the second cache."""
MAX_LU_COLUMNS = 8
"""[columns] Of LU factors that are found together, and the most lanes. Limit: the kernel's code grows with their square."""
UPDATED_COLUMNS = 4
"""[columns] From which multiples of others are subtracted together. Rule: sums that hide the latency of a fused multiply-add."""
RIGHT_HAND_VECTORS = 4
"""[vectors] Of right-hand sides of a triangular system in registers. Rule: sums that hide the latency of a fused multiply-add."""
MIN_ZERO_BYTES = 64
"""[bytes] Of the shortest table of zeros. Rule: a cache line."""
MAX_QUICK_SECONDS = 5e-5
"""[seconds] Predicted of a kernel that runs once and is compiled fast: it takes five times as long, less than LLVM saves. Chosen: ten
small models' first results."""

# ---- blocks of threads

MAX_BLOCK_THREADS = 256
"""[threads] Of a block. Rule: more would leave each of them too few of 64 Ki registers for a tile of sums and its operands."""
BLOCK_ELEMENTS = 1 << 10
"""[elements] Of a block of threads at least, where a kernel is not a product. Rule: 256 threads with a vector of 4 each."""
THREAD_ROWS = 4
"""[sums] Of a thread's tile along one axis. Rule: 8 reads from shared memory for 16 products."""
THREAD_COLUMNS = 4
"""[sums] Of a thread's tile along the contiguous axis. Rule: as `THREAD_ROWS`; 16 bytes of float32, one store."""
PRODUCT_BLOCK = 64
"""[elements] Of an axis of a product that a block of threads takes. Rule: 16 threads with 4 sums each."""
PRODUCT_DEPTH = 16
"""[elements] Of a sum for which tiles of the operands lie in shared memory. Rule: 256 threads copy 4 elements each."""
MAX_SHARED_DEPTH = 64
"""[elements] Of all reduced axes together in such a tile. Rule: a 3x3 window, seven channels of it."""
MAX_REGISTER_ELEMENTS = 16
"""[elements] Of a Local of which each thread has its own. Rule: a few of 255 registers."""
SHARED_ALIGNMENT = 128
"""[bytes] At which Locals in shared memory begin. Rule: a line, one place in each of 32 banks of 4 bytes."""
