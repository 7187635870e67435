"""Saver: weights and all other state of a computation in one file, .npz or .safetensors, by the names of its variables."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ngraph.errors import ArgumentError, ParseError, StateError
from ngraph.frontends.neon.calls import Checked, public
from ngraph.op_graph.files import write_whole
from ngraph.op_graph.op import Op
from ngraph.parts import nest
from ngraph.runtime.weights import read_arrays, write_arrays
from ngraph.warn import warn


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns {name: array} of a .npz or .safetensors file. Raises ParseError where it is neither."""
    name = os.fspath(path)
    if name.endswith(".npz"):
        try:
            with np.load(name, allow_pickle=False) as held:
                return {k: held[k] for k in held.files}
        except (ValueError, OSError, EOFError) as error:
            if not os.path.exists(name):
                raise
            raise ParseError(f"{name} is not a .npz file of arrays: {error}", fix="give a file that save() wrote, whole") from None
    return read_arrays(name)


def write_weights(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], compress: bool = False) -> None:
    """Writes {name: array} to a .npz or .safetensors file, atomically. Raises ArgumentError for another extension."""
    name = os.fspath(path)
    if name.endswith(".safetensors"):
        return write_arrays(name, arrays)
    if not name.endswith(".npz"):
        raise ArgumentError(
            f"{name}: weights are kept as .safetensors or .npz", fix=f"name it {os.path.splitext(name)[0] + '.safetensors'!r}"
        )
    held = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(held, allow_pickle=False, **arrays)
    write_whole(name, held.getvalue())


def states_of(computation: Any) -> dict[str, Op]:
    """Returns the state that a computation (or a nest of ops) depends on or writes and that outlives the process, by name."""
    roots = computation
    if not isinstance(roots, Op):
        roots = getattr(getattr(computation, "computation", computation), "results", computation)
        roots = getattr(roots, "ops", getattr(roots, "returns", roots))
    ops = [root for root in nest.leaves(list(roots) if isinstance(roots, (set, frozenset)) else roots) if root is not None]
    found = {o.name: o for o in Op.all_op_references(ops) if o.is_variable and o.is_persistent}
    return dict(sorted(found.items()))


def transfer(transformer: Any, variables: Mapping[str, Op], arrays: Mapping[str, np.ndarray], strict: bool = False) -> dict[str, list[str]]:
    """Sets variables to the arrays of their names. Returns {"matched", "missing", "left over", "other shape"}: names.

    strict: raises StateError, before any change, unless all match.
    """
    report: dict[str, list[str]] = {"matched": [], "missing": [], "left over": [n for n in arrays if n not in variables], "other shape": []}
    for name, variable in variables.items():
        if name not in arrays:
            report["missing"].append(name)
        else:
            same = arrays[name].shape == tuple(variable.axes.lengths)
            report["matched" if same else "other shape"].append(name)
    wrong = [f"{kind}: {', '.join(names)}" for kind, names in report.items() if names and kind != "matched"]
    if strict and wrong:
        raise StateError(
            "weights do not fit", details=tuple(wrong), fix="make the model as it was when they were saved; strict=False takes what matches"
        )
    for name in report["matched"]:
        transformer.set(variables[name], arrays[name])
    return report


class Saver(Checked):
    """Saves and restores the state of a computation: `setup_save`, then `save` any number of times; `setup_restore`, then `restore`."""

    def __init__(self) -> None:
        self._saved: tuple[Any, dict[str, Op]] | None = None
        self._restored: tuple[Any, dict[str, Op], str] | None = None

    @public
    def setup_save(self, transformer: Any, computation: Any) -> None:
        self._saved = transformer, states_of(computation)

    @public
    def save(self, filename: str, compress: bool = False, transformer: Any = None, computation: Any = None) -> None:
        """Writes the file atomically; `.npz` is added to a name without an extension. Raises StateError before `setup_save`."""
        if computation is not None:
            self.setup_save(transformer, computation)
        if self._saved is None:
            raise StateError("save without setup_save", fix="call saver.setup_save(transformer, computation) first")
        transformer, variables = self._saved
        write_weights(_named(filename), {name: transformer.get(v) for name, v in variables.items()}, compress)

    @public
    def setup_restore(self, transformer: Any, computation: Any, filename: str) -> None:
        self._restored = transformer, states_of(computation), filename

    @public
    def restore(self, transformer: Any = None, computation: Any = None, filename: str | None = None) -> dict[str, list[str]]:
        """Sets state to the values of the file; warns of names that only one side has. Returns the report of `transfer`."""
        if computation is not None and filename is not None:
            self.setup_restore(transformer, computation, filename)
        if self._restored is None:
            raise StateError("restore without setup_restore", fix="call saver.setup_restore(transformer, computation, filename) first")
        transformer, variables, filename = self._restored
        report = transfer(transformer, variables, read_weights(_named(filename)))
        wrong = [f"{kind}: {', '.join(names)}" for kind, names in report.items() if names and kind != "matched"]
        if wrong:
            warn(f"{filename}: {'; '.join(wrong)}")
        return report


def _named(filename: str) -> str:
    return filename if os.path.splitext(filename)[1] in (".npz", ".safetensors") else filename + ".npz"
