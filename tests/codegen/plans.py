"""Runs plans whose kernels are compiled: memory and routines are those of the plan's interpreter, kernels are machine code."""

import ctypes

import numpy as np

from ngraph.codegen.kernel import emit
from ngraph.op_graph import expr
from ngraph.op_graph.expr import Len
from ngraph.plan.interpret import PlanRun
from ngraph.runtime.host import jit
from ngraph.targets import host

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
LOADED = {}


def load(text, target):
    """Compiled code; equal texts are compiled once."""
    if (text, target) not in LOADED:
        LOADED[text, target] = jit.load(text, target)
    return LOADED[text, target]


class Compiled(PlanRun):
    """A plan being run: each kernel in pieces, the last ones first, each with memory of its own."""

    target, pieces = host(), 3

    def kernel(self, kernel):
        for b in kernel.targets:
            self.place(b)
        self.launch(emit(self.plan, kernel, self.target))

    def launch(self, code):
        """Runs the work items of a kernel in pieces."""
        for b in code.buffers:
            if b.storage in ("input", "state", "constant") and not self.arrays[b].flags.c_contiguous:
                self.arrays[b] = np.array(self.arrays[b], order="C")
        numbers = [self.arrays[b].ctypes.data for b in code.buffers] + [self.length(a) for a in code.lengths]
        args = np.array(numbers, np.int64)
        items = self.number(code.work_items)
        cuts = [items * k // self.pieces for k in range(self.pieces + 1)]
        run = CALL(load(code.text, self.target).address("kernel"))
        for first, last in reversed(list(zip(cuts, cuts[1:], strict=False))):
            scratch = np.full(self.number(code.scratch) + 64, 0xA5, np.uint8)
            run(args.ctypes.data, first, last, (scratch.ctypes.data + 63) & -64)

    def number(self, e):
        return expr.evaluate(e, lambda x: self.length(x.of) if type(x) is Len else None)


def run(plan, inputs, state=None, lengths=None, target=None, kind=Compiled):
    """Outputs, and the state afterwards."""
    r = kind(plan, dict(lengths or {}))
    r.target = target or kind.target
    for b, array in zip(plan.inputs, inputs, strict=True):
        r.take(b, np.ascontiguousarray(array) if np.ndim(array) else np.array(array))
    given = dict(state or {})
    for name, before, _ in plan.state:
        r.take(before, np.array(given[name], order="C"))
    if plan.token_in is not None:
        r.arrays[plan.token_in] = None
    for step in plan.every:
        r.kernel(step) if hasattr(step, "stages") else r.routine(step)
    given.update({name: r.arrays[after] for name, _, after in plan.state})
    return [r.arrays[b] for b in plan.outputs], given
