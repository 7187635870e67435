"""Iterators over arrays in batches: dicts, batch first. Shuffling is reproducible; they can be saved and resumed at any batch.

The position is one number, the count of batches; a batch's examples are a function of it, the seed and the arrays.
"""

from __future__ import annotations

import copy
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

import ngraph as ng
from ngraph.errors import UnknownKey, nearest
from ngraph.frontends.neon.axis import ax
from ngraph.frontends.neon.bounds import COUNT, WHOLE, check
from ngraph.frontends.neon.calls import Checked, one_of, public, refuse, speaker, wrong_kind
from ngraph.frontends.neon.initializers import current_seed
from ngraph.op_graph.arguments import shown
from ngraph.op_graph.op import Op

Array = np.ndarray
Batch = dict[str, Any]


TARGETS = ("label", "labels", "target", "targets", "tgt_txt", "y")  # names that mark a target


def arrays_of(who: str, data: Any) -> tuple[dict[str, Array], dict[str, tuple[str, ...] | None]]:
    """Returns ({name: array}, {name: names of its axes}) from {name: array or {"data": array, "axes": names}}. Raises ArgumentError."""
    if not isinstance(data, Mapping):
        data = dict(enumerate(data)) if isinstance(data, (list, tuple)) else {"image": data}
    arrays, axes = {}, {}
    for key, entry in data.items():
        held = entry if isinstance(entry, Mapping) else {"data": entry, "axes": None}
        if "data" not in held:
            raise refuse(
                who, f"{key} has {', '.join(map(str, held)) or 'nothing'}, and no data", "write {'data': array, 'axes': ('N', ...)}"
            )
        arrays[str(key)] = _array(who, key, held["data"])
        names = held.get("axes")
        if not (names is None or isinstance(names, (str, Iterable))):
            raise wrong_kind(who, f"{key} has axes {shown(names)}, which are not names", "write {'data': array, 'axes': ('N', ...)}")
        axes[str(key)] = None if names is None else names_of_axes(names)
    if not arrays:
        raise refuse(who, "there are no arrays", "pass some by name: {'image': images, 'label': labels}")
    for k, a in arrays.items():
        named = axes[k]
        if named is not None and len(named) != a.ndim:
            raise refuse(who, f"{k} has shape {a.shape}, and axes {', '.join(named) or 'none'}", f"name {a.ndim} axes, batch first")
    lengths = {k: len(a) for k, a in arrays.items()}
    if len(set(lengths.values())) > 1:
        why = f"the arrays have different numbers of examples: {', '.join(f'{k} {n:,}' for k, n in lengths.items())}"
        raise refuse(who, why, "give arrays of as many rows, examples first")
    return arrays, axes


def names_of_axes(given: Any) -> tuple[str, ...]:
    """Returns the names in "N H W", or of axes and names in a list; `batch` is N."""
    names = given.split() if isinstance(given, str) else [str(getattr(a, "label", a)) for a in given]
    return tuple("N" if n == "batch" else n for n in names)


def _array(who: str, key: Any, data: Any) -> Array:
    """Returns the examples of an entry. Raises ArgumentError where they are not an array, or none."""
    try:
        array = data if isinstance(data, np.ndarray) else np.asarray(data)
    except ValueError:
        raise refuse(who, f"{key} is a list of rows of different shapes", "pad them to one shape, as an array") from None
    if not array.ndim:
        raise wrong_kind(who, f"{key} is {shown(data)}, and no array of examples", "pass an array, examples first")
    return array


def dtype_of(key: str, array: Any) -> str:
    """Returns the element type of an entry's placeholder. Raises ArgumentTypeError for types that no tensor has, such as text."""
    array = np.asarray(array)
    if array.dtype.kind in "OUSMm":
        kind = type(array.ravel()[0]).__name__ if array.size else array.dtype.name
        raise wrong_kind(
            "make_placeholders", f"{key!r} has elements of type {kind}, and tensors hold numbers", "give numbers, as Text has them"
        )
    return array.dtype.name


def rows(batch: Mapping[str, Any]) -> int:
    """Returns the number of examples in a batch."""
    return max((len(a) for a in batch.values() if np.ndim(a)), default=0)


