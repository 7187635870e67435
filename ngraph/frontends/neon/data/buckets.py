"""Batches of sequences of unlike length: those of like length come together, so that few places are padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph.frontends.neon.bounds import COUNT, WHOLE, check
from ngraph.frontends.neon.calls import one_of, refuse, wrong_kind
from ngraph.frontends.neon.data.iterators import Array, Batch, Batches, check_target
from ngraph.frontends.neon.initializers import current_seed
from ngraph.op_graph.arguments import shown

POOL = 50  # batches whose examples are sorted by length together: of lengths 1 to 100 in batches of 32, 6 % of places are padding


class BucketIterator(Batches):
    """Batches of sequences of any length: {name: [N, REC, ...]}, as long as the longest of a batch; its axis REC has no length of its own.

    data: {name: sequences or one value for each example}. Sequences are a list of arrays [time, ...]; an example's have equal lengths in
    all entries that hold some. padding: the value behind the end of a sequence, one for all or {name: value}; a target's is the label
    that a cost ignores, as in `CrossEntropyMulti(ignore=-1)`. lengths: the name of an entry [N] with the lengths of the examples, int32.
    shuffle: a new order in each pass, from `seed`, by default that of `set_seed`: examples are shuffled, those of `pool` batches sorted by
    length and cut into batches, and these shuffled. shuffle=False: the examples sorted by length. pool: 1 leaves the order random.
    last: "short", a batch of what is left, or "drop". Raises ArgumentError for entries of unlike numbers of examples or unlike lengths.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        batch_size: int,
        padding: Any = 0,
        tgt_key: str = "label",
        shuffle: bool = True,
        seed: int | None = None,
        lengths: str | None = None,
        pool: int = POOL,
        last: str = "short",
    ):
        super().__init__(batch_size, None)
        one_of("BucketIterator", "last", last, ("short", "drop"))
        check("BucketIterator", WHOLE, seed=seed)
        check("BucketIterator", COUNT, pool=pool)
        if not isinstance(data, Mapping) or not data:
            raise wrong_kind("BucketIterator", f"the data are {shown(data)}, and no dict", "pass {'text': list of arrays, 'label': labels}")
        self.sequences = {str(k): [np.asarray(s) for s in v] for k, v in data.items() if _holds_sequences(k, v)}
        self.values = {str(k): np.asarray(v) for k, v in data.items() if str(k) not in self.sequences}
        if not self.sequences:
            why = f"{', '.join(data)} have one value for each example, and no sequences"
            raise refuse("BucketIterator", why, "pass a list of arrays for one, or take ArrayIterator")
        self.lengths_key, self.pool, self.last = lengths, int(pool), last
        self.sizes = _lengths(self.sequences)
        for name, held in self.values.items():
            if held.ndim == 0 or len(held) != self.ndata:
                why = f"{name} has {len(held) if held.ndim else 1} examples, and {next(iter(self.sequences))} {self.ndata}"
                raise refuse("BucketIterator", why, "give as many of each")
        if self.ndata < (self.batch_size if last == "drop" else 1):
            raise refuse("BucketIterator", f"{self.ndata} examples make no batch of {batch_size}", "take a smaller batch_size")
        if lengths is not None and lengths in data:
            raise refuse("BucketIterator", f"lengths names {lengths!r}, which the data have", "take another name")
        names = {**self.sequences, **self.values}
        check_target("BucketIterator", tgt_key, names, "label")
        behind = padding if isinstance(padding, Mapping) else dict.fromkeys(self.sequences, padding)
        if unknown := [k for k in behind if k not in self.sequences]:
            why = f"padding names {', '.join(map(str, unknown))}, which hold no sequences"
            raise refuse("BucketIterator", why, f"take {', '.join(self.sequences)}")
        self.padding = {name: _padding(name, own[0].dtype, behind.get(name, 0)) for name, own in self.sequences.items()}
        self.tgt_key, self.shuffle = tgt_key, bool(shuffle)
        self.seed = current_seed() if seed is None else seed
        self._order: tuple[int, list[Array]] | None = None

    @property
    def ndata(self) -> int:
        return len(self.sizes)

    @property
    def nbatches(self) -> int:
        return self.ndata // self.batch_size if self.last == "drop" else -(-self.ndata // self.batch_size)

    @property
    def open_axes(self) -> frozenset[str]:
        return frozenset({"REC"})

    def axis_names(self) -> dict[str, tuple[str, ...] | None]:
        names: dict[str, tuple[str, ...] | None] = {
            k: ("N", "REC", *(f"{k}_{d}" for d in range(2, s[0].ndim + 1))) for k, s in self.sequences.items()
        }
        names |= {k: ("N", *(f"{k}_{d}" for d in range(1, v.ndim))) for k, v in self.values.items()}
        return names if self.lengths_key is None else {**names, self.lengths_key: ("N",)}

    def once(self) -> BucketIterator:
        made = self._copied()
        made.shuffle, made.last, made._order = False, "short", None
        return made

    def _chunks(self, order: Array, size: int) -> list[Array]:
        return [order[at : at + size] for at in range(0, len(order), size)]

    def _batches(self, epoch: int) -> list[Array]:
        """Returns the examples of each batch of a pass."""
        key = epoch if self.shuffle else 0
        if self._order is None or self._order[0] != key:
            draw = np.random.default_rng([self.seed, epoch])
            order = draw.permutation(self.ndata) if self.shuffle else np.arange(self.ndata)
            pools = self._chunks(order, self.batch_size * self.pool) if self.shuffle else [order]
            ordered = [p[np.argsort(self.sizes[p], kind="stable")] if self.pool > 1 or not self.shuffle else p for p in pools]
            made = [b for p in ordered for b in self._chunks(p, self.batch_size)]
            made = [b for b in made if self.last == "short" or len(b) == self.batch_size]
            self._order = key, [made[k] for k in draw.permutation(len(made))] if self.shuffle else made
        return self._order[1]

    def _examples(self, k: int) -> Array:
        epoch, i = divmod(k, self.nbatches)
        return self._batches(epoch)[i]

    def which(self, k: int, row: int) -> int | None:
        chosen = self._examples(k)
        return int(chosen[row]) if row < len(chosen) else None

    def batch(self, k: int) -> Batch:
        chosen = self._examples(k)
        longest = int(self.sizes[chosen].max(initial=0))
        made: Batch = {}
        for name, held in self.sequences.items():
            first = held[chosen[0]]
            made[name] = np.full((len(chosen), longest, *first.shape[1:]), self.padding[name], first.dtype)
            for row, i in enumerate(chosen):
                made[name][row, : len(held[i])] = held[i]
        made |= {name: v[chosen] for name, v in self.values.items()}
        return made if self.lengths_key is None else {**made, self.lengths_key: self.sizes[chosen].astype(np.int32)}


