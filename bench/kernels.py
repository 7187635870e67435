"""How fast single kernels are beside NumPy, PyTorch and a copy of the same bytes: all on one thread, in one process, in turn.

python bench/kernels.py [part of a name …] [--rounds 40] [--spills] [--schedules]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import time
from collections.abc import Callable
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy reads it

import numpy as np

import ngraph as ng
from ngraph.codegen.kernel import emit
from ngraph.op_graph import expr
from ngraph.passes import default_passes, run
from ngraph.plan.kernels import Buffer, Kernel
from ngraph.plan.memory import allocate
from ngraph.plan.planner import plan
from ngraph.program.lower import lower
from ngraph.runtime.host import jit
from ngraph.targets import host

CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
CASES: dict[str, Callable[[], Case]] = {}


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(n + 8192, np.uint8)
    start = -memory.ctypes.data % 4096 + 64
    return memory[start : start + n].view(dtype).reshape(shape)


class Case:
    """A function of arrays: ours by its kernels, and what others take for the same."""

    def __init__(
        self, results: Any, holes: list[Any], flops: float = 0, peers: dict[str, Callable[..., Any]] | None = None, dims: Any = ()
    ):
        self.flops, self.peers = flops, peers or {}
        program = run(lower(results, holes).program, default_passes)
        made = plan(program)
        for b in made.buffers:  # layouts by hand: {input number: dims}
            for k, change in dict(dims).items():
                if (k < 0 and b in made.outputs) or (k >= 0 and b is made.inputs[k]):
                    change(b)
        for r in [r for k in made.kernels for stage in k.stages for r in stage.reads() if r.source.border]:
            r.predicate = ()  # the border holds what lies outside
        allocate(made)
        self.plan = made
        draw = np.random.default_rng(0)
        self.arrays: dict[Buffer, np.ndarray] = {}
        for b in made.buffers:
            self.arrays[b] = aligned(((b.bytes or 0) // (b.dtype.bits // 8),), b.dtype.np)
            if b in made.inputs:
                self.arrays[b][...] = (
                    draw.normal(size=self.arrays[b].shape) if b.dtype.is_float else draw.integers(0, 9, self.arrays[b].shape)
                )
        self.bytes = sum(b.bytes or 0 for b in (*made.inputs, *made.outputs))
        self.codes = [emit(made, s, host()) for s in made.every if isinstance(s, Kernel)]
        start = time.perf_counter()
        self.loaded = [jit.load(c.text) for c in self.codes]
        self.compiled = time.perf_counter() - start
        self.calls = []
        for code, load in zip(self.codes, self.loaded, strict=True):
            args = np.array([self.arrays[b].ctypes.data for b in code.buffers], np.int64)
            scratch = aligned((int(expr.evaluate(code.scratch, int)) + 64,), np.uint8)
            self.calls.append(
                (CALL(load.address("kernel")), args.ctypes.data, expr.evaluate(code.work_items, int), scratch.ctypes.data, (args, scratch))
            )

    def __call__(self) -> None:
        for f, args, items, scratch, _ in self.calls:
            f(args, 0, items, scratch)

    def given(self) -> list[np.ndarray]:
        return [self.arrays[b] if b.border or b.dims[-1][1:] != (1, None) else self.shaped(b) for b in self.plan.inputs]

    def shaped(self, b: Buffer) -> np.ndarray:
        return self.arrays[b].reshape([self.plan.length(a) for a in b.axes])


def case(f: Callable[[], Case]) -> Callable[[], Case]:
    CASES[f.__name__] = f
    return f


def axes(**lengths: int) -> list[Any]:
    return [ng.make_axis(n, name=a) for a, n in lengths.items()]


def hole(*of: Any) -> Any:
    return ng.placeholder(list(of), dtype=np.float32)


def panels(width: int) -> Callable[[Buffer], None]:
    """The last axis in panels of so many, the others inside."""

    def change(b: Buffer) -> None:
        *rest, (last, _, _) = b.dims
        b.dims = ((last, width, None), *rest, (last, 1, width))

    return change


def blocks(axis: int, width: int, border: int = 0, first: int = 1) -> Callable[[Buffer], None]:
    """One axis in blocks of so many that lie innermost; a border around the axes after it."""

    def change(b: Buffer) -> None:
        a = b.dims[axis][0]
        others = [d for d in b.dims if d[0] != a]
        b.dims = (*others[:first], (a, width, None), *others[first:], (a, 1, width))
        b.border = {d[0]: (border, border) for d in others[first:]} if border else {}

    return change


def norm_gelu(x: Any, g: Any, b: Any, h: Any) -> Any:
    m = ng.mean(x, reduction_axes=[h])
    d = x - m
    y = d * (1 / ng.sqrt(ng.mean(d * d, reduction_axes=[h]) + 1e-5)) * g + b
    return y * ng.sigmoid(1.5957691216 * (y + 0.044715 * y * y * y))


@case
def copy() -> Case:
    n, h = axes(N=13020, H=768)
    x = hole(n, h)
    return Case([x + 1.0], [x], peers={"numpy": lambda x: x + 1})


@case
def layernorm_gelu() -> Case:
    n, h = axes(N=13020, H=768)
    x, g, b = hole(n, h), hole(h), hole(h)

    def peer(x: Any, g: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (768,), g, b), approximate="tanh") + x

    return Case([norm_gelu(x, g, b, h) + x], [x, g, b], peers={"torch": peer})


@case
def softmax() -> Case:
    n, h = axes(N=4096, H=1000)
    x = hole(n, h)
    return Case([ng.softmax(x, normalization_axes=[h])], [x], peers={"torch": lambda x: torch.softmax(x, 1)})


@case
def softmax_outer() -> Case:
    n, h = axes(N=100, H=4096)
    x = hole(n, h)
    return Case([ng.softmax(x, normalization_axes=[n])], [x], peers={"torch": lambda x: torch.softmax(x, 0)})


@case
def batch_norm() -> Case:
    n, c, h, w = axes(N=32, C=64, H=56, W=56)
    x, g, b = hole(n, c, h, w), hole(c), hole(c)
    m = ng.mean(x, reduction_axes=[n, h, w])
    d = x - m
    v = ng.mean(d * d, reduction_axes=[n, h, w])
    return Case(
        [d / ng.sqrt(v + 1e-5) * g + b, m, v],
        [x, g, b],
        peers={"torch": lambda x, g, b: torch.nn.functional.batch_norm(x, None, None, g, b, True)},
    )


@case
def lstm_cell() -> Case:
    n, h = axes(N=64, H=512)
    gates, c = [hole(n, h) for _ in range(4)], hole(n, h)
    i, f, o = (ng.sigmoid(x) for x in gates[:3])
    new = f * c + i * ng.tanh(gates[3])

    def peer(a: Any, b: Any, d: Any, e: Any, c: Any) -> Any:
        new = torch.sigmoid(b) * c + torch.sigmoid(a) * torch.tanh(e)
        return torch.sigmoid(d) * torch.tanh(new)

    return Case([new, o * ng.tanh(new)], [*gates, c], peers={"torch": peer})


def gemm(m: int, n: int, k: int, width: int = 0) -> Case:
    i, j, l = axes(I=m, J=n, L=k)
    x, w = hole(i, l), hole(l, j)
    return Case(
        [ng.dot(x, w)],
        [x, w],
        2.0 * m * n * k,
        {
            "torch": lambda x, w: torch.matmul(x, w[: k * n].reshape(k, n) if w.ndim == 1 else w),
            "numpy": lambda x, w: np.matmul(x, w[: k * n].reshape(k, n) if w.ndim == 1 else w),
        },
        {1: panels(width)} if width else (),
    )


for _m, _n, _k in (
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (128, 512, 784),
    (512, 512, 512),
    (1536, 1536, 1536),
    (64, 2624, 640),
):
    for _w in (0, 32, 48, 64):
        CASES[f"gemm_{_m}_{_n}_{_k}{f'_panels{_w}' if _w else ''}"] = lambda m=_m, n=_n, k=_k, w=_w: gemm(m, n, k, w)


@case
def gemm_nt() -> Case:
    i, j, l = axes(I=128, J=768, L=768)
    x, w = hole(i, l), hole(j, l)
    return Case([ng.dot(x, w)], [x, w], 2.0 * 128 * 768 * 768, {"torch": lambda x, w: torch.matmul(x, w.T)})


@case
def gemm_tn() -> Case:
    i, j, l = axes(I=784, J=112, L=128)
    x, w = hole(l, i), hole(l, j)
    return Case([ng.dot(x, w)], [x, w], 2.0 * 784 * 112 * 128, {"torch": lambda x, w: torch.matmul(x.T, w)})


@case
def gemm_tt() -> Case:
    i, j, l = axes(I=128, J=768, L=768)
    x, w = hole(l, i), hole(j, l)
    return Case([ng.dot(x, w)], [x, w], 2.0 * 128 * 768 * 768, {"torch": lambda x, w: torch.matmul(x.T, w.T)})


@case
def attention() -> Case:
    q, k, d, heads = axes(Q=128, K=128, D=64, E=12)
    v = ng.make_axis(64, name="V")
    x, y, z = hole(heads, q, d), hole(heads, k, d), hole(heads, k, v)
    scores = ng.sum(x * y, reduction_axes=[d]) * 0.125
    return Case(
        [ng.sum(ng.softmax(scores, normalization_axes=[k]) * z, reduction_axes=[k])],
        [x, y, z],
        4.0 * 12 * 128 * 128 * 64,
        {"torch": lambda x, y, z: torch.softmax(x @ y.transpose(1, 2) * 0.125, 2) @ z},
    )


@case
def gemv() -> Case:
    return gemm(1, 4096, 1024)


@case
def gemv_panels64() -> Case:
    return gemm(1, 8192, 4096, 64)


def conv(c: int, k: int, size: int, window: int, stride: int = 1, n: int = 1, width: int = 32, blocked: bool = True) -> Case:
    b, ci, ko, h, w, r, s = axes(N=n, C=c, K=k, H=size, W=size, R=window, S=window)
    x, f = hole(b, ci, h, w), hole(ko, ci, r, s)
    y = ng.relu(ng.conv(x, f, {h: r, w: s}, stride=stride, padding=window // 2))
    out = size // stride

    def filters(buffer: Buffer) -> None:
        (o, _, _), (i, _, _), (a, _, _), (d, _, _) = buffer.dims
        outer = ((i, 16, None),) if c % 16 == 0 else ()
        inner = ((i, 1, 16),) if c % 16 == 0 else ((i, 1, None),)
        buffer.dims = ((o, width, None), *outer, (a, 1, None), (d, 1, None), *inner, (o, 1, width))

    def bordered(b: Buffer) -> None:
        b.border = {d[0]: (window // 2, window // 2) for d in b.dims[2:]}

    dims: dict[int, Any] = {0: blocks(1, 16, window // 2) if c % 16 == 0 else bordered, 1: filters, -1: blocks(1, 16, window // 2)}

    def peer(x: Any, f: Any) -> Any:
        return torch.nn.functional.conv2d(held[0], held[1], stride=stride, padding=window // 2).relu_()

    held: list[Any] = []

    def first(*_: Any) -> Any:
        if not held:
            held.extend([torch.randn(n, c, size, size).to(memory_format=torch.channels_last), torch.randn(k, c, window, window)])
        return peer(*held)

    return Case([y], [x, f], 2.0 * n * out * out * k * c * window * window, {"torch": first}, dims if blocked else ())


for _args in (
    (64, 64, 56, 3),
    (256, 256, 14, 3),
    (256, 64, 56, 1),
    (128, 128, 56, 3, 2),
    (3, 64, 224, 7, 2),
    (512, 512, 7, 3),
    (1024, 256, 14, 1),
):
    CASES["conv_" + "_".join(map(str, _args))] = lambda a=_args: conv(*a)
CASES["conv_nchw_64_64_56_3"] = lambda: conv(64, 64, 56, 3, blocked=False)


@case
def max_pool() -> Case:
    n, c, h, w = axes(N=8, C=64, H=112, W=112)
    x = hole(n, c, h, w)
    y = ng.max_pool(x, {h: 2, w: 2}) if hasattr(ng, "max_pool") else x
    return Case([y], [x], peers={"torch": lambda x: torch.nn.functional.max_pool2d(x, 2)})


def spills(code: Any) -> int:
    """Vector registers moved to or from the stack."""
    return len(re.findall(r"[xyz]mm\d+.*\(%rsp|\(%rsp\S*\), %[xyz]mm", jit.compile_assembly(code.text, host())))


def best(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The best time of each, called in turn."""
    found = {name: float("inf") for name in calls}
    for _ in range(rounds):
        for name, f in calls.items():
            f()
            start = time.perf_counter()
            f()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*")
    options.add_argument("--rounds", type=int, default=40)
    options.add_argument("--spills", action="store_true")
    options.add_argument("--schedules", action="store_true")
    chosen = options.parse_args()
    probe = [torch.randn(1024, 1024) for _ in range(2)] if torch else []
    for name, make in CASES.items():
        if chosen.names and not any(re.search(p, name) for p in chosen.names):
            continue
        c = make()
        given = c.given()
        calls: dict[str, Callable[[], Any]] = {"ours": c}
        for peer, f in c.peers.items():
            if peer == "torch" and not torch:
                continue
            values = [torch.from_numpy(a) for a in given] if peer == "torch" else given
            calls[peer] = lambda f=f, values=values: f(*values)
        if c.flops and probe:
            calls["sgemm"] = lambda: torch.matmul(*probe)
        if not c.flops:
            a = np.ones(c.bytes // 8, np.float32)
            b = np.ones_like(a)
            calls["copy"] = lambda a=a, b=b: np.copyto(b, a)
        took = best(calls, chosen.rounds)
        line = f"{name:32s}"
        for who, t in took.items():
            rate = (2.0 * 1024**3 if who == "sgemm" else c.flops) / t * 1e-9 if c.flops else c.bytes / t * 1e-9
            line += f" {who} {t * 1e6:8.0f} us {rate:6.1f}"
        print(
            line
            + (" GFLOP/s" if c.flops else " GB/s")
            + f"  {len(c.codes)} kernels, {sum(x.text.count(chr(10)) for x in c.codes)} lines, {c.compiled * 1e3:.0f} ms"
        )
        if chosen.spills:
            print("    spills", [spills(x) for x in c.codes])
        if chosen.schedules:
            for x in c.codes:
                print("   ", x.work_items, "work items,", x.scratch, "bytes;", *x.debug_info.get("schedules", ()), sep=" ")


try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

if __name__ == "__main__":
    main()