def examples(data: Any) -> int | None:
    """Returns the number of examples of an iterator's pass; None where it is unknown."""
    try:
        return int(data.ndata)
    except (AttributeError, NotImplementedError):
        return None


def cut(batch: Mapping[str, Any], count: int) -> Batch:
    """Returns the first `count` examples of a batch."""
    size = rows(batch)
    return {k: a[:count] if np.ndim(a) and len(a) == size else a for k, a in batch.items()}


def padded(batch: Mapping[str, Any], size: int) -> Batch:
    """Returns a batch of `size` examples: its own, then copies of its first one."""
    own = rows(batch)
    again = np.concatenate([np.arange(own), np.zeros(max(size - own, 0), np.intp)])
    return {k: np.asarray(a)[again] if np.ndim(a) and len(a) == own < size else a for k, a in batch.items()}


class Batches(Checked):
    """Base of iterators: a pass is `total_iterations` batches, or all of them; the next pass continues where it ended."""

    tgt_key: str = "label"
    shuffle: bool = False
    include_iteration: bool = False

    def __init__(self, batch_size: int, total_iterations: int | None):
        check(type(self).__name__, COUNT, batch_size=batch_size)
        check(type(self).__name__, WHOLE, total_iterations=total_iterations)
        self.batch_size, self.total_iterations = int(batch_size), total_iterations
        self.done = 0  # batches so far
        self.began = 0  # batches before this pass

    # defined by subclasses
    @property
    def nbatches(self) -> int:
        """The number of batches of one pass over the data."""
        raise NotImplementedError

    @property
    def ndata(self) -> int:
        raise NotImplementedError

    def batch(self, k: int) -> Batch:
        """Returns the k-th batch, counted over all passes."""
        raise NotImplementedError

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        """Returns the names of the axes of each entry of a batch, batch first; None where they were not given."""
        raise NotImplementedError

    @property
    def open_axes(self) -> frozenset[str]:
        """The names of axes, beside N, whose length changes from batch to batch."""
        return frozenset()

    def named_axes(self, key: str, array: Any) -> list[tuple[str, int]]:
        """Returns (name, length) of the axes of an entry of a batch; those that nobody named are called by the entry and their number."""
        names = self.axis_names().get(key) or ("N", *(f"{key}_{d}" for d in range(1, np.ndim(array))))
        return list(zip(names, np.shape(array), strict=True))

    def starts(self, k: int) -> bool:
        """Whether the k-th batch starts new sequences, so that state that layers carry from batch to batch is reset."""
        return self.shuffle or k % self.nbatches == 0

    def which(self, k: int, row: int) -> int | None:
        """Returns the index in the data of an example of the k-th batch; None where that is unknown."""
        return None

    # common to all iterators
    def __len__(self) -> int:
        return self.nbatches if self.total_iterations is None else self.total_iterations

    def __iter__(self) -> Iterator[Batch]:
        while self.done - self.began < len(self):
            made = {**self.batch(self.done), "iteration": self.done - self.began}
            self.done += 1
            yield made
        self.began = self.done

    def reset(self) -> None:
        """Restarts from the first batch of the first pass."""
        self.done = self.began = 0

    def once(self) -> Batches:
        """Returns an iterator of one pass in which each example comes once, for evaluation. It has a position of its own.

        A subclass that can omit repeated examples, and include those that passes drop, overrides it; by default it is the first `ndata`
        examples of a pass.
        """
        return _Once(self)

    def _copied(self) -> Self:
        """Returns a copy at its beginning that makes at most one pass."""
        made = copy.copy(self)
        made.done = made.began = 0
        return made

    def state(self) -> dict[str, int]:
        """Returns the position, for `restore`."""
        return {"done": self.done, "began": self.began}

    def restore(self, state: Mapping[str, int]) -> None:
        self.done, self.began = int(state["done"]), int(state["began"])

    @public
    def make_placeholders(self, include_iteration: bool = False) -> dict[str, Op]:
        """Returns placeholders for the entries of a batch, by name; sets the lengths of ax.N, and for sequences of ax.REC."""
        made: dict[str, Op] = {}
        own = {n: ng.make_axis(name=n) for n in self.open_axes}
        for key, array in self.batch(0).items():
            if array is None or key == "mask":
                continue
            axes = []
            for n, size in self.named_axes(key, array):
                if n in own:
                    axes.append(own[n])
                elif n in ("N", "REC"):
                    axes.append(ax.sized(n, self.batch_size if n == "N" else size))
                else:
                    axes.append(ng.make_axis(size, name=n))
            made[key] = ng.placeholder(axes, dtype=dtype_of(key, array)).named(key)
        if include_iteration or self.include_iteration:
            made["iteration"] = ng.placeholder(()).named("iteration")
        return made


