"""A compiled plan without addresses: its tables as images, and what their regions hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ngraph.errors import UnsupportedError
from ngraph.op_graph.expr import ExprLike, maximum
from ngraph.runtime.host.image import TableImage
from ngraph.transformers.executable.code import HostCallback, Step, title
from ngraph.transformers.executable.device import LoadedKernel
from ngraph.transformers.executable.frame import BufferAddresses, InstantiatedPlan, starting
from ngraph.transformers.executable.table import ARENA, ONCE, TABLE, Address, ConstantRegion, Table


class PortablePlan(NamedTuple):
    """Three tables: `once` for what does not change from call to call, `start` for a new arena, `steps` for a call.

    kernels     for regions `kernel k`: the key of the object in which the function `kernel` lies
    constants   for regions `constant k`: the array that lies there
    """

    once: TableImage
    start: TableImage
    steps: TableImage
    kernels: dict[str, bytes]
    constants: dict[str, np.ndarray]


def portable(bound: InstantiatedPlan) -> PortablePlan:
    """Returns the portable form of `bound`, for all lengths. Raises UnsupportedError where Python runs a step or allocates memory."""
    return _Images(bound).plan()


class _Images:
    def __init__(self, bound: InstantiatedPlan):
        self.bound, self.layout = bound, bound.layout
        self.kernels: dict[str, bytes] = {}
        self.constants: dict[str, np.ndarray] = {}
        plan = bound.plan
        self.names: dict[Any, str] = {r: r for r in (TABLE, ARENA, ONCE)}
        self.names |= {b: f"output {k}" for k, b in enumerate(plan.outputs) if b.storage == "output"}
        self.names |= {b: f"state {name}" for name, before, after in plan.state for b in (after, before) if b.storage == "state"}
        self.names |= {b: f"input {k}" for k, b in enumerate(plan.inputs)}

    def plan(self) -> PortablePlan:
        code = self.bound.code
        once, start, steps = self.image(code.once), self.image(code.start, inside=True), self.image(code.steps)
        return PortablePlan(once, start, steps, self.kernels, self.constants)

    def image(self, steps: Iterable[Step], inside: bool = False) -> TableImage:
        table = Table()
        scope = BufferAddresses(self.bound, Address(ARENA), Address(ONCE), {}, table, _refuse)
        table.add(scope, list(steps))
        if inside:
            starting(table, scope, self.bound.inner)
        self.refuse_callbacks([table.steps[k] for k in table.hosts])
        scratch: ExprLike = 0
        for n in table.scratches:
            scratch = maximum(scratch, n)
        needs = {"arena": self.layout.total, "once": self.layout.lasting, "scratch": scratch}
        sizes = {name: table.early(n) for name, n in needs.items()}
        table.finish()
        first = len(table.memory) - len(table.array)
        memory = table.memory.copy()
        relocations: dict[str, list[tuple[int, int]]] = {}
        for region, places in table.relocations.items():
            relocations[self.name(region, table)] = places
            memory[[k for k, _ in places]] = 0
        lengths = {str(a): first + k for a, k in table.lengths.items()}
        return TableImage(memory, relocations, lengths, {name: first + k for name, k in sizes.items()}, table.start)

    def refuse_callbacks(self, steps: Sequence[Any]) -> None:
        """Raises UnsupportedError where Python runs one of these steps, for all that it runs but checks of bounds."""
        calls = [title(s.step) for s in steps if type(s) is HostCallback and s.step.op != "check_bounds"]
        if calls:
            raise UnsupportedError(
                f"{self.bound.plan.name} has no portable form: Python runs {'; '.join(calls)}, and a file without Python cannot",
                fix="build the graph without these ops, or give what they print or take to the caller as results and inputs",
            )
        if not all(type(s) is HostCallback for s in steps):
            _refuse(self.bound.plan)

    def name(self, region: Any, table: Table) -> str:
        if region not in self.names:
            if isinstance(region, LoadedKernel):
                self.names[region] = f"kernel {len(self.kernels)}"
                self.kernels[self.names[region]] = region.key
            elif isinstance(region, ConstantRegion):
                self.names[region] = f"constant {len(self.constants)}"
                assert region.of.value is not None
                self.constants[self.names[region]] = np.ascontiguousarray(region.of.value.array)
            else:
                _refuse(region)
        return self.names[region]


def _refuse(of: Any, array: Any = None) -> NoReturn:
    raise UnsupportedError(
        f"{getattr(of, 'name', of)!r} has no portable form: lengths are counted while it runs, and nothing bounds them before",
        fix="give a bound of these lengths, or lengths that inputs have, such as a mask instead of the elements that are chosen",
    )