def _padding(name: str, dtype: np.dtype[Any], value: Any) -> Any:
    """Returns the value behind the end of sequences. Raises ArgumentError where their dtype has it not, such as -1 in unsigned integers."""
    try:
        fits = np.ndim(value) == 0 and bool(np.asarray(value).astype(dtype) == value)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise refuse("BucketIterator", f"padding of {name} is {shown(value)}, and no {dtype.name}", "take a number of that dtype, or cast")
    return value


def _holds_sequences(name: Any, entry: Any) -> bool:
    """Whether an entry is a list of sequences, and not one value for each example. Raises ArgumentError for examples of unlike kinds."""
    if isinstance(entry, np.ndarray):
        if entry.dtype != object:
            return False
    elif not isinstance(entry, Sequence) or isinstance(entry, str):
        return False
    dims = {np.ndim(s) for s in entry}
    if len(dims) > 1:
        raise refuse(
            "BucketIterator", f"examples of {name!r} have {' and '.join(map(str, sorted(dims)))} dims", "give all as many, time first"
        )
    return dims != {0} and bool(dims)


def _lengths(sequences: Mapping[str, list[Array]]) -> Array:
    """Returns the length of each example. Raises ArgumentError where entries differ in it, or examples in the dims behind time or dtype."""
    (first, held), *others = sequences.items()
    lengths = np.array([len(s) for s in held], np.int64)
    for name, other in others:
        if len(other) != len(lengths):
            raise refuse("BucketIterator", f"{name} has {len(other)} examples, and {first} {len(lengths)}", "give as many of each")
        unlike = [k for k, s in enumerate(other) if len(s) != lengths[k]]
        if unlike:
            k = unlike[0]
            why = f"example {k} of {name} has {len(other[k])} steps, and of {first} {lengths[k]}"
            raise refuse("BucketIterator", why, "give both as many, or take two iterators")
    for name, own in sequences.items():
        shapes = dict.fromkeys((s.shape[1:], s.dtype.name) for s in own)
        if len(shapes) > 1:
            (a, b), (c, d) = list(shapes)[:2]
            why = f"examples of {name} have steps of {b}{list(a)} and of {d}{list(c)}"
            raise refuse("BucketIterator", why, "give all the same dtype and the same dims behind time")
    return lengths
