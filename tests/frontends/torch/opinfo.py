"""PyTorch's own table of ops, with samples, run through the backend: eager is the oracle, and the table says how near it has to be.

    python tests/frontends/torch/opinfo.py --part 0/4 --into out/opinfo     # a quarter of the entries, into out/opinfo/float32.0.jsonl
    python tests/frontends/torch/opinfo.py --write out/opinfo     # the record, opinfo.json, and from it the table of docs/torch.md

Each entry gets its first samples, each compiled by itself with `fullgraph=True`. A sample that compiled nothing fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import sys
import time
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map_only

import ngraph as ng
from ngraph.frontends.torch import backend

SAMPLES = 10  # of an entry
GRADIENTS = 3  # samples of an entry whose derivatives are taken
LIMIT = 200  # seconds for one entry
RECORD = Path(__file__).with_suffix(".json")
MARKS = ("<!-- the entries, printed by `make torch-ops` -->", "<!-- the end of the entries -->")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
HALVES = (torch.bfloat16, torch.float16)
DTYPES = {str(d).removeprefix("torch."): d for d in (torch.float32, torch.float64, *HALVES, *INTEGERS)}
ANY_VALUES = re.compile(r"(new_)?empty(_like|_strided|_permuted)?$")  # what memory happens to hold


class Late(BaseException):
    """An entry that has run for longer than LIMIT."""


def entries(dtype):
    """Returns the entries of the table that take a dtype on the CPU, by name."""
    return {o.name + ("." + o.variant_test_name if o.variant_test_name else ""): o for o in op_db if o.supports_dtype(dtype, "cpu")}


def tolerance(entry, dtype):
    """Returns how near an entry's results have to be, as the table says; an empty dict for assert_close's own rule."""
    found = {}
    for info in entry.decorators:
        for d in getattr(info, "decorators", None) or ():
            if isinstance(d, toleranceOverride) and dtype in d.d and info.device_type in (None, "cpu"):
                of = d.d[dtype]
                found = {"rtol": max(of.rtol, found.get("rtol", 0)), "atol": max(of.atol, found.get("atol", 0))}
    default = torch.testing._comparison._DTYPE_PRECISIONS.get(dtype, (0.0, 0.0))  # of integers: equal
    return {"rtol": max(found["rtol"], default[0]), "atol": max(found["atol"], default[1])} if found else {}


def copied(x):
    """Returns arguments of which each tensor is a copy with its memory and strides; those that take gradients still do."""

    def copy(t):
        if t.layout is not torch.strided:
            return t.detach().clone().requires_grad_(t.requires_grad)
        made = torch.empty(0, dtype=t.dtype).set_(t.detach().untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())
        return (made.conj() if t.is_conj() else made).requires_grad_(t.requires_grad)

    return tree_map_only(torch.Tensor, copy, x)


def tensors(x):
    return [t for t in tree_flatten(x)[0] if isinstance(t, torch.Tensor)]


def compare(found, wanted, near, any_values, exact):
    """Raises AssertionError where a result is farther from eager's than allowed, and farther than eager's from eager's in float64."""
    found, wanted = tensors(found), tensors(wanted)
    assert len(found) == len(wanted), f"{len(found)} results for {len(wanted)}"
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if any_values:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            continue
        try:
            torch.testing.assert_close(a, b, equal_nan=True, **near)
        except AssertionError:
            if a.dtype not in (torch.float32, *HALVES) or a.dtype is not b.dtype or a.shape != b.shape or not b.isfinite().all():
                raise
            best = tensors(exact())[k]
            if best.dtype is not torch.float64 or not (a - best).abs().max() <= (b - best).abs().max():
                raise


def doubled(x):
    """Returns arguments in which each float of fewer bits is a float64."""
    return tree_map_only(torch.Tensor, lambda t: t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t, x)


def inputs_of(x):
    return [t for t in tensors(x) if t.requires_grad]


def run(f, x, seed, gradients, process):
    """Returns the results of a call, as the table compares them, and, where they are asked for, the derivatives of their sum."""
    torch.manual_seed(seed)
    y = f(*x[0], **x[1])
    y = process(y) if process is not None else y
    if not gradients:
        return y, ()
    flat = [t for t in tensors(y) if t.requires_grad]
    leaves = inputs_of(x)
    if not flat or not leaves:
        return y, ()
    loss = sum((t.abs() if t.is_complex() else t).sum() for t in flat)
    return y, torch.autograd.grad(loss, leaves, allow_unused=True)


def exactly(f, x, seed, gradients, process, place):
    """Returns eager's results, or derivatives, in float64."""
    return run(f, doubled(copied(x)), seed, gradients, process)[place]


def check(name, entry, dtype, samples, gradients, transformer, dynamic=False):
    """Returns what became of an entry: how many samples agree, ops that torch ran, calls of ours, and why samples failed."""
    near, result = tolerance(entry, dtype), {"name": name, "samples": 0, "agree": 0, "calls": 0, "in_torch": {}, "failed": []}
    drawn = entry.sample_inputs("cpu", dtype, requires_grad=gradients)
    options = {"fallback": "silent", "random": "torch", **({"transformer": transformer} if transformer else {})}
    for k, sample in enumerate(itertools.islice(drawn, samples)):
        result["samples"] += 1
        torch._dynamo.reset()
        ng.torch.reset()
        given = (sample.input, *sample.args), sample.kwargs
        process = sample.output_process_fn_grad
        try:
            wanted = run(entry.op, copied(given), k, gradients, process)
            compiled = torch.compile(
                lambda *args, **named: entry.op(*args, **named), backend=backend, fullgraph=True, dynamic=dynamic, options=options
            )
            found = run(compiled, copied(given), k, gradients, process)
            report = ng.torch.report()
            calls = sum(g.made.calls for f in report.functions for g in f.graphs if g.made is not None)
            result["calls"] += calls
            for op, rows in [(op, rows) for f in report.functions for g in f.graphs for op, rows in g.in_torch.items()]:
                result["in_torch"][op] = rows[0]["reason"]
            assert calls, "nothing was compiled"
            for place in (0, 1):
                exact = partial(exactly, entry.op, given, k, gradients, process, place)
                compare(found[place], wanted[place], near, bool(ANY_VALUES.match(name)), exact)
            result["agree"] += 1
        except Late:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            lines = [line for line in str(error).splitlines() if line.strip()]
            text = f"{k}: {type(error).__name__}: {' | '.join(lines[:4])}"[:500]
            result["failed"].append(text)
    return result


