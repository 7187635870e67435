"""A cache from op-graphs to lowered programs, searched before lowering: enough to call the program, and to find its plans.

    graph = CachedGraph.of(results, parameters, facts)  None where nothing can be cached
    graph.find(name)                                    the entry of an earlier graph of equal fingerprint, with this graph's names
    graph.keep(lowered, program)                        adds an entry: the program before and after passes, without its steps

A graph with records, passes or rules that are not ngraph's own is lowered each time, since no key covers their behaviour.
"""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.dtypes import REGISTRY as DTYPES
from ngraph.op_graph.fingerprint import Fingerprint, fingerprint
from ngraph.op_graph.memory import no_collection
from ngraph.op_graph.op import Op
from ngraph.op_graph.opdef import as_sealed
from ngraph.passes.rules import as_written, simplify_rules
from ngraph.program.lower import Lowered, state_names
from ngraph.program.program import AxisId, Program, State, run_values
from ngraph.runtime.cache import ProgramNames, cache, digest, dumped, loaded, makers, program_fingerprint

KIND = "graphs"
STORED = 1 << 20  # bytes of arrays made by passes that an entry holds


class CacheHit(NamedTuple):
    """The parts of a program that calls need: before passes and after, without steps; its fingerprint, and names for its plans."""

    lowered: Lowered
    program: Program
    fingerprint: bytes
    names: ProgramNames


class CacheEntry(NamedTuple):
    """An entry. Arrays and states are the graph's, by number; arrays made by passes are stored as dtype, shape and bytes."""

    lowered: Program
    program: Program
    fingerprint: bytes
    axes: tuple[AxisId, ...]
    arrays: tuple[Any, ...]
    states: tuple[int, ...]
    nonempty: tuple[AxisId, ...]


class CachedGraph:
    """An op-graph, and the key of its entry."""

    def __init__(self, found: Fingerprint, parameters: Sequence[Op], facts: Any, asked: tuple[Any, ...]):
        self.numbers, self.arrays, self.parameters = found.numbers, found.arrays, tuple(parameters)
        self.facts = facts
        self.key = digest(makers(), repr((facts, *asked)).encode(), found.data)

    @staticmethod
    def of(results: Sequence[Op], parameters: Sequence[Any], facts: Any, asked: tuple[Any, ...] = ()) -> CachedGraph | None:
        """Returns the graph with its key. `facts`: everything else that determines the program. None where the result may vary.

        asked: what else is asked of the computation: the parameters that results replace, the orders of dims in memory.
        """
        if not all(isinstance(o, Op) for o in (*results, *parameters)) or [*simplify_rules] != as_written:
            return None
        with no_collection():
            found = fingerprint(results, parameters)
        if found is None or not as_sealed(found.records):
            return None
        return CachedGraph(found, parameters, facts, asked)

    def find(self, name: str) -> CacheHit | None:
        """Returns the entry, None for a miss; the program gets the name `name`."""
        data = cache().find(self.key, KIND, counted=False)  # a miss costs no more than before
        if data is None:
            return None
        try:
            return self._found(loaded(data, ProgramNames((), ())), name)
        except Exception:  # the checksum is right, but the content is invalid
            cache().drop(KIND, self.key)
            return None

    def _found(self, kept: CacheEntry, name: str) -> CacheHit:
        ops = list(self.numbers)
        states = state_names([ops[k] for k in kept.states])
        labels = dict(zip([s.name for s in kept.lowered.state_in], states, strict=True))
        hints = {
            a: own.label for v, p in zip(kept.lowered.inputs, self.parameters, strict=True) for a, own in zip(v.axes, p.axes, strict=True)
        }

        def called(p: Program) -> Program:
            return p.with_(
                name=name,
                hints={**p.hints, **hints},
                state_in=tuple([State(labels[s.name], s.value) for s in p.state_in]),
                state_out=tuple([(labels[n], v) for n, v in p.state_out]),
            )

        program = called(kept.program)
        arrays = [self.arrays[a] if type(a) is int else made_array(*a) for a in kept.arrays]
        names = ProgramNames(kept.axes, arrays, [s.name for s in program.state_in])
        return CacheHit(Lowered(called(kept.lowered), self.parameters, states, kept.nonempty), program, kept.fingerprint, names)

    def keep(self, lowered: Lowered, program: Program) -> None:
        """Adds an entry: the program that passes made of this one."""
        means, names = program_fingerprint(program)
        own = {id(ref): k for k, ref in enumerate(self.arrays)}
        arrays = [own[id(r)] if id(r) in own else (r.dtype.name, r.array.shape, r.array.tobytes()) for r in names.arrays]
        states = [self.numbers[v] for v in lowered.states.values() if v in self.numbers]
        if len(states) < len(lowered.states) or sum([len(a[2]) for a in arrays if type(a) is tuple]) > STORED:
            return
        if any(True for e in lowered.program.axes.values() for _ in run_values(e)):  # a length that steps compute
            return
        axes = tuple(map(AxisId, names.axes))
        entry = CacheEntry(_face(lowered.program), _face(program), means, axes, tuple(arrays), tuple(states), lowered.nonempty)
        with contextlib.suppress(pickle.PicklingError, RecursionError):
            cache().keep(KIND, self.key, dumped(entry, ProgramNames((), ())))


def _face(program: Program) -> Program:
    return program.with_(steps=())


def made_array(dtype: str, shape: tuple[int, ...], data: bytes) -> ArrayRef:
    """Returns an array of its bytes. Raises ValueError where they are too few or too many."""
    of = DTYPES[dtype].np
    if len(data) != math.prod(shape) * of.itemsize:
        raise ValueError(f"{len(data)} bytes make no {dtype}{shape}")
    return ArrayRef(np.frombuffer(data, of).reshape(shape))
