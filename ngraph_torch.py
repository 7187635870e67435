"""What PyTorch calls when it is imported (entry point group `torch.backends`): the name "NGRAPH" in accelerate's list of backends.

accelerate takes no other names for `Accelerator(dynamo_backend=…)`, nor does transformers for `TrainingArguments(torch_compile_backend=…)`.
Where accelerate is never imported, nothing happens. This module imports nothing of ngraph, so that `import torch` costs no more.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

HOME = "accelerate.utils.dataclasses"


def listed(module: ModuleType) -> None:
    """Adds the name to accelerate's enum of backends, where it is not there."""
    kind = getattr(module, "DynamoBackend", None)
    if kind is None or "NGRAPH" in kind.__members__:
        return
    member = str.__new__(kind, "NGRAPH")
    member._name_ = member._value_ = "NGRAPH"
    member.__objclass__ = kind
    kind._member_map_["NGRAPH"] = kind._value2member_map_["NGRAPH"] = member
    kind._member_names_.append("NGRAPH")


def loaded(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Runs accelerate's module, and adds the name."""
    run(module)
    listed(module)


class Watch(MetaPathFinder):
    """Finds accelerate's module as the other finders do, once, and adds the name after it has run."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != HOME:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)  # type: ignore[arg-type]
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module = partial(loaded, spec.loader.exec_module)  # type: ignore[method-assign]
                return spec
        return None


def enable() -> None:
    """Has the name listed now, or when accelerate is imported."""
    if HOME in sys.modules:
        listed(sys.modules[HOME])
    elif not any(isinstance(finder, Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, Watch())
