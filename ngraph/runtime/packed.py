"""A computation as a value that pickles, for another process: the program after passes, and what calls need of it.

    held = packed(computation)                       raises UnsupportedError where it writes state, or the transformer caches nothing
    made = transformer.restored(held, array_type)    calls, and finds its plan in the cache, without the program's steps being read

The steps are read where the cache has no plan for them: they are enough to compile the program anew, on another machine, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from ngraph.errors import UnsupportedError
from ngraph.op_graph.axes import make_axis
from ngraph.op_graph.dlpack import exchange_api
from ngraph.op_graph.op import Op
from ngraph.ops.state import placeholder, variable
from ngraph.program.lower import Lowered
from ngraph.program.program import AxisId, Program, Value
from ngraph.runtime.cache import ProgramNames, dumped, loaded, program_fingerprint
from ngraph.runtime.computation import Computation, ResultForm
from ngraph.runtime.graph_cache import CacheHit, made_array
from ngraph.runtime.host.entry import ArrayForms


class PackedComputation(NamedTuple):
    """A computation. face: a `PackedFace` as bytes; steps: the program after passes, as bytes; arrays: (dtype, shape, bytes) of it."""

    face: bytes
    steps: bytes
    arrays: tuple[tuple[str, tuple[int, ...], bytes], ...]


class PackedFace(NamedTuple):
    """The part that calls need: the program before passes and after, without steps, its fingerprint, and the axes that plans number.

    form  how many results there are, those that replace parameters, by number, and whether there is one alone, or none
    """

    lowered: Program
    program: Program
    fingerprint: bytes
    axes: tuple[AxisId, ...]
    nonempty: tuple[AxisId, ...]
    form: tuple[int, tuple[int, ...], bool, bool]
    given: dict[int, tuple[int, ...]]
    made: dict[int, tuple[int, ...]]


def packed(computation: Computation) -> PackedComputation:
    """Returns a computation as a value that pickles. Raises UnsupportedError where it cannot be made of it again."""
    results, forms = computation.results, computation.forms
    if computation.written or not results.plain or results.nest is not None or computation._maker.facts() is None:
        raise UnsupportedError(f"{computation.name} cannot be packed: it writes state, has effects, or a transformer that caches nothing")
    program, lowered = computation.program, computation._lowered
    fingerprint, names = program_fingerprint(program)
    form = results.count, tuple(results.writes), results.single, results.nothing
    bare = lowered.program.with_(steps=()), program.with_(steps=())
    axes = tuple(map(AxisId, names.axes))
    face = PackedFace(*bare, fingerprint, axes, lowered.nonempty, form, dict(forms.given), dict(forms.made))
    arrays = tuple([(r.dtype.name, r.array.shape, r.array.tobytes()) for r in names.arrays])
    return PackedComputation(dumped(face, ProgramNames((), ())), dumped(program, ProgramNames((), names.arrays)), arrays)


class RestoredComputation(Computation):
    """A computation made of bytes: its program, before passes and after, is the one after them."""

    def __init__(self, held: PackedComputation, maker: Any, array_type: type | None):
        face: PackedFace = loaded(held.face, ProgramNames((), ()))
        names = ProgramNames(face.axes, [made_array(*a) for a in held.arrays], [s.name for s in face.program.state_in])
        self._steps, self._names = held.steps, names
        count, writes, single, nothing = face.form
        parameters = tuple([stand_in(v, face.lowered) for v in face.lowered.inputs])
        ops = [stand_in(v, face.lowered) for v in face.lowered.outputs]
        form = ResultForm(None if nothing else ops[0] if single else ops[:count], dict(zip(writes, ops[count:], strict=True)))
        states = {s.name: stand_in(s.value, face.lowered, variable) for s in face.lowered.state_in}
        found = CacheHit(Lowered(face.lowered, parameters, states, face.nonempty), face.program, face.fingerprint, self._names)
        api = None if array_type is None else exchange_api(array_type)
        graph: Any = SameFacts(maker)
        super().__init__(form, found.lowered, maker, graph, found, ArrayForms(face.given, face.made, api))

    @cached_property
    def program(self) -> Program:  # read once
        """The program after passes, with its steps."""
        made: Program = loaded(self._steps, ProgramNames((), self._names.arrays))
        return made

    @property
    def lowered(self) -> Program:
        return self.program

    declared = lowered


class SameFacts:
    """The place of a cached graph: whatever the settings are by now, the plans that they ask for are looked up."""

    def __init__(self, maker: Any):
        self.maker = maker

    @property
    def facts(self) -> Any:
        return self.maker.facts()

    def keep(self, lowered: Lowered, program: Program) -> None:
        """Keeps nothing: there is no graph."""


def stand_in(value: Value, program: Program, kind: Callable[..., Op] = placeholder) -> Op:
    """Returns an op for a value of a program, with axes of these names and lengths: what errors of calls show."""
    known = {a: n if isinstance(n, int) else None for a, n in program.axes.items()}
    names = [program.hints.get(a, str(a)) for a in value.axes]
    axes = [make_axis(known[a], name, batch=False, recurrent=False, channel=False) for a, name in zip(value.axes, names, strict=True)]
    return kind(axes, dtype=value.dtype, name=value.hint or None)
