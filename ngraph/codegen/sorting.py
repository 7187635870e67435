"""Sorting of one row: keys become whole numbers in the same order, then digits of eight bits are sorted, the lowest first.

That is stable, takes time linear in the length and never compares. Rows of a known length that fits a few vectors go through a bitonic
network instead (K. Batcher, "Sorting networks and their applications", 1968); others of a few elements are sorted by insertion. Keys of up
to 32 bits stand in one word with the place that they come from, wider ones beside it: no two elements are equal, so every way is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ngraph.codegen.forms import Whole, plus, register, times
from ngraph.codegen.lanes import interleaved, leading
from ngraph.codegen.number import Number
from ngraph.codegen.text import IRValue, IRWriter, constant, silent, vector
from ngraph.op_graph import dtypes
from ngraph.op_graph.dtypes import DType
from ngraph.targets.tuning import MAX_INSERTION_SORT, MAX_NETWORK_VECTORS, MAX_TOP_K, MAX_TOP_K_VECTORS, MIN_NETWORK_SORT, RADIX_BITS

BINS = 1 << RADIX_BITS
WORD = 8  # bytes
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def room(dtype: DType) -> tuple[int, int]:
    """Bytes of scratch that a row takes: for each element, and for all."""
    words = 1 + (dtype.bits > 32)
    return 2 * words * WORD, (BINS * (dtype.bits // RADIX_BITS) + 2 * words) * WORD


class Ordering(NamedTuple):
    """The order of elements: NaN stands last either way, or counts as the largest."""

    descending: bool
    nan_largest: bool = False


def ordinal(x: Number, ordering: Ordering) -> Number:
    """An unsigned number for each element, in the order of elements: zeros are equal, and so are all NaN."""
    dtype = x.v.dtype
    if dtype.kind == "bool":
        order = x.convert("zext", dtypes.uint8)
    elif dtype.kind == "uint":
        order = x
    elif dtype.kind == "int":
        order = x.unsigned() ^ (1 << (dtype.bits - 1))
    else:
        sign = 1 << (dtype.bits - 1)
        bits = x.convert("bitcast", dtypes.REGISTRY[f"uint{dtype.bits}"])
        size = bits & (sign - 1)
        order = size.equal(0).select(sign, ((bits & sign).differs(0)).select(~bits, bits | sign))
        if ordering.descending:
            order = ~order
        return (size > INFINITY[dtype.name]).select(0 if ordering.descending and ordering.nan_largest else 2 * sign - 1, order)
    if dtype.kind == "bool" and ordering.descending:
        return order ^ 1
    return ~order if ordering.descending else order


class _Row:
    """The words of one row in scratch: a table of counts, then two arrays, each with a word before it that no key is below."""

    def __init__(self, w: IRWriter, scratch: str, n: Whole, dtype: DType):
        self.w, self.n, self.bits = w, n, dtype.bits
        self.words = 1 + (dtype.bits > 32)
        self.digits = dtype.bits // RADIX_BITS
        self.counts = scratch
        self.shift = 0 if self.words == 2 else 32  # where the key stands in its word
        self.here = constant(BINS * self.digits + self.words, dtypes.int64)
        size = plus(w, times(w, n, self.words), self.words)
        self.there = register(plus(w, self.here if type(size) is not int else BINS * self.digits + self.words, size))

    def place(self, array: IRValue, k: Whole, back: int = 0) -> str:
        w = self.w
        at = plus(w, plus(w, array, times(w, k, self.words)), -back * self.words)
        return w.at(self.counts, at, dtypes.uint64)

    def load(self, array: IRValue, k: Whole, back: int = 0) -> list[IRValue]:
        p = self.place(array, k, back)
        return [self.w.load(self.w.at(p, i, dtypes.uint64), dtypes.uint64) for i in range(self.words)]

    def store(self, values: Sequence[IRValue], array: IRValue, k: Whole) -> None:
        p = self.place(array, k)
        for i, v in enumerate(values):
            self.w.store(v, self.w.at(p, i, dtypes.uint64))

    def words_of(self, x: IRValue, place: IRValue, ordering: Ordering) -> list[IRValue]:
        """An element's key with the place that it comes from."""
        key, at = ordinal(Number(self.w, x), ordering), Number(self.w, place).unsigned()
        if self.words == 2:
            return [key.v, at.v]
        return [((key.convert("zext", dtypes.uint64) << 32) | at).v]

    def key(self, word: IRValue) -> IRValue:
        """The key in a word, as wide as it is by itself."""
        if self.words == 2:
            return word
        return (Number(self.w, word) >> 32).convert("trunc", dtypes.REGISTRY[f"uint{self.bits}"]).v

    def source(self, values: Sequence[IRValue]) -> IRValue:
        """The place in the row that an element comes from."""
        if self.words == 2:
            return values[1]._replace(dtype=dtypes.int64)
        return (Number(self.w, values[0]) & 0xFFFFFFFF).signed().v

    def bin(self, key: IRValue, digit: int) -> str:
        """The address of the count of elements with this digit."""
        w = self.w
        d = (Number(w, key) >> (self.shift + RADIX_BITS * digit)) & (BINS - 1)
        return w.at(self.counts, plus(w, d.signed().v, digit * BINS), dtypes.int64)

    # ---- a few elements

    def insert(self) -> IRValue:
        """Sorts the array; where it lies then."""
        w, here = self.w, self.here
        self.store([constant(0, dtypes.uint64)] * self.words, here, -1)

        def element(i: IRValue) -> list[IRValue]:
            self.sink(self.load(here, i), i)
            return []

        w.loop(1, self.n, 1, [], element)
        return here

    def sink(self, mine: Sequence[IRValue], i: IRValue) -> None:
        """Puts a key among the sorted ones before place i, of which the larger ones move up."""
        w, here = self.w, self.here

        def larger(j: IRValue) -> IRValue:
            return (Number(w, self.load(here, j, back=1)[0]) > Number(w, mine[0])).v

        def move(j: IRValue) -> list[IRValue]:
            self.store(self.load(here, j, back=1), here, j)
            return [w.op("sub", j, constant(1, dtypes.int64))]

        (j,) = w.loop_while([i], larger, move)
        self.store(mine, here, j)

    # ---- a few vectors

    def network(self, vectors: list[list[IRValue]]) -> list[list[IRValue]]:
        """Returns the words of all elements in order; each vector has as many lanes as the others.

        Blocks of 2, 4, 8 … elements are merged: each element is compared with the one mirrored in its block, then with those at half
        the distance, a quarter …, and the smaller goes to the lower place.
        """
        lanes = vectors[0][0].lanes
        size = 2
        while size < 2 * len(vectors) * lanes:
            distances = [size - 1]
            while size >> len(distances) + 1:
                distances.append(size >> len(distances) + 1)
            for distance in distances:
                self.exchange(vectors, *divmod(distance, lanes))
            size *= 2
        return vectors

    def through_network(self, some: Callable[[Whole, int, IRValue | None], IRValue], ordering: Ordering) -> None:
        """Sorts the row by a network, into the array."""
        w, n, lanes = self.w, self.n, self.w.target.lanes(64)
        assert type(n) is int
        vectors = []
        for k in range(0, n, lanes):
            mask = leading(n - k, lanes)
            words = self.words_of(some(k, lanes, mask), vector(range(k, k + lanes), dtypes.int64), ordering)
            highest = constant((1 << 64) - 1, dtypes.uint64, lanes)
            vectors.append(words if mask is None else [w.select(mask, x, highest) for x in words])
        self.lay(self.network(vectors))

    def exchange(self, vectors: list[list[IRValue]], across: int, within: int) -> None:
        """Puts the smaller of each two elements in front. Their numbers of vector and lane differ in these bits.

        A vector that is not there stands for the highest keys, which stay behind.
        """
        w, lanes = self.w, vectors[0][0].lanes
        mirror = [k ^ within for k in range(lanes)]

        def turned(words: Sequence[IRValue]) -> list[IRValue]:
            return [w.shuffle(x, mirror) for x in words] if within else list(words)

        for i, x in enumerate(vectors):
            y = turned(vectors[i ^ across]) if (i ^ across) < len(vectors) else None
            if across and y is not None and i < i ^ across:
                first = self.first(x, y)
                vectors[i] = [w.select(first, a, b) for a, b in zip(x, y, strict=True)]
                vectors[i ^ across] = turned([w.select(first, b, a) for a, b in zip(x, y, strict=True)])
            elif not across and y is not None:
                upper = IRValue(f"<{', '.join([f'i1 {str(k > m).lower()}' for k, m in enumerate(mirror)])}>", dtypes.bool_, lanes)
                first = self.first(x, y)
                low, high = ([w.select(first, *pair) for pair in zip(*both, strict=True)] for both in ((x, y), (y, x)))
                vectors[i] = [w.select(upper, b, a) for a, b in zip(low, high, strict=True)]

    def first(self, x: Sequence[IRValue], y: Sequence[IRValue]) -> IRValue:
        """Returns whether x stands before y, in each lane."""
        key, other = Number(self.w, x[0]), Number(self.w, y[0])
        if self.words == 1:
            return (key < other).v
        place = Number(self.w, x[1]) < Number(self.w, y[1])
        return ((key < other) | (key.equal(other) & place)).v

    def lay(self, vectors: Sequence[Sequence[IRValue]]) -> None:
        """Stores the first n elements of sorted vectors."""
        w, n, lanes = self.w, self.n, vectors[0][0].lanes
        assert type(n) is int
        for i, words in enumerate(vectors):
            at = self.place(self.here, constant(i * lanes, dtypes.int64))
            for q in range(self.words):
                both = words[0] if self.words == 1 else interleaved(w, words, q)
                w.store(both, w.at(at, q * lanes, dtypes.uint64), WORD, leading((n - i * lanes) * self.words - q * lanes, lanes))

    # ---- many

    def clear(self) -> None:
        w = self.w
        lanes = w.target.lanes(64)
        zero = constant(0, dtypes.int64, lanes)

        def some(k: IRValue) -> list[IRValue]:
            w.store(zero, w.at(self.counts, k, dtypes.int64), align=WORD)
            return []

        w.loop(0, BINS * self.digits, lanes, [], some)

    def count(self, key: IRValue) -> None:
        w = self.w
        for digit in range(self.digits):
            p = self.bin(key, digit)
            w.store(w.op("add", w.load(p, dtypes.int64), constant(1, dtypes.int64)), p)

    def distribute(self, n: Whole) -> IRValue:
        """Sorts the first n elements by each digit that is not the same in all keys; where the array lies then."""
        w = self.w
        source, target = self.here, self.there
        for digit in range(self.digits):
            first = w.load(self.bin(self.load(source, 0)[0], digit), dtypes.int64)
            differs = w.op("icmp ne", first, register(n), dtype=dtypes.bool_)

            def move(source: IRValue = source, target: IRValue = target, digit: int = digit) -> list[IRValue]:
                def start(k: IRValue, total: IRValue) -> list[IRValue]:
                    p = w.at(self.counts, plus(w, k, digit * BINS), dtypes.int64)
                    n = w.load(p, dtypes.int64)
                    w.store(total, p)
                    return [w.op("add", total, n)]

                def element(k: IRValue) -> list[IRValue]:
                    values = self.load(source, k)
                    p = self.bin(values[0], digit)
                    to = w.load(p, dtypes.int64)
                    self.store(values, target, to)
                    w.store(w.op("add", to, constant(1, dtypes.int64)), p)
                    return []

                w.loop(0, BINS, 1, [constant(0, dtypes.int64)], start)
                w.loop(0, n, 1, [], element)
                return [target, source]

            source, target = w.when(differs, [source, target], move, rare=False)
        return source