def late(*_):
    raise Late


def run_part(part, into, dtype_name, gradients, samples, only, transformer, again, dynamic):
    """Runs a part of the entries, and writes a line for each; those that have a line are not run again."""
    dtype = DTYPES[dtype_name]
    index, of = map(int, part.split("/"))
    every = [(name, o) for name, o in entries(dtype).items() if not only or re.search(only, name)]
    if gradients:
        every = [(name, o) for name, o in every if o.supports_autograd]
    path = Path(into) / f"{dtype_name}{'.gradients' if gradients else ''}{'.dynamic' if dynamic else ''}.{index}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["name"] for line in path.read_text().splitlines()} if path.exists() and not again else set()
    signal.signal(signal.SIGALRM, late)
    with path.open("a" if not again else "w") as file:
        for name, entry in every[index::of]:
            if name in done:
                continue
            start = time.perf_counter()
            signal.alarm(LIMIT)
            try:
                result = check(name, entry, dtype, samples, gradients, transformer, dynamic)
            except Late:
                result = {"name": name, "samples": 1, "agree": 0, "calls": 0, "in_torch": {}, "failed": [f"ran for over {LIMIT} s"]}
            except Exception as error:  # the samples themselves
                result = {"name": name, "samples": 0, "agree": 0, "calls": 0, "in_torch": {}, "failed": [f"samples: {error}"[:300]]}
            finally:
                signal.alarm(0)
            result["seconds"] = round(time.perf_counter() - start, 2)
            file.write(json.dumps(result) + "\n")
            file.flush()


@contextmanager
def prepared():
    """Lets Dynamo trace what the table does."""
    methods, own = common_methods_invocations, common_methods_invocations.wrapper_set_seed
    logs = {*torch._dynamo.config.reorderable_logging_functions, warnings.warn}
    with (
        warnings.catch_warnings(),
        torch._dynamo.config.patch(
            capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True, reorderable_logging_functions=logs, recompile_limit=100
        ),
    ):
        warnings.simplefilter("ignore")
        # Dynamo cannot trace how the table sets seeds inside of a call; each call here sets its own before
        methods.wrapper_set_seed = lambda op, *args, **named: op(*args, **named)
        try:
            yield
        finally:
            methods.wrapper_set_seed = own


def written(folder):
    """Writes the record of all that ran: for each dtype and entry its samples, how many agree, ops in torch, and the first failure."""
    record = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        kind = path.name.rpartition(".")[0].rpartition(".")[0]
        for line in path.read_text().splitlines():
            r = json.loads(line)
            failed = r["failed"][0].partition(" |")[0][:160] if r["failed"] else ""
            record.setdefault(kind, {})[r["name"]] = [r["samples"], r["agree"], sorted(r["in_torch"]), failed]
    text = ",\n".join(
        json.dumps(kind) + ": {\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(v)}" for n, v in sorted(rows.items())) + "\n}"
        for kind, rows in record.items()
    )
    RECORD.write_text("{" + text + "}\n")


def page():
    """Returns the table of docs/torch.md, printed from the record."""
    lines = ["| dtype | entries | agree | wholly ours |", "| --- | --- | --- | --- |"]
    record = json.loads(RECORD.read_text())
    for kind, rows in record.items():
        good = [n for n, (samples, agree, *_) in rows.items() if samples and samples == agree]
        ours = [n for n in good if not rows[n][2]]
        lines.append(f"| {kind.replace('.', ', ')} | {len(rows)} | {len(good)} | {len(ours)} |")
    rows = record["float32"]
    left = {}
    for name, (*_, ops, _) in rows.items():
        for op in ops:
            left.setdefault(op.rpartition(".")[0].removeprefix("aten."), []).append(name)
    failing = [n for n, (samples, agree, *_) in rows.items() if not samples or samples != agree]
    lines += ["", f"Ops that torch runs in them: {', '.join(f'`{op}`' for op in sorted(left))}."]
    lines += ["", f"Entries that do not agree: {', '.join(f'`{n}`' for n in sorted(failing))}."]
    return "\n".join(lines)


def with_table(text):
    """Returns the page of the docs with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{page()}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--into", default="out/opinfo")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--transformer", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", default="")
    given = parser.parse_args()
    if given.write:
        written(given.write)
        docs = Path(__file__).parents[3] / "docs" / "torch.md"
        docs.write_text(with_table(docs.read_text()))
        return
    samples = given.samples or (GRADIENTS if given.gradients else SAMPLES)
    torch.set_num_threads(1)
    with prepared():
        run_part(given.part, given.into, given.dtype, given.gradients, samples, given.only, given.transformer, given.again, given.dynamic)
    sys.stdout.flush()
    os._exit(0)  # threads of compilers that are still at work


if __name__ == "__main__":
    main()
