"""Keras chooses its backend by name in six modules: an import hook gives each one more branch, `ngraph`.

In another, lengths that are open are made None in shapes.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from ngraph.errors import StateError
from ngraph.warn import warn

TESTED = ("3.12.4", "3.13.2", "3.14.1", "3.15.1")  # versions of Keras under test

LAST = re.compile(r"^else:\n(?=    raise )", re.MULTILINE)  # what ends a chain of branches
SHAPE = re.compile(r"(?<=^def standardize_shape\(shape\):\n)", re.MULTILINE)


def branch(asked: str, body: str) -> tuple[re.Pattern[str], Any]:
    """Returns where a chain of branches on a name ends, and one more branch."""
    return LAST, f'elif {asked} == "ngraph":\n{body}else:\n'


# for each module where something is put, and what
BRANCHES: dict[str, tuple[re.Pattern[str], Any]] = {
    "keras.src.backend": branch(
        "backend()",
        "    from ngraph.keras.backend import *\n"
        "    from ngraph.keras.core import TracedVariable as BackendVariable\n"
        "    distribution_lib = None\n",
    ),
    "keras.src.layers.layer": branch("backend.backend()", "    from ngraph.keras.layer import NgraphLayer as BackendLayer\n"),
    "keras.src.models.model": branch("backend.backend()", "    from ngraph.keras.trainer import NgraphTrainer as Trainer\n"),
    "keras.src.export.saved_model": branch(  # whose name for it is the second before Keras 3.14
        "backend.backend()",
        "    from ngraph.keras.export import ExportArchive as BackendSavedModelExportArchive\n"
        "    BackendExportArchive = BackendSavedModelExportArchive\n",
    ),
    "keras.src.utils.backend_utils": (  # layers of preprocessing name the backend in which they run
        re.compile(r"^(?=        if self\._backend == \"tensorflow\":\n            module)", re.MULTILINE),
        '        if self._backend == "ngraph":\n            return getattr(backend_module, name)\n',
    ),
    "keras.src.export.onnx": (
        re.compile(r"^(?=    else:\n        raise NotImplementedError)", re.MULTILINE),
        '    elif backend.backend() == "ngraph":\n'
        "        from ngraph.keras.export import export_onnx as written\n"
        "        written(model, filepath, input_signature, opset_version)\n",
    ),
    "keras.src.backend.common.variables": (  # lengths that are open are None in shapes, as those of JAX and torch are
        SHAPE,
        "    from ngraph.keras.tensors import closed_shape\n    shape = closed_shape(shape)\n",
    ),
}


class BranchLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of Keras with the branch for ngraph in front of the error for unknown backends."""

    def get_code(self, fullname: str) -> CodeType:
        place, text = BRANCHES[fullname]
        made, many = place.subn(text, self.get_source(fullname) or "")
        if not many:
            raise StateError(
                f"{fullname} of this Keras chooses its backend in another way than the tested versions", fix=f"install keras=={TESTED[-1]}"
            )
        return compile(made, self.get_filename(fullname), "exec", dont_inherit=True)


class BranchFinder:
    """Finds these modules, and leaves all others to Python."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if fullname not in BRANCHES:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        loader = BranchLoader(fullname, found.origin)
        where = found.submodule_search_locations
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader, submodule_search_locations=where)


def install() -> None:
    """Makes Keras run on ngraph. Raises StateError where Keras has been imported with another backend."""
    if "keras" in sys.modules or "keras.src.backend" in sys.modules:
        backend = getattr(sys.modules.get("keras.src.backend.config"), "_BACKEND", "another")
        if backend != "ngraph":
            raise StateError(f"Keras has been imported with the backend {backend}", fix="import ngraph.keras before keras")
        return
    os.environ["KERAS_BACKEND"] = "ngraph"
    if not any(f is BranchFinder for f in sys.meta_path):
        sys.meta_path.insert(0, BranchFinder)
    import keras
    from keras.src.ops import nn

    # x / s - mean / s, as Keras has it, is not 0 where x is the mean: one of both products is part of a fused sum, the other is rounded.
    norm = inspect.getsource(nn._layer_normalization).replace("res = -mean * inv", "x, res = x - mean, 0.0")
    exec(compile(norm, nn.__file__, "exec"), vars(nn))
    if keras.__version__ not in TESTED:
        warn(f"Keras {keras.__version__} on ngraph is not tested; {', '.join(TESTED)} are.")