def fits_network(w: IRWriter, n: Whole, dtype: DType, most: int) -> bool:
    """Whether a row has a known length, and no more vectors of words than these."""
    return type(n) is int and MIN_NETWORK_SORT <= n <= w.target.lanes(64) * most // (1 + (dtype.bits > 32))


def sort_row(
    w: IRWriter,
    scratch: str,
    n: Whole,
    dtype: DType,
    ordering: Ordering,
    element: Callable[[IRValue], IRValue],
    some: Callable[[Whole, int, IRValue | None], IRValue] | None,
    put: Callable[[IRValue, IRValue], None],
) -> None:
    """Sorts `element(0) … element(n - 1)` of a dtype and says `put(place, place that it comes from)` of each, in order.

    some: as many elements side by side from a place on, under a mask; None where they do not lie so.
    """
    row = _Row(w, scratch, n, dtype)

    def fill(count: bool) -> None:
        def one(k: IRValue) -> list[IRValue]:
            values = row.words_of(element(k), k, ordering)
            row.store(values, row.here, k)
            if count:
                row.count(values[0])
            return []

        w.loop(0, n, 1, [], one)

    def few() -> list[IRValue]:
        fill(count=False)
        return [row.insert()]

    def many() -> list[IRValue]:
        row.clear()
        fill(count=True)
        return [row.distribute(n)]

    if some is not None and fits_network(w, n, dtype, MAX_NETWORK_VECTORS):
        row.through_network(some, ordering)
        sorted_ = row.here
    elif type(n) is int:
        (sorted_,) = few() if n <= MAX_INSERTION_SORT else many()
    else:
        less = w.op("icmp sle", register(n), constant(MAX_INSERTION_SORT, dtypes.int64), dtype=dtypes.bool_)
        (first,) = w.when(less, [row.here], few, rare=False)
        more = w.op("icmp sgt", register(n), constant(MAX_INSERTION_SORT, dtypes.int64), dtype=dtypes.bool_)
        (sorted_,) = w.when(more, [first], many, rare=False)

    def out(k: IRValue) -> list[IRValue]:
        put(k, row.source(row.load(sorted_, k)))
        return []

    w.loop(0, n, 1, [], out)


