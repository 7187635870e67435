"""Rules for loops, choices and effects: their bodies are graphs, which see the names of the enclosing graph."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph.export.onnx.names import onnx_name
from ngraph.export.onnx.rules import BOOL
from ngraph.export.onnx.writer import INT64, NODES, Cannot, GraphWriter, TensorRef, constraints
from ngraph.program.program import AxisId, Program, Step, Value

Axes = tuple[AxisId, ...]


def _real(values: Sequence[Value]) -> list[Value]:
    """Returns the values that are not the token: nodes with effects do not exist."""
    return [v for v in values if v.dtype.kind != "token"]


def _given(step: Step, made: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    """Returns the results of a step, tokens included."""
    rest = iter(made)
    return tuple([TensorRef("", (), v.dtype) if v.dtype.kind == "token" else next(rest) for v in step.results])


def _taken(w: GraphWriter, op: str, values: Sequence[Value]) -> None:
    """Raises Cannot for a loop or a choice that cannot carry or give elements of these types at this opset."""
    for v in values:
        if onnx_name(v.dtype) not in constraints(op, w.opset)["V"]:
            raise Cannot(f"{op} of {v.dtype} at opset {w.opset}")


def _filled(body: GraphWriter, program: Program, dims: Sequence[Axes]) -> list[TensorRef]:
    """Adds the nodes of a body; returns its outputs with all their axes, in these orders."""
    body.run()
    outputs = _real(program.outputs)
    return [body.full(body.refs[v], d) for v, d in zip(outputs, dims, strict=True)]


@NODES.of("scan")
def _scan(
    w: GraphWriter, step: Step, *refs: TensorRef, body: Program, axis: AxisId, reverse: bool, carries: int, xs: int
) -> tuple[TensorRef, ...]:
    count = len(_real(body.inputs[:carries]))
    given = [r for r, v in zip(refs, step.inputs, strict=True) if v.dtype.kind != "token"]
    holes = _real(body.inputs)
    axes = [tuple(v.axes) for v in holes]
    state = [w.full(r, a) for r, a in zip(given[:count], axes, strict=False)]
    # not by attributes of Scan: ONNX Runtime's crashes where it transposes what has no elements
    sliced = [w.full(r, (axis, *[a for a in r.dims if a != axis])) for r in given[count : count + xs]]
    ys = [tuple(v.axes) for v in _real(body.outputs)[count:]]
    if w.length(axis) == 0:
        kinds = [v.dtype for v in _real(body.outputs)[count:]]
        return _given(step, [*state, *[w.filled(0, (axis, *a), d) for a, d in zip(ys, kinds, strict=True)]])
    _taken(w, "Scan", [*holes[: count + xs], *_real(body.outputs)])
    inner = w.body("body", body)
    for v, r in zip(holes[:count], state, strict=True):
        inner.refs[v] = inner.taken(v.hint or "carry", r)
    for v, r in zip(holes[count : count + xs], sliced, strict=True):
        inner.refs[v] = inner.taken(v.hint or "slice", TensorRef(r.name, tuple([a for a in r.dims if a != axis]), r.dtype))
    for v, r in zip(holes[count + xs :], given[count + xs :], strict=True):
        inner.refs[v] = r
    if not sliced:  # a Scan needs a sliced input
        sliced = [w.counted(axis)]
        inner.taken("trip", TensorRef("", (), INT64))
    inner.leave(_filled(inner, body, [*axes[:count], *ys]))
    way = int(reverse)
    names = w.node(
        "Scan",
        [r.name for r in (*state, *sliced)],
        count + len(ys),
        body=inner.part,
        num_scan_inputs=len(sliced),
        scan_input_directions=[way] * len(sliced) if way else None,
        scan_output_directions=[way] * len(ys) if way and ys else None,
    )
    dims = [*axes[:count], *[(axis, *a) for a in ys]]
    results = _real(step.results)
    return _given(step, [TensorRef(n, d, v.dtype) for n, d, v in zip(names, dims, results, strict=True)])


@NODES.of("while")
def _while(w: GraphWriter, step: Step, *refs: TensorRef, cond: Program, body: Program, carries: int) -> tuple[TensorRef, ...]:
    """Adds a Loop, which evaluates its condition at the end of each iteration; the first evaluation precedes it."""
    count = len(_real(body.inputs[:carries]))
    holes = _real(body.inputs)
    given = [r for r, v in zip(refs, step.inputs, strict=True) if v.dtype.kind != "token"]
    axes = [tuple(v.axes) for v in holes]
    state = [w.full(r, a) for r, a in zip(given[:count], axes, strict=False)]
    _taken(w, "Loop", holes[:count])
    first = _asked(w, cond, [*state, *given[count:]])
    inner = w.body("body", body)
    inner.taken("turn", TensorRef("", (), INT64))
    inner.taken("go", TensorRef("", (), BOOL))
    for v, r in zip(holes[:count], state, strict=True):
        inner.refs[v] = inner.taken(v.hint or "carry", r)
    for v, r in zip(holes[count:], given[count:], strict=True):
        inner.refs[v] = r
    new = _filled(inner, body, axes[:count])
    go = _asked(inner, cond, [*new, *given[count:]])
    inner.leave([go, *new])
    names = w.node("Loop", ["", first.name, *[r.name for r in state]], count, body=inner.part)
    return _given(step, [TensorRef(n, a, r.dtype) for n, a, r in zip(names, axes, state, strict=False)])


def _asked(w: GraphWriter, cond: Program, values: Sequence[TensorRef]) -> TensorRef:
    """Returns the condition, computed among the nodes of a graph."""
    inner = w.beside(cond)
    for v, r in zip(_real(cond.inputs), values, strict=True):
        inner.refs[v] = r
    (asked,) = _filled(inner, cond, [()])
    return asked


@NODES.of("cond")
def _cond(w: GraphWriter, step: Step, p: TensorRef, *refs: TensorRef, **branches: Program) -> tuple[TensorRef, ...]:
    given = [r for r, v in zip(refs, step.inputs[1:], strict=True) if v.dtype.kind != "token"]
    dims = [tuple(v.axes) for v in _real(branches["then"].outputs)]
    _taken(w, "If", _real(step.results))
    parts = {}
    for name, program in branches.items():
        inner = w.body(name, program)
        for v, r in zip(_real(program.inputs), given, strict=True):
            inner.refs[v] = r
        inner.leave(_filled(inner, program, dims))
        parts[f"{name}_branch"] = inner.part
    names = w.node("If", [w.arranged(p, ()).name], len(dims), **parts)
    return _given(step, [TensorRef(n, d, v.dtype) for n, d, v in zip(names, dims, _real(step.results), strict=True)])


@NODES.of("effect")
def _effect(w: GraphWriter, step: Step, *refs: TensorRef, kind: str, text: str) -> TensorRef:
    if kind != "nothing":
        raise Cannot(f"{'a print' if kind == 'print' else f'the host call {kind}'}: nodes have no effects")
    return TensorRef("", (), step.result.dtype)
