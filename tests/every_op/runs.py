"""What the oracle gives for the calls of a graph, and what the cpu does."""

import contextlib
from dataclasses import replace

import numpy as np
from fences import fenced
from machines import machines

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.plan.text import arrays, parse, text
from ngraph.plan.verify import verify
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.runtime.state import initial
from ngraph.transformers.cpu import native
from ngraph.transformers.executable import table


def another_machine(seed, monkeypatch):
    """Plans are those of a machine that is not there. Any plan has to be right."""
    (other,), own = machines(seed, 1), native.chosen
    changed = ("products", "launch", "l1", "l2", "l3", "cores", "memory_bandwidth", "cache_bandwidth", "lane_speed")
    monkeypatch.setattr(native, "chosen", lambda: replace(own(), **{field: getattr(other, field) for field in changed}))


def expected(results, updates, holes, calls):
    """What the oracle gives for each call, the state going on."""
    lowered = lower([*results, *updates], holes)
    state = {s.name: initial(lowered.states[s.name]) for s in lowered.program.state_in}
    found = []
    with np.errstate(all="ignore"):
        for arguments in calls:
            outputs, after = interpret(lowered.program, arguments, dict(state))
            state.update(after)
            found.append(outputs[: len(results)])
    return found


def on_cpu(results, updates, holes, calls, monkeypatch, fences=False, **settings):
    """What each call gives on the cpu; the plan is whole, its text as well, and three threads give the bits of one."""
    bits = None
    for threads in (1, 3):
        if threads > 1:  # all that can be cut up is
            monkeypatch.setattr(table, "SHARE", 1e-12)
        inside = fenced() if fences and threads == 1 else contextlib.nullcontext()
        with inside, ng.config(num_threads=threads, **settings), ngt.allocate_transformer("cpu") as t:
            f = t.computation([*results, *updates], *holes)
            got = [[np.asarray(a) for a in f(*arguments)[: len(results)]] for arguments in calls]
            if threads == 1:
                plan = verify(f.native.chosen.plan)
                shown = text(plan)
                assert text(verify(parse(shown, arrays(plan)))) == shown
        now = [[a.tobytes() for a in every] for every in got]
        bits = bits or now
        assert bits == now, "other bits on several threads"
    return got
