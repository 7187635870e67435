"""Data as users have them, as batches: NumPy arrays, torch tensors, pandas frames, xarray arrays, loaders of pairs or dicts.

Wide numbers become 32 bits, which weights have. Axes that nobody named get names from the number of dims and the model's layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ngraph.errors import nearest
from ngraph.frontends.neon.attention import MultiHeadAttention
from ngraph.frontends.neon.calls import refuse, wrong_kind
from ngraph.frontends.neon.data.iterators import TARGETS, ArrayIterator, Batches, IterableSource, names_of_axes
from ngraph.frontends.neon.layer import Layer
from ngraph.frontends.neon.layers import Embedding, LookupTable
from ngraph.frontends.neon.recurrent import BaseRNNCell
from ngraph.op_graph.arguments import shown

COLOURS = (1, 3, 4)  # lengths that a last dim has where images have their channels last
NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.int32}
LOADER = "a DataLoader, as in DataLoader(dataset, batch_size=32, shuffle=True)"


def is_frame(data: Any) -> bool:
    """Whether the data are a table with named columns, as of pandas."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def is_loader(data: Any) -> bool:
    """Whether the data are an iterable of batches, and no array; a list is where it holds pairs, or dicts, of arrays."""
    if isinstance(data, list):
        return bool(data) and all(map(_is_batch, data))
    arrays = (list, tuple, Mapping, str, Batches)
    return isinstance(data, Iterable) and not isinstance(data, arrays) and not hasattr(data, "__array__")


def _is_batch(data: Any) -> bool:
    """Whether the data are arrays of examples: a tuple of several, or a dict by name."""
    parts = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) and len(data) > 1 else []
    return bool(parts) and all(getattr(p, "ndim", 0) > 0 for p in parts)


def has_targets(data: Any) -> bool:
    """Whether the data may contain targets beside inputs, so that what is passed next to them is another set."""
    return isinstance(data, (Batches, Mapping)) or is_frame(data) or is_loader(data)


def are_sets(data: Any) -> bool:
    """Whether the data are several sets by name: iterators, loaders, or pairs (x, y)."""
    return isinstance(data, Mapping) and bool(data) and all(isinstance(own, (Batches, tuple)) or is_loader(own) for own in data.values())


def narrowed(array: np.ndarray, what: str) -> np.ndarray:
    """Returns an array of at most 32 bits an element. Raises ArgumentError for whole numbers that do not fit, or no numbers."""
    if array.dtype.kind not in "biuf":
        text = array.dtype.kind in "SU" or array.size and isinstance(array.flat[0], str)
        kind = "text" if text else "dates" if array.dtype.kind in "mM" else f"elements of type {array.dtype}"
        raise wrong_kind("fit", f"{what} has {kind}, and models take numbers", "encode it, as with pandas.factorize or get_dummies")
    dtype = NARROW.get(array.dtype.name)
    if dtype is None:
        return array
    limits = np.iinfo(np.int32)
    if array.dtype.kind in "iu" and array.size and not (limits.min <= array.min() and array.max() <= limits.max):
        raise refuse("fit", f"{what} goes from {array.min()} to {array.max()}, and int32 holds less", "scale it, or pass floats")
    return array.astype(dtype)


def array_of(data: Any, what: str) -> np.ndarray:
    """Returns numbers as an array: of arrays, tensors, lists, and columns of a table. Raises ArgumentTypeError for anything else."""
    if is_frame(data):
        columns = [narrowed(_column(data[name]), f"{what}[{name!r}]") for name in data.columns]
        if not columns:
            raise refuse("fit", f"{what} has no columns", "pass a table with some")
        return np.stack([c.astype(np.result_type(*columns), copy=False) for c in columns], axis=1)
    if hasattr(data, "to_numpy"):
        return narrowed(_column(data), what)
    try:
        array = np.asarray(data.detach() if hasattr(data, "detach") else data)
    except (ValueError, TypeError, RuntimeError) as error:
        raise wrong_kind("fit", f"{what} is {shown(data)}, and no array: {error}", "pass an array of numbers, examples first") from None
    return narrowed(array, what)


def _column(series: Any) -> np.ndarray:
    """Returns a column's numbers; where values are missing, as nan, so that checks of batches name them."""
    kind = str(series.dtype)
    if kind[:1].isupper() and hasattr(series, "isna"):  # pandas' numbers with missing values: Int64, Float32, ...
        return np.asarray(series.to_numpy(dtype=np.float64 if series.isna().any() else kind.lower(), na_value=np.nan))
    return np.asarray(series.to_numpy())


def names_from(axes: Any, key: str) -> tuple[str, ...] | None:
    """Returns the names that the user gave an entry's axes: "N H W" or a tuple, for all inputs or by entry; None for none."""
    given = axes.get(key) if isinstance(axes, Mapping) else axes
    return None if given is None else names_of_axes(given)


