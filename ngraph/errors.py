"""The errors of ngraph: what disagreed, where the user wrote it, and how to put it right.

Each class's docstring is its help page. A message starts with the user's own line, never with one of ours.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any, Self

_NUMPY = os.path.join("numpy", "_core", "")  # its decorators stand between generated code and the caller
_HOME = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OURS = (_HOME, "<ngraph", "<frozen ")  # generated code and the import machinery count as ours
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OTHERS = tuple(_PYTHON + folder for folder in ("site-packages", "dist-packages"))  # which lie in Python's own folder

Line = tuple[str, int]  # file, line number

ENDS: set[CodeType] = set()  # functions that no program of the user's has called: the command, which is run by hand


def by_user(file: str) -> bool | None:
    """Whether code of this file is the user's; None of Python's own modules, which stand between."""
    if file.startswith(_OURS) or _NUMPY in file:
        return False
    return None if file.startswith(_PYTHON) and not file.startswith(_OTHERS) else True


def user_line() -> Line | None:
    """The nearest caller outside this package, as (file, line): one of Python's own modules, such as `copy`, is where there is no other."""
    frame = sys._getframe(1)
    between = None
    while frame is not None:
        if frame.f_code in ENDS:
            return None
        file = frame.f_code.co_filename
        users = by_user(file)
        if users:
            return (file, frame.f_lineno)
        if users is None:
            between = between or (file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return between


def show_line(line: Line | None) -> str:
    """`file.py:12`, with the path as the user would type it; what has no number is no file, and stands as it is."""
    if line is None:
        return "(unknown line)"
    file, number = line
    if not number:
        return file
    relative = os.path.relpath(file) if os.path.isabs(file) and os.path.exists(file) else file
    return f"{relative if not relative.startswith('..') else file}:{number}"


class NgraphError(Exception):
    """Something that the user can put right. `message` says what, `details` both sides, `fix` how."""

    def __init__(self, message: str, *, fix: str = "", details: tuple[str, ...] = (), line: Line | None = None):
        self.message, self.fix, self.details = message, fix, details
        super().__init__()
        self.at(line if line is not None else user_line())

    def at(self, line: Line | None) -> Self:
        """The error itself, which from now on blames this line."""
        self.line = line
        lines = [f"{show_line(line)}: {self.message}", *("    " + d for d in self.details)]
        self.args = ("\n".join([*lines, *([f"  fix: {self.fix}"] if self.fix else [])]),)
        return self


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that a misspelt `name` may mean; None where none is like it."""
    by_case = {n.lower(): n for n in names}
    found = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.7)
    return by_case[found[0]] if found else None


class NgraphWarning(UserWarning):
    """A program that runs, but is probably not what the user means, such as a `dot` over the batch axis.

    Each is shown once for each of the user's lines. `ng.config(warnings="off")` silences them for a block, `warnings="always"`
    repeats them, and `strict=True` makes them errors.
    """


class AxisError(NgraphError, ValueError):
    """Axes that do not fit: two lengths at one index, an axis twice in a tensor, an axis that is not there.

    Wrong: `ng.dot(W, X)` where `C` has length 4 in `W` and 5 in `X`. Right: give both tensors one axis `C`, or rename
    one of them with `ng.cast_axes(X, [...])` so that they are different axes.
    """


class IncompatibleAxesError(AxisError):
    """Axes that cannot be broadcast, flattened or unflattened into others.

    Right: broadcasting only adds axes, flattening joins axes that stand side by side in the order given.
    """


class UnmatchedAxesError(AxisError):
    """Two operands of which neither has all axes of the other, where one must have them, as in a cross-entropy.

    Right: rename an axis of one of them with `ng.map_roles(x, {old: new})`.
    """


class DuplicateAxisNames(AxisError):
    """A map of axis names that sends two names to one; `duplicate_axis_names` are those that would stand twice."""

    def __init__(self, message: str, duplicate_axis_names: Iterable[str] = (), **about: Any):
        super().__init__(message, **about)
        self.duplicate_axis_names = frozenset(duplicate_axis_names)


class DTypeError(NgraphError, TypeError):
    """An element type that an op cannot take, such as the sine of a bool or bits of a float.

    Right: convert first with `ng.cast(x, ng.float32)`.
    """


class NoTensor(DTypeError):
    """Something that no tensor can be made of, such as a string, an axis or a list of ops, where one is wanted.

    Right: pass an op, a number, or an array of numbers; `ng.stack` makes one tensor of several.
    """


class GraphError(NgraphError, ValueError):
    """An op-graph that means nothing: a derivative of something that is not scalar, two unordered assigns to one variable.

    Wrong: `ng.deriv(y, w)` where `y` has axes. Right: sum it first, `ng.deriv(ng.sum(y, out_axes=()), w)`, or give `error=`.
    Wrong: a computation of `[ng.assign(w, 1), ng.assign(w, 2)]`. Right: `ng.sequential([ng.assign(w, 1), ng.assign(w, 2)])`.
    Wrong: a placeholder that the result needs and the computation does not name. Right: `transformer.computation(y, x)`.
    """


class StateError(NgraphError, RuntimeError):
    """State used at the wrong time: a computation added after `initialize()`, a save of torn or missing state.

    State is torn where a call that writes it in place failed half way: `restore` it, or `set` the variables that are named.
    A restore that does not fit lists every variable that is missing, left over, or of another shape, and changes nothing;
    `restore(path, partial=True)` leaves alone what only one side has.
    """


class ArgumentError(NgraphError, ValueError):
    """A computation called with arguments that do not fit its placeholders: number, shape, or element type.

    Right: one value for each parameter, in the order in which the computation names them, dims in the order of the placeholder's
    axes; or `feed_dict={x: value}`. Floats are converted to narrower floats; floats are not cut to integers.
    """


class ArgumentTypeError(ArgumentError, TypeError):
    """A function called with something of another kind than it takes: a string for a tensor, an op for an axis, too few arguments.

    The details show what the function takes.

    Wrong: `ng.cumsum(H, x)`, `ng.sum(None)`, `ng.scan(carry, function, xs, T)`. Right: `ng.cumsum(x, H)`.
    """


class NanError(NgraphError, FloatingPointError):
    """A nan or an infinity that an op made of numbers that are none; names the op, its layer and line, and the ranges of its operands.

    A training raises it at the first step that makes one (`Trainer(nans="ignore")` goes on), and any call where
    `ng.config(nans="raise")` holds. Right: keep the operand in the range that the fix names, or take a lower learning rate, or clip
    gradients: `Adam(1e-3, gradient_clip_norm=1.0)`.
    """


class OutOfMemoryError(NgraphError, MemoryError):
    """A computation needs more memory than there is; nothing of it has run.

    Details: how many bytes, and how many there are. Fix: a smaller batch.
    """


class BoundsError(NgraphError, IndexError):
    """An index that is no place of its axis, found while a computation ran, where reads or writes were asked to refuse such.

    `ng.take(x, i, axis, mode="raise")` asks for it, and so does a file of ONNX, whose nodes are named with the index and the length. State
    that such a call writes in place is torn. Right: indices from -n to n - 1; or `mode="clip"`, of a file
    `ng.onnx.load(path, indices="clip")`, which takes the nearest place.
    """

    @staticmethod
    def of(message: str, length: int, negative: bool, file: str, line: int, fix: str) -> BoundsError:
        """The error for an index of an axis of this length, at the line of the read; a node of a file (line 0) is named in the message."""
        there = f"indices go from {-length if negative else 0} to {length - 1}" if length else "there is no index"
        message = f"{file}: {message}" if file and not line else message
        return BoundsError(message, details=(there,), fix=fix, line=(file, line) if line else None)


class ProgramError(NgraphError, ValueError):
    """A program that breaks the law of `docs/spec.md`, found by `verify`; names the step and the rule.

    Also passes in an order that their needs do not allow, and rules that go in circles. It points at a pass or a rule, seldom at
    the user's graph: `CHECK=1` names the pass after which it first happens, with the program before and after.
    """


class ParseError(NgraphError, ValueError):
    """A text, JSON or weights file that is not in its format. `position` is the offset, line and column are in the message.

    A file of a newer format than this version knows is refused with both numbers: read it with the version that wrote it.
    """

    def __init__(self, message: str, *, position: int = 0, fix: str = "", details: tuple[str, ...] = ()):
        super().__init__(message, fix=fix, details=details)
        self.position = position


class FileError(NgraphError, OSError):
    """A file that cannot be read or written. One that was to be written is still what it was.

    It is the error of Python's own that the system gives as well, such as a `FileNotFoundError`, with its `errno` and `filename`.
    Right: the path of a file that is there; to write, one in a folder that is there.
    """

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedError(NgraphError, NotImplementedError):
    """Something that this transformer or frontend does not do; the message says who does, where someone does.

    Right: choose another by `ngt.make_transformer_factory(name)` or `NGRAPH_TRANSFORMER=name`; `ngt.transformer_choices()` lists
    those that can be had here.
    """


class SettingError(NgraphError, ValueError):
    """A setting with a value that it cannot have, in `ng.config(...)` or in the environment.

    Wrong: `NGRAPH_NUM_THREADS=abc`, `with ng.config(warnings="never")`, `ng.config.exact = False`. Right: a value that the message
    names, for a block: `with ng.config(exact=False): ...`, or for the process: `NGRAPH_EXACT=0`.
    """


class UnknownName(NgraphError, AttributeError, TypeError):
    """A name that is not there: of a function, of an op's attribute, of an argument, of a setting. The fix names the nearest one.

    Wrong: `ng.matmul(x, y)`, `x.sum()`, `ng.sum(x, axis=0)`. Right: `ng.dot(x, y)`, `ng.sum(x)`, `ng.sum(x, reduction_axes=[H])`.
    """


class UnknownKey(NgraphError, KeyError):
    """A key that is not there: a weight by its path, an input of a bound computation, an entry of a batch. The fix names those that are.

    Wrong: `model.weight("Affine_7/W")`. Right: one of `model.paths()`.
    """

    def __str__(self) -> str:
        return str(self.args[0])
