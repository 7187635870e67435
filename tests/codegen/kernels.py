"""Compiles expressions as loops over arrays and runs them; what every test of this room shares."""

import ctypes
import functools

import numpy as np

from ngraph.codegen.math import emit
from ngraph.codegen.text import IRValue, IRWriter, constant
from ngraph.op_graph import dtypes
from ngraph.runtime.host import jit
from ngraph.targets import TARGETS, host

HOST = host()
RUNNABLE = [t for t in TARGETS.values() if t.triple == HOST.triple and t.vector_bits <= HOST.vector_bits]
load = functools.cache(jit.load)  # equal texts are compiled once


def kernel(target, inputs, results, body, lanes=1):
    """IR of `kernel(n, inputs…, results…)`: a loop in vectors of `lanes`, the last one masked; body(w, *values) -> values."""
    w = IRWriter(target)

    def function(n, *pointers):
        from_, to = pointers[: len(inputs)], pointers[len(inputs) :]
        count = IRValue(n, dtypes.int64)

        def turn(i, mask=None):
            values = [w.load(w.at(p, i, d), d, lanes, mask=mask) for p, d in zip(from_, inputs, strict=True)]
            for made, p in zip(body(w, *values), to, strict=True):
                w.store(w.splat(made, lanes), w.at(p, i, made.dtype), mask=mask)
            return []

        whole = w.op("and", count, constant(-lanes, dtypes.int64))
        w.loop(0, whole, lanes, [], turn)
        if lanes > 1:
            left = w.op("sub", count, whole)
            w.when(w.tail(left, 1), [], lambda: turn(whole, w.tail(left, lanes)))

    w.function("kernel", ["i64", *["ptr"] * (len(inputs) + len(results))], function)
    return w.text()


def single(target, op, inputs, result, attrs, lanes=1):
    return kernel(target, inputs, [result], lambda w, *values: [emit(w, op, values, attrs)], lanes)


def run(code, arrays, results):
    """What a loaded kernel gives for these arrays, all of one length."""
    arrays = [np.ascontiguousarray(a) for a in arrays]
    n = len(arrays[0])
    outs = [np.full(n, 77, r.np) for r in results]
    pointers = [a.ctypes.data for a in (*arrays, *outs)]
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))(code.address("kernel"))
    call(n, *pointers)
    return outs


def apply(op, arrays, attrs=None, target=HOST, lanes=None, result=None):
    """One op over arrays, by vectors as wide as the target's unless told."""
    types = [dtypes.as_dtype(a.dtype) for a in arrays]
    result = result or types[-1]
    lanes = lanes or target.lanes(min(max(t.bits for t in types), 32 if types[-1].bits < 32 else 64))
    return run(load(single(target, op, types, result, attrs or {}, lanes), target), arrays, [result])[0]