def _below(model: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(model, Layer) and any(isinstance(layer, kinds) for layer in model.layers_below())


def input_axes(model: Any, array: np.ndarray) -> tuple[str, ...] | None:
    """Returns names for the axes of an input, batch first: N F; N REC F or N REC where the model reads sequences; else N H W; N C H W, or
    N H W C where the last dim has the length of colours; N C D H W. None for other numbers of dims."""
    words = array.dtype.kind in "iu" and _below(model, (LookupTable, Embedding))
    sequences = words or _below(model, (BaseRNNCell, MultiHeadAttention))
    last = array.ndim == 4 and array.shape[3] in COLOURS and array.shape[1] not in COLOURS
    return {
        1: ("N",),
        2: ("N", "REC") if words else ("N", "F"),
        3: ("N", "REC", "F") if sequences else ("N", "H", "W"),
        4: ("N", "H", "W", "C") if last else ("N", "C", "H", "W"),
        5: ("N", "C", "D", "H", "W"),
    }.get(array.ndim)


def _entry(key: str, data: Any, axes: Any, model: Any) -> dict[str, Any]:
    """Returns {"data": array, "axes": names} of an input or, where `model` is None, of a target, whose axes may have no names."""
    names = names_from(axes, key)
    if isinstance(data, Mapping):
        if "data" not in data:
            return dict(data)  # `arrays_of` says what is wrong with it
        names, data = data.get("axes") or names, data["data"]
    array = array_of(data, key)
    if not array.ndim:
        raise wrong_kind("fit", f"{key} is {shown(data)}, and no array of examples", "pass an array, examples first")
    dims = getattr(data, "dims", None)
    if names is None and isinstance(dims, tuple) and all(isinstance(d, str) for d in dims):
        names = ("N", *dims[1:])  # of xarray
    if names is None and model is not None:
        array = array[:, None] if array.ndim == 1 and array.dtype.kind == "f" else array
        names = input_axes(model, array)
    return {"data": array, "axes": names}


class _Pairs:
    """A loader of pairs (x, y), longer tuples or dicts, as an iterable of dicts of arrays."""

    def __init__(self, loader: Any, axes: Any = None, model: Any = None, target: str | None = None):
        self.loader, self.axes, self.model, self.target = loader, axes, model, target
        try:
            length = len(loader)
        except TypeError:  # it has no length, or its data set has none
            return
        self.__len__ = lambda: length

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for batch in self.loader:
            yield {key: entry["data"] for key, entry in self.entries(batch).items()}

    def entries(self, batch: Any) -> dict[str, dict[str, Any]]:
        """Returns {name: {"data": array, "axes": names}} of one batch."""
        if isinstance(batch, Mapping):
            found = {str(key): array for key, array in batch.items()}
        elif isinstance(batch, (list, tuple)) and len(batch) > 1:
            inputs = ["x"] if len(batch) == 2 else [f"x{k}" for k in range(len(batch) - 1)]
            found = dict(zip([*inputs, "y"], batch, strict=True))
        else:
            why = f"the loader gives {shown(batch)}, and a batch is a pair (x, y) or a dict by name"
            raise wrong_kind("fit", why, f"pass {LOADER} of a dataset of pairs")
        return entries_of(found, self.axes, self.model, self.target or usual(found))


def entries_of(arrays: Mapping[str, Any], axes: Any, model: Any, target: str | None) -> dict[str, dict[str, Any]]:
    """Returns {name: {"data": array, "axes": names}}. `axes` that are not a dict are those of the inputs."""
    by_entry = isinstance(axes, Mapping)
    return {k: _entry(k, v, axes if by_entry or k != target else None, None if k == target else model) for k, v in arrays.items()}


def usual(names: Iterable[str]) -> str | None:
    """Returns the only one of the names that is usual for a target; None where there is none, or several."""
    found = [n for n in names if n in TARGETS]
    return found[0] if len(found) == 1 else None


def _from_loader(loader: Any, axes: Any, model: Any, target: str | None) -> IterableSource:
    if hasattr(loader, "__next__"):
        why = f"the {type(loader).__name__} can be gone through only once"
        raise wrong_kind("fit", why, "pass what makes it, such as a DataLoader, or an object whose __iter__ makes a new one")
    pairs = _Pairs(loader, axes, model, target)
    first = next(iter(loader), None)
    if first is None:
        raise refuse("fit", "the loader gives no batch", "give it at least one example")
    entries = pairs.entries(first)
    name = target if target in entries else usual(entries)
    axes_of = {k: e["axes"] for k, e in entries.items() if e["axes"]}
    varying = {"REC"} & {n for own in axes_of.values() for n in own}  # batches are as long as their longest sequence
    if isinstance(loader, (list, tuple)):
        lengths: dict[str, set[int]] = {}
        for batch in loader:
            for k, e in pairs.entries(batch).items():
                for n, length in zip(axes_of.get(k, ()), e["data"].shape, strict=False):
                    lengths.setdefault(n, set()).add(length)
        varying |= {n for n, own in lengths.items() if n != "N" and len(own) > 1}
    return IterableSource(pairs, None, axes_of, tgt_key=name or "label", open_axes=sorted(varying))


def batches_of(
    x: Any,
    y: Any = None,
    *,
    model: Any,
    target: Any = None,
    batch_size: int = 32,
    axes: Any = None,
    shuffle: bool = False,
    seed: int | None = None,
    last: str = "short",
    columns: dict[str, list[Any]] | None = None,
) -> Batches:
    """Returns the batches of data: an iterator as it is; arrays, tables and dicts of arrays as an ArrayIterator; a loader as a source.

    y: targets, or in a table or dict the name of its column or entry, or the names of several columns. target: the entry that a Trainer
    takes for the target. axes: names of axes, batch first: "N H W C" for the inputs, or a dict by entry. columns: of earlier tables by
    entry, in the order that the model was given them; those of new tables are added. Raises ArgumentError for data that do not fit.
    """
    target = target if isinstance(target, str) else None
    if isinstance(x, (list, tuple)) and any(isinstance(own, Batches) for own in x):
        fix = "pass one of them; `evaluate` takes several by name: evaluate({'valid': valid, 'test': test})"
        raise refuse("fit", f"{len(x)} sets came in a {type(x).__name__}", fix)
    if isinstance(x, Batches) or is_loader(x):
        if y is not None:
            raise refuse("fit", "the batches have their targets, and y came beside them", "leave it out; valid= is for another set")
        return x if isinstance(x, Batches) else _from_loader(x, axes, model, target)
    if not (isinstance(x, (Mapping, list, tuple)) or hasattr(x, "__array__") or hasattr(x, "to_numpy")):
        fix = f"pass arrays, a table, ArrayIterator({{'image': images, 'label': labels}}, batch_size=128), or {LOADER}"
        raise wrong_kind("fit", f"{type(x).__name__} is neither an array nor an iterator over batches", fix)
    if is_frame(x):
        y = target or usual(map(str, x.columns)) if y is None else y
        if isinstance(y, str):
            _check_known(y, map(str, x.columns))
            entries = {"x": x[[name for name in x.columns if str(name) != y]], y: x[y]}
            target, y = y, None
        elif are_names(y):
            for column in y:
                _check_known(column, map(str, x.columns))
            entries = {"x": x[[name for name in x.columns if str(name) not in y]]}
            y = x[[next(name for name in x.columns if str(name) == column) for column in y]]
        else:
            entries = {"x": x}
    else:
        entries = {str(k): v for k, v in x.items()} if isinstance(x, Mapping) else {"x": x}
    if isinstance(y, str):
        _check_known(y, entries)
        target = y
    elif isinstance(y, Mapping):
        entries |= y
        target = target or next(iter(y), None)
    elif y is not None:
        target = target or "y"
        entries[target] = y
    name = target if target in entries else usual(entries)
    if columns is not None:
        entries = {key: data if key == name else _in_order(key, data, columns) for key, data in entries.items()}
    held = entries_of(entries, axes, model, name)
    return ArrayIterator(held, batch_size, tgt_key=name or "label", shuffle=shuffle, seed=seed, last=last)


def _in_order(key: str, data: Any, columns: dict[str, list[Any]]) -> Any:
    """Returns a table with the columns that the first one had, in their order; other data as they are."""
    if not is_frame(data):
        return data
    known, there = columns.setdefault(key, list(data.columns)), list(data.columns)
    lacking = [str(name) for name in known if name not in there]
    if lacking:
        why = f"{key} has no column {', '.join(lacking)}; the model was given {', '.join(map(str, known))}"
        raise refuse("fit", why, "name the columns as they were; table.to_numpy() goes by their order")
    return data if known == there else data[known]


def are_names(y: Any) -> bool:
    """Whether targets are a list of names of columns."""
    return isinstance(y, (list, tuple)) and bool(y) and all(isinstance(name, str) for name in y)


def _check_known(name: str, names: Iterable[str]) -> None:
    known = list(names)
    if name not in known:
        meant = nearest(name, known)
        fix = f"take y={meant!r}" if meant else f"take one of {', '.join(known)}"
        raise refuse("fit", f"y names {name!r}, and the data have {', '.join(known)}", fix)


def held_out(x: Any, y: Any, share: float) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Returns ((x, y), (x, y)) of arrays or tables: the first examples, and the last ones, `share` of all. Raises ArgumentError."""
    if isinstance(x, Batches) or is_loader(x):
        raise refuse("fit", f"valid={share} is a share of arrays, and these are batches", "pass valid= an iterator of its own")

    def part(held: Any, rows: slice) -> Any:
        if isinstance(held, Mapping):
            return {k: v if k == "axes" else part(v, rows) for k, v in held.items()}
        return (
            held if held is None or isinstance(held, str) or are_names(held) else held.iloc[rows] if hasattr(held, "iloc") else held[rows]
        )

    first: Any = x
    while isinstance(first, Mapping):
        first = next(iter(first.values()))
    edge = len(first) - max(int(len(first) * share), 1)
    if edge < 1:
        raise refuse("fit", f"valid={share} leaves none of {len(first)} examples to train on", "take a smaller share")
    return (part(x, slice(edge)), part(y, slice(edge))), (part(x, slice(edge, None)), part(y, slice(edge, None)))