class _Best:
    """The best elements of a row so far, by insertion: in order, so that one that enters moves the worse ones up."""

    room = 1  # times as many elements as are wanted that the array holds

    def __init__(self, w: IRWriter, scratch: str, few: int, dtype: DType):
        self.few, self.filled = few, few * self.room  # so many elements enter without a question
        self.row, self.last = _Row(w, scratch, self.filled, dtype), constant(few - 1, dtypes.int64)

    def start(self) -> None:
        """Orders the first elements, which fill the array."""
        self.row.insert()

    def worst(self) -> IRValue:
        """Returns the word of the element that one has to be better than."""
        return self.row.load(self.row.here, self.last)[0]

    def enter(self, mine: Sequence[IRValue]) -> None:
        self.row.sink(mine, self.last)

    def end(self) -> None:
        """Leaves the best in order."""


class _Batches(_Best):
    """The same for more of them: those that enter are collected behind the others, and all are sorted when the array is full."""

    room = 2

    def __init__(self, w: IRWriter, scratch: str, few: int, dtype: DType):
        super().__init__(w, scratch, few, dtype)
        self.count = self.row.place(self.row.here, 0, back=1)  # of elements in the array

    def start(self) -> None:
        self.row.w.store(constant(self.filled, dtypes.int64), self.count)
        self.end()

    def enter(self, mine: Sequence[IRValue]) -> None:
        w = self.row.w
        n = w.load(self.count, dtypes.int64)
        self.row.store(mine, self.row.here, n)
        more = w.op("add", n, constant(1, dtypes.int64))
        w.store(more, self.count)
        full = w.op("icmp eq", more, constant(self.filled, dtypes.int64), dtype=dtypes.bool_)
        w.when(full, [], silent(self.end))

    def end(self) -> None:
        row, w = self.row, self.row.w
        n = w.load(self.count, dtypes.int64)
        row.clear()
        w.loop(0, n, 1, [], silent(lambda k: row.count(row.load(row.here, k)[0])))
        found = row.distribute(n)
        w.loop(0, self.few, 1, [], silent(lambda k: row.store(row.load(found, k), row.here, k)))
        w.store(constant(self.few, dtypes.int64), self.count)