def view(array: Array, rows: slice) -> Array:
    """Returns rows of an array, not copied: writing to a batch would write to the data."""
    made = array[rows]
    made.flags.writeable = False
    return made


def check_target(who: str, key: str, names: Mapping[str, Any], default: str | None) -> None:
    """Raises UnknownKey where `tgt_key` is not an entry of a batch; the default may be missing."""
    if key != default and key not in names:
        meant = nearest(key, names) or next((n for n in TARGETS if n in names), list(names)[-1])
        raise UnknownKey(f"{speaker(who)}: tgt_key is {key!r}, and a batch has {', '.join(names)}", fix=f"take tgt_key={meant!r}")


class _Once(Batches):
    """Another iterator's first pass up to its `ndata`-th example, where that is known. The other one is reset before and after."""

    def __init__(self, source: Batches):
        super().__init__(source.batch_size, None)
        self.source, self.tgt_key = source, source.tgt_key

    nbatches = property(lambda self: min(len(self.source), self.source.nbatches))
    ndata = property(lambda self: self.source.ndata)

    def batch(self, k: int) -> Batch:
        return self.source.batch(k)

    def starts(self, k: int) -> bool:
        return self.source.starts(k)

    def which(self, k: int, row: int) -> int | None:
        return self.source.which(k, row)

    open_axes = property(lambda self: self.source.open_axes)

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        return self.source.axis_names()

    def __iter__(self) -> Iterator[Batch]:
        left = examples(self.source)
        self.source.reset()
        for batch in itertools.islice(self.source, self.nbatches):
            used = rows(batch) if left is None else min(rows(batch), left)
            if used == 0:
                break
            left = None if left is None else left - used
            yield cut(batch, used)
        self.source.reset()


class Full(Batches):
    """Another iterator, with all batches of `batch_size` examples: copies of the first one fill them up, with 0 in the entry mask."""

    def __init__(self, source: Batches):
        super().__init__(source.batch_size, None)
        self.source, self.tgt_key = source, source.tgt_key

    nbatches = property(lambda self: len(self.source))
    ndata = property(lambda self: self.source.ndata)

    def _filled(self, batch: Batch) -> Batch:
        own = np.asarray(batch.get("mask", np.ones(rows(batch))), np.float32)
        return {**padded(batch, self.batch_size), "mask": np.pad(own, (0, self.batch_size - len(own)))}

    def batch(self, k: int) -> Batch:
        return self._filled(self.source.batch(k))

    def starts(self, k: int) -> bool:
        return self.source.starts(k)

    def which(self, k: int, row: int) -> int | None:
        return self.source.which(k, row)

    open_axes = property(lambda self: self.source.open_axes)

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        return self.source.axis_names()

    def __iter__(self) -> Iterator[Batch]:
        return map(self._filled, self.source)


