"""Each kernel of a peer workload's plan alone on one thread: measured beside predicted. `python bench/measured.py WORKLOAD [share]`

Floats are random, all else is zero, so indices are lawful. `share`: the least share of the total to list.
"""

import ctypes
import sys
import time

import numpy as np
from kernels import CALL, aligned
from plans import describe, kernels, program_of

from ngraph.codegen.kernel import emit
from ngraph.op_graph import expr
from ngraph.plan import Kernel, plan
from ngraph.runtime.host import jit
from ngraph.targets import host


def seconds(made, step, loaded):
    """The best of some runs; one where it is long."""
    code = emit(made, step, host())
    if code.text not in loaded:
        loaded[code.text] = jit.load(code.text)
    arrays = [aligned(((b.bytes or 0) // b.dtype.np.itemsize + 64,), b.dtype.np) for b in code.buffers]
    draw = np.random.default_rng(0)
    for a in arrays:
        if a.dtype.kind == "f":  # zeros would become denormal numbers, which are slow
            a[...] = draw.standard_normal(a.size, dtype=np.float32)
    args = np.array([a.ctypes.data for a in arrays], np.int64)
    scratch = aligned((int(expr.evaluate(code.scratch, int)) + 64,), np.uint8)
    f, items, best = CALL(loaded[code.text].address("kernel")), expr.evaluate(code.work_items, int), np.inf
    for k in range(20):
        start = time.perf_counter()
        f(ctypes.c_void_p(args.ctypes.data), 0, items, ctypes.c_void_p(scratch.ctypes.data))
        best = min(best, time.perf_counter() - start)
        if k and best > 0.01:
            break
    return best


def main():
    made = plan(program_of(sys.argv[1]))
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    rows, loaded = [], {}
    plans = [(made, 1)]
    for s, n in kernels(made.steps, 1):
        if type(s) is not Kernel:
            plans += [(a, n * (made.length(s.attrs["axis"]) if s.op == "scan" else 1)) for a in s.attrs.values() if hasattr(a, "steps")]
    for p, n in plans:
        rows += [(seconds(p, s, loaded), n, p, s) for s in p.steps if type(s) is Kernel]
    total = sum(t * n for t, n, _, _ in rows)
    print(
        f"{total * 1e3:.2f} ms on one thread; predicted on two: {sum(s.seconds * n for _, n, _, s in rows) * 1e3:.2f}; {len(loaded)} codes"
    )
    for t, n, p, s in rows:
        if t * n > share * total:
            print(f"{t * 1e6:9.1f} us x{n:<4} {t / max(s.seconds, 1e-9):5.1f} times", describe(p, s)[:260])


if __name__ == "__main__":
    main()
