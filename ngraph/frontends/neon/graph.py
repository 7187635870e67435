"""SubGraph: the ops that a piece of a model made, found by traversal from its results: variables, inputs, scopes, selection.

A piece gets its name, such as `Affine_0`, from the enclosing piece (a number for each class), so the path of a weight,
`Sequential_0/Affine_1/W`, depends on the model alone.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ngraph.errors import ArgumentError, ArgumentTypeError, NgraphError
from ngraph.frontends.neon.calls import blamed
from ngraph.op_graph.names import current_scope, metadata, name_scope
from ngraph.op_graph.op import Op
from ngraph.parts.scopes import ScopedValue
from ngraph.parts.walk import closure

_around: ScopedValue[SubGraph | None] = ScopedValue("neon_around", None)
_top: dict[str, int] = {}


def _ops_in(value: Any) -> Iterator[Op]:
    """Yields the ops in an argument or a result: alone, or in lists, tuples and dicts."""
    if isinstance(value, Op):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _ops_in(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _ops_in(v)


class ComputationalGraph:
    """A set of ops: all that `roots` depend on, bodies of loops included."""

    def __init__(self, roots: Iterable[Op] = ()):
        self.roots = list(roots)

    def _holds(self, op: Op) -> bool:
        return True

    @property
    def ops(self) -> list[Op]:
        return [op for op in Op.all_op_references(self.roots) if self._holds(op)]

    @property
    def variables(self) -> dict[str, Op]:
        """The trainable variables, by path."""
        return {op.name: op for op in self.ops if op.is_trainable}

    @property
    def persistent(self) -> dict[str, Op]:
        """All state, trained or not, by path."""
        return {op.name: op for op in self.ops if op.is_variable}

    @property
    def placeholders(self) -> dict[str, Op]:
        return {op.name: op for op in Op.all_op_references(self.roots) if op.is_placeholder and op in self._reached()}

    def _reached(self) -> set[Op]:
        return set(Op.ordered_ops(self.roots))  # holes of bodies are placeholders, too, but no inputs

    @property
    def side_effects(self) -> dict[str, Op]:
        """The assigns, by path."""
        return {op.name: op for op in self.ops if op.opdef.name == "assign"}

    @property
    def computations(self) -> dict[str, Op]:
        return {op.name: op for op in self.roots if op.is_tensor_op}

    @property
    def scopes(self) -> dict[str, list[Op]]:
        """The ops of each scope."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            found.setdefault(op.scope, []).append(op)
        return found

    @property
    def modes(self) -> dict[str, list[Op]]:
        """The ops made in each mode, such as "inference"."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            if "mode" in op.metadata:
                found.setdefault(op.metadata["mode"], []).append(op)
        return found

    def select(self, selector: str) -> list[Op]:
        """Returns the ops that a selector matches, as in CSS: `Affine .bias`, `#Affine_0`, `[recurrent_step=3]`, with commas for several.

        A word is a class of layers or a kind of op, `#` a name, `.` a label or an op's own name, `[key=value]` metadata; separate words
        are nested. Raises ArgumentError for an invalid selector.
        """
        ways = [[_Part(word) for word in way.split()] for way in selector.split(",")]
        kinds = {place: type(piece).__name__ for piece in self.pieces() for place in piece.places}
        return [op for op in self.ops if any(_selects(way, op, kinds) for way in ways)]

    def pieces(self) -> list[SubGraph]:
        """Returns the pieces of a model whose ops these are; none of ops that no piece made."""
        return []


class _Part:
    """One word of a selector: the required tag, ids, classes, and metadata."""

    def __init__(self, word: str):
        found = re.fullmatch(r"(\w+|\*)?((?:[#.][\w-]+|\[\w+(?:=[^\]]*)?\])*)", word)
        if not found or not word:
            raise ArgumentError(f"{word!r} is not a selector", fix="write Class, #name, .label or [key=value], as in 'Affine .bias'")
        self.tag = found[1] if found[1] != "*" else None
        self.marks = [(m[0], m[1:].rstrip("]")) for m in re.findall(r"[#.][\w-]+|\[[^\]]*\]", found[2])]

    def fits(self, kind: str, name: str, labels: set[str], notes: dict[str, Any]) -> bool:
        if self.tag and self.tag != kind:
            return False
        for mark, said in self.marks:
            key, _, value = said.partition("=")
            right = {
                "#": said == name,
                ".": said in labels,
                "[": key in notes and (not value or str(notes[key]) == value.strip("'\"")),
            }
            if not right[mark]:
                return False
        return True


def _selects(way: list[_Part], op: Op, kinds: dict[str, str]) -> bool:
    """Whether the last word matches the op and the others enclosing scopes, in order; a single word may match the innermost scope.

    kinds: the classes of pieces by scope; others follow from the name, as that of `Affine_0`.
    """
    outer = [p for p in op.scope.split("/") if p]
    places = ["/".join(outer[: k + 1]) for k in range(len(outer))]
    chain = [(kinds.get(at) or re.sub(r"_\d+$", "", p), p, set[str](), dict[str, Any]()) for at, p in zip(places, outer, strict=True)]
    own = op.hint or op.opdef.name
    me = (op.opdef.name, own, {own, str(op.metadata.get("label", own))}, op.metadata)
    words = list(way)
    if not words or not (words[-1].fits(*me) or any(words[-1].fits(*c) for c in chain)):
        return False
    words.pop()
    for element in reversed(chain):
        if words and words[-1].fits(*element):
            words.pop()
    return not words


@contextmanager
def scope_ops(
    name: str | None = None, mode: str | None = None, subgraph: SubGraph | None = None, metadata: dict[str, Any] | None = None
) -> Iterator[SubGraph]:
    """Puts ops made in this block into the scope `name`, with `mode` and `metadata`, and into `subgraph` (a new one by default)."""
    piece = SubGraph(name) if subgraph is None else subgraph
    notes = {**(metadata or {}), **({"mode": mode} if mode else {})}
    with piece.scope(name), _noted(notes):
        with Op.all_ops(piece.outputs):
            yield piece


def _noted(notes: dict[str, Any]) -> Any:
    return metadata(**notes) if notes else nullcontext()


class SubGraph(ComputationalGraph):
    """A piece of a model. Its ops are those in its scopes that its results depend on; further calls add to them."""

    metadata: dict[str, Any] = {}

    def __init__(self, name: str | None = None):
        self.inputs: list[Op] = []
        self.outputs: list[Op] = []
        self.places: list[str] = []  # the full scopes in which it was called
        self._name = name
        self._numbers: dict[str, int] = {}
        self._inner: set[SubGraph] = set()  # pieces that were called in it
        super().__init__(self.outputs)
        self.roots = self.outputs

    @property
    def name(self) -> str:
        """The name in the enclosing piece; given at the first call or use."""
        if self._name is None:
            around = _around.get()
            numbers = _top if around is None else around._numbers
            kind = type(self).__name__
            number = numbers.get(kind, 0)
            numbers[kind] = number + 1
            self._name = f"{kind}_{number}"
        return self._name

    def named(self, name: str) -> Any:
        """Sets its name, before its first call."""
        self._name = name
        return self

    @property
    def path(self) -> str:
        """The scope of its first call, which prefixes its weights."""
        return self.places[0] if self.places else self.name

    @contextmanager
    def scope(self, name: str | None = None) -> Iterator[None]:
        """Puts ops made in this block into this piece's scope; an error in it gets a note that names the innermost."""
        with name_scope(name or self.name):
            here, around = current_scope(), _around.get()
            if around is not None:
                around._inner.add(self)
            if here not in self.places:
                self.places.append(here)
            with _around.of(self):
                try:
                    yield
                except NgraphError as error:
                    if not hasattr(error, "__notes__"):
                        error.add_note(f"  in {here}")
                    raise

    @staticmethod
    def scope_op_creation(function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a decorator for methods: ops are made in the scope of their piece, which records inputs and results."""

        parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n != "self"}

        @functools.wraps(function)
        def scoped(self: SubGraph, *args: Any, **options: Any) -> Any:
            try:
                with self.scope(), _noted(type(self).metadata):
                    made = function(self, *args, **options)
            except Exception as error:
                first = error.__context__ if isinstance(error, ArgumentTypeError) else None  # of a nested layer with the same argument
                said = blamed(type(self).__name__, parameters, args, options, first if isinstance(first, Exception) else error)
                if said is None:
                    raise
                raise said from None
            self.inputs += [op for op in _ops_in((args, options)) if op not in self.inputs]
            self.outputs += _ops_in(made)
            return made

        return scoped

    def pieces(self) -> list[SubGraph]:
        return list(closure([self], lambda piece: piece._inner))

    def _holds(self, op: Op) -> bool:
        return any(op.scope == p or op.scope.startswith(p + "/") for p in self.places)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name or ''})"