class ArrayIterator(Batches):
    """Batches of rows of arrays: {name: rows, ..., "iteration": number in this pass}.

    data_arrays: {name: array or {"data": array, "axes": names}}, or one array. total_iterations: batches of a pass; once through the
    data by default. shuffle: a new order in each pass, from `seed`, by default that of `set_seed`. last: treatment of a last batch
    that is not full: "wrap" takes examples of the next pass (as neon did), "drop", "short", or "pad" (repeats its first example and adds
    the entry mask, 0 for those). Batches without shuffling are read-only views of the arrays, which may be memory maps. Raises
    ArgumentError for fewer examples than a batch.
    """

    def __init__(
        self,
        data_arrays: Any,
        batch_size: int,
        total_iterations: int | None = None,
        tgt_key: str = "label",
        shuffle: bool = False,
        seed: int | None = None,
        last: str = "wrap",
    ):
        super().__init__(batch_size, total_iterations)
        one_of("ArrayIterator", "last", last, ("wrap", "drop", "short", "pad"))
        check("ArrayIterator", WHOLE, seed=seed)
        self.arrays, self.axes = arrays_of("ArrayIterator", data_arrays)
        check_target("ArrayIterator", tgt_key, self.arrays, "label")
        self.tgt_key, self.shuffle, self.last = tgt_key, shuffle, last
        self.seed = current_seed() if seed is None else seed
        if self.ndata < self.batch_size and last in ("wrap", "drop"):
            why = f"{self.ndata} examples are fewer than a batch of {self.batch_size}"
            raise refuse("ArrayIterator", why, "take a smaller batch_size, or last='short'")
        self._order: tuple[int, Array] | None = None

    @property
    def ndata(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def nbatches(self) -> int:
        return self.ndata // self.batch_size if self.last == "drop" else -(-self.ndata // self.batch_size)

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        return self.axes

    def once(self) -> ArrayIterator:
        made = self._copied()
        made.last = "short"
        made.total_iterations = None if self.total_iterations is None else min(self.total_iterations, made.nbatches)
        return made

    def _shuffled(self, epoch: int) -> Array:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.ndata)
        return self._order[1]

    def _rows(self, k: int) -> Any:
        """Returns the examples of the k-th batch: a slice, or an array of their indices."""
        n, size = self.ndata, self.batch_size
        epoch, start = divmod(k * size, n) if self.last == "wrap" else (k // self.nbatches, k % self.nbatches * size)
        stop = start + size
        if not self.shuffle and stop <= n:
            return slice(start, stop)
        own = self._shuffled(epoch)[start:stop] if self.shuffle else np.arange(start, min(stop, n))
        if stop > n and self.last == "wrap":
            more = self._shuffled(epoch + 1) if self.shuffle else np.arange(n)
            own = np.concatenate([own, more[: stop - n]])
        return own

    def which(self, k: int, row: int) -> int | None:
        chosen = self._rows(k)
        return chosen.start + row if isinstance(chosen, slice) else int(chosen[row]) if row < len(chosen) else None

    def batch(self, k: int) -> Batch:
        rows = self._rows(k)
        made: Batch = {name: view(a, rows) if isinstance(rows, slice) else a.take(rows, axis=0) for name, a in self.arrays.items()}
        if self.last == "pad":
            count = len(next(iter(made.values())))
            more = self.batch_size - count
            made = {name: np.concatenate([a, np.repeat(a[:1], more, axis=0)]) if more else a for name, a in made.items()}
            made["mask"] = (np.arange(self.batch_size) < count).astype(np.float32)
        return made


class SequentialArrayIterator(Batches):
    """Windows of long sequences: {name: [N, REC, ...]}, in the order of neon of 2017.

    data_arrays: {name: array} along time. time_steps: the length of a window. stride: distance between starts of windows, time_steps
    by default. A pass has length // stride // batch_size batches, and a window that reaches the end goes on at the beginning.
    shuffle: True for neon's strided order, which has nothing random: row r of batch k is the window from k * stride + r * (batches of a
    pass) * time_steps, so each row continues that of the batch before, as recurrent layers that carry their state need; a pass with more
    batches (`total_iterations`) reads on. False: the windows as they come, batch by batch. "random": the windows in random order, new
    in each pass, from `seed`. stretch: for random order, the number of consecutive windows of a row before it jumps elsewhere, so that
    layers carry their state over these; above 1 the order is random.
    include_iteration: `make_placeholders` makes one for the number of the batch, too, which every batch has.
    reverse_target: targets backwards in time. get_prev_target: adds the entry prev_tgt, the target one step earlier; that of a target
    backwards begins with its last element. Raises ArgumentError for a text that is too short for a batch.
    """

    def __init__(
        self,
        data_arrays: Any,
        time_steps: int,
        batch_size: int,
        total_iterations: int | None = None,
        reverse_target: bool = False,
        get_prev_target: bool = False,
        stride: int | None = None,
        include_iteration: bool = False,
        tgt_key: str = "tgt_txt",
        shuffle: bool | str = True,
        seed: int | None = None,
        stretch: int = 1,
    ):
        super().__init__(batch_size, total_iterations)
        self.arrays, self.axes = arrays_of("SequentialArrayIterator", data_arrays)
        check("SequentialArrayIterator", WHOLE, seed=seed)
        check_target("SequentialArrayIterator", tgt_key, self.arrays, None if reverse_target or get_prev_target else "tgt_txt")
        check("SequentialArrayIterator", COUNT, time_steps=time_steps, stretch=stretch, stride=stride)
        if not isinstance(shuffle, (bool, np.bool_)) and not (isinstance(shuffle, str) and shuffle == "random"):
            raise refuse("SequentialArrayIterator", f"shuffle is True, False or 'random', not {shown(shuffle)}", "take shuffle='random'")
        self.shuffle = isinstance(shuffle, str) or stretch > 1  # whether the order is random
        self.strided, self.stretch = bool(shuffle) and not self.shuffle, int(stretch)
        self.time_steps, self.stride = int(time_steps), int(stride or time_steps)
        self.reverse_target, self.get_prev_target, self.include_iteration = reverse_target, get_prev_target, include_iteration
        self.tgt_key, self.seed = tgt_key, current_seed() if seed is None else seed
        self.length = len(next(iter(self.arrays.values())))
        self.windows = max((self.length - self.time_steps) // self.stride + 1, 0)  # those that do not wrap
        enough = self.windows >= self.batch_size * self.stretch if self.shuffle else self.windows and self._pass
        if not enough:
            why = f"{self.length:,} steps make {self.windows} windows of {time_steps}, fewer than a batch of {batch_size}" + (
                f" stretches of {stretch}" if self.stretch > 1 else ""
            )
            raise refuse("SequentialArrayIterator", why, "take shorter windows, or a smaller batch_size")
        self._order: tuple[int, Array] | None = None
        self._all = False  # whether each window comes once, those that fill no batch at the end of a pass

    @property
    def ndata(self) -> int:
        return self.windows if self.shuffle or self._all else self._pass * self.batch_size

    @property
    def _pass(self) -> int:
        """The number of batches of a pass in order, whose last windows may wrap."""
        return self.length // self.stride // self.batch_size

    @property
    def _full(self) -> int:
        """The number of full batches of a pass in which each window comes once."""
        return self.windows // (self.batch_size * self.stretch) * self.stretch

    @property
    def nbatches(self) -> int:
        if not self.shuffle and not self._all:
            return self._pass
        return self._full + (-(-(self.windows - self._full * self.batch_size) // self.batch_size) if self._all else 0)

    @property
    def _period(self) -> int:
        """The number of batches after which the order begins again."""
        return self.nbatches if self.shuffle or self._all else max(self.nbatches, self.total_iterations or 0)

    def starts(self, k: int) -> bool:
        k %= self._period
        if self._all and k >= self._full:
            return True
        if self.strided or not self.shuffle and self.batch_size == 1:
            return k == 0
        return not self.shuffle or k % self.stretch == 0

    def once(self) -> SequentialArrayIterator:
        """Returns an iterator of one pass in which each window comes once; those that fill no batch come last, each with a reset state."""
        made = self._copied()
        made._all = True
        made.total_iterations = None if self.total_iterations is None else min(self.total_iterations, made.nbatches)
        return made

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        inner = {k: (self.axes[k] or ("REC", *(f"{k}_{d}" for d in range(1, a.ndim))))[1:] for k, a in self.arrays.items()}
        if self.get_prev_target:
            inner["prev_tgt"] = inner[self.tgt_key]
        return {k: ("N", "REC", *names) for k, names in inner.items()}

    def _starts(self, k: int) -> Array:
        """Returns where the windows of the k-th batch begin."""
        epoch, i = divmod(k, self._period)
        size, full = self.batch_size, self._full
        if not self.shuffle and not self._all:
            rows = np.arange(size)
            return i * self.stride + rows * self._pass * self.time_steps if self.strided else (i * size + rows) * self.stride
        if not self.shuffle:
            apart = self.strided and i < full
            rows = np.arange(size) * full + i if apart else np.arange(i * size, min((i + 1) * size, self.windows))
            return rows * self.stride
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.windows // self.stretch)
        order = self._order[1]
        if i >= full:
            whole = (order[full // self.stretch * size :, None] * self.stretch + np.arange(self.stretch)).ravel()
            rest = np.concatenate([whole, np.arange(len(order) * self.stretch, self.windows)])
            return rest[(i - full) * size : (i - full + 1) * size] * self.stride
        which, within = divmod(i, self.stretch)
        return (order[which * size : (which + 1) * size] * self.stretch + within) * self.stride

    def batch(self, k: int) -> Batch:
        places = (self._starts(k)[:, None] + np.arange(self.time_steps)) % self.length
        made = {name: a[places] for name, a in self.arrays.items()}
        if self.get_prev_target:
            made["prev_tgt"] = self.arrays[self.tgt_key][places - 1]
        if self.reverse_target:
            made[self.tgt_key] = made[self.tgt_key][:, ::-1]
            if self.get_prev_target:
                made["prev_tgt"] = np.roll(made[self.tgt_key], 1, axis=1)
        return made


class IterableSource(Batches):
    """An iterable of dicts as a source: of batches, such as a PyTorch DataLoader, or with `batch_size` of examples, such as a Hugging Face
    dataset, which are stacked. `axes`: {name: names of axes}, batch first. Each pass iterates it again; resuming skips.

    source: an iterable that can be iterated repeatedly, or a function that returns one. open_axes: names of those axes, beside N, whose
    length changes from batch to batch, such as "REC" where texts are padded to the longest of a batch.
    """

    def __init__(
        self,
        source: Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]],
        batch_size: int | None = None,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        tgt_key: str = "label",
        open_axes: Sequence[str] = (),
    ):
        if isinstance(source, Iterator):
            raise wrong_kind(
                "IterableSource",
                f"the source is a {type(source).__name__}, which can be gone through only once",
                "pass a function that gives one, as in lambda: source",
            )
        check("IterableSource", COUNT, batch_size=batch_size)
        self.source, self.collate = source, batch_size
        self.axes: dict[str, tuple[str, ...] | None] = dict(axes or {})
        self.tgt_key = tgt_key
        if not isinstance(open_axes, (list, tuple)) or not all(isinstance(n, str) for n in open_axes):
            raise wrong_kind("IterableSource", f"open_axes is {shown(open_axes)}, and no list of names", "take open_axes=['REC']")
        named = {n for names in self.axes.values() if isinstance(names, (tuple, list)) for n in names if isinstance(n, str)}
        if unknown := [n for n in open_axes if n not in named]:
            why = f"open_axes names {', '.join(map(repr, unknown))}, and axes are {', '.join(sorted(named)) or 'not named'}"
            raise refuse("IterableSource", why, "name them: axes={'text': ('N', 'REC')}, open_axes=['REC']")
        self._open_axes = frozenset(open_axes)
        first = next(iter(self._batches()), None)
        if first is None:
            raise refuse("IterableSource", "the source gives no batch", "pass an iterable that can be gone through again, or a function")
        if not isinstance(first, Mapping):
            why = f"the source gives {type(first).__name__}, and a batch is a dict of arrays by name"
            raise wrong_kind("IterableSource", why, "give dicts: {'image': images, 'label': labels}")
        self._first = self._prepared(first)
        check_target("IterableSource", tgt_key, self._first, "label")
        super().__init__(batch_size or len(next(iter(self._first.values()))), None)
        self._at: tuple[int, Iterator[Batch]] | None = None
        self._all = False  # whether examples that fill no batch come at the end of a pass
        self._counts: dict[bool, tuple[int, int]] = {}  # batches and examples of a pass, without or with those

    def _batches(self) -> Iterator[Mapping[str, Any]]:
        source = self.source() if callable(self.source) else self.source
        if not hasattr(source, "__iter__") and not hasattr(source, "__getitem__"):
            raise wrong_kind(
                "IterableSource", f"the source gives {shown(source)}, which is not an iterable", "let it give a list of dicts, or a loader"
            )
        if self.collate is None:
            yield from source
            return
        held: list[Mapping[str, Any]] = []
        for example in source:
            held.append(example)
            if len(held) == self.collate:
                yield self._stacked(held)
                held = []
        if held and self._all:
            yield self._stacked(held)

    def _stacked(self, held: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        if not all(isinstance(e, Mapping) for e in held):
            why = f"the source gives {type(held[0]).__name__}, and an example is a dict by name"
            raise wrong_kind("IterableSource", why, "give dicts: {'image': image, 'label': label}")
        return {k: self._stack(k, [np.asarray(e[k]) for e in held]) for k in held[0]}

    def _stack(self, key: str, arrays: list[Array]) -> Array:
        shapes = dict.fromkeys(a.shape for a in arrays)
        if len(shapes) > 1:
            why = f"examples of {key!r} have different shapes, {' and '.join(map(str, list(shapes)[:2]))}"
            raise refuse("IterableSource", why, "pad them to one shape, or take batch_size=1")
        return np.stack(arrays)

    def _prepared(self, batch: Mapping[str, Any]) -> Batch:
        arrays = {k: np.asarray(v) for k, v in batch.items()}
        return {
            k: a.astype(np.int32) if a.dtype == np.int64 else a.astype(np.float32) if a.dtype == np.float64 else a
            for k, a in arrays.items()
        }

    @property
    def nbatches(self) -> int:
        size: Any = getattr(self.source, "__len__", None)
        if size is None:
            return self._counted()[0]
        return int(size()) if self.collate is None else -(-size() // self.collate) if self._all else size() // self.collate

    @property
    def ndata(self) -> int:
        return self._counted()[1]

    def _counted(self) -> tuple[int, int]:
        """Returns the numbers of batches and examples of a pass; counted by iterating once."""
        if self._all not in self._counts:
            sizes = [rows(batch) for batch in self._batches()]
            self._counts[self._all] = len(sizes), sum(sizes)
        return self._counts[self._all]

    def once(self) -> IterableSource:
        made = self._copied()
        made._all, made._at = True, None
        return made

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        return {k: self.axes.get(k) for k in self._first}

    open_axes = property(lambda self: self._open_axes)

    def batch(self, k: int) -> Batch:
        i = k % self.nbatches
        if self._at is None or self._at[0] != i:
            fresh = self._batches()
            for _ in range(i):
                next(fresh)
            self._at = i, map(self._prepared, fresh)
        made = next(self._at[1])
        self._at = (i + 1, self._at[1]) if i + 1 < self.nbatches else None
        return made


class Prefetch(Batches):
    """Another iterator, its batches made on a thread, `depth` of them ahead. Its state is that of the batches handed out."""

    def __init__(self, source: Batches, depth: int = 2):
        super().__init__(source.batch_size, source.total_iterations)
        self.source, self.depth, self.tgt_key, self.shuffle = source, depth, source.tgt_key, source.shuffle

    nbatches = property(lambda self: self.source.nbatches)
    ndata = property(lambda self: self.source.ndata)

    def batch(self, k: int) -> Batch:
        return self.source.batch(k)

    def starts(self, k: int) -> bool:
        return self.source.starts(k)

    def which(self, k: int, row: int) -> int | None:
        return self.source.which(k, row)

    def once(self) -> Batches:
        inner = self.source.once()
        return inner if isinstance(inner, _Once) else Prefetch(inner, self.depth)

    open_axes = property(lambda self: self.source.open_axes)

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        return self.source.axis_names()

    def __iter__(self) -> Iterator[Batch]:
        made: queue.Queue[Any] = queue.Queue(self.depth)
        stop = threading.Event()

        def fill() -> None:
            item: Any
            for k in range(self.done, self.began + len(self)):
                try:
                    item = self.source.batch(k)
                    if isinstance(self.source, IterableSource):  # the source may reuse the same arrays for its next batch
                        item = {name: a.copy() for name, a in item.items()}
                except BaseException as error:
                    item = error
                while not stop.is_set():
                    try:
                        made.put(item, timeout=0.1)
                        break
                    except queue.Full:
                        continue
                if stop.is_set() or isinstance(item, BaseException):
                    return

        thread = threading.Thread(target=fill, daemon=True, name="neon prefetch")
        thread.start()
        try:
            while self.done - self.began < len(self):
                item = made.get()
                if isinstance(item, BaseException):
                    raise item
                number = self.done - self.began
                self.done += 1
                yield {**item, "iteration": number}
            self.began = self.done
        finally:
            stop.set()
            thread.join()