def first_few(
    w: IRWriter,
    scratch: str,
    n: int,
    few: int,
    dtype: DType,
    ordering: Ordering,
    element: Callable[[IRValue], IRValue],
    some: Callable[[Whole, int, IRValue | None], IRValue] | None,
    put: Callable[[IRValue, IRValue], None],
) -> None:
    """Says `put` of the first `few` places alone. A short row is sorted by a network; of a longer one the best so far are kept, and most of
    the others are seen to be none by vectors.

    some: as in `sort_row`.
    """
    if some is not None and fits_network(w, n, dtype, MAX_TOP_K_VECTORS):
        row = _Row(w, scratch, n, dtype)
        row.through_network(some, ordering)
        w.loop(0, few, 1, [], silent(lambda k: put(k, row.source(row.load(row.here, k)))))
        return
    best = (_Best if few <= MAX_TOP_K else _Batches)(w, scratch, few, dtype)
    row, filled = best.row, best.filled

    def fill(k: IRValue) -> list[IRValue]:
        row.store(row.words_of(element(k), k, ordering), row.here, k)
        return []

    def offer(k: IRValue) -> list[IRValue]:
        mine = row.words_of(element(k), k, ordering)
        better = Number(w, mine[0]) < Number(w, best.worst())
        w.when(better.v, [], silent(lambda: best.enter(mine)), rare=False)
        return []

    w.loop(0, filled, 1, [], fill)
    best.start()
    whole = filled
    if some is not None:
        vectors, lanes = some, w.target.lanes(dtype.bits)
        whole += (n - filled) // lanes * lanes

        def step(p: IRValue) -> list[IRValue]:
            better = ordinal(Number(w, vectors(p, lanes, None)), ordering) < Number(w, w.splat(row.key(best.worst()), lanes))
            w.each_lane(better.v, lambda k: offer(w.op("add", p, k)))
            return []

        w.loop(filled, whole, lanes, [], step)
    w.loop(whole, n, 1, [], offer)
    best.end()

    def out(k: IRValue) -> list[IRValue]:
        put(k, row.source(row.load(row.here, k)))
        return []

    w.loop(0, few, 1, [], out)
