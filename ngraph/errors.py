"""The errors of ngraph: what disagreed, the user's line, and how to fix it.

Each class's docstring is its help page. A message starts with the user's own line, never with a line of this package.

Words: docs/glossary.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, Self

from ngraph.parts.deferred import deferred

_NUMPY = os.path.join("numpy", "_core", "")  # decorators of NumPy on the stack between generated code and the caller
_HOME = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = (("keras", "src"), ("-packages", "optree"), ("-packages", "torch"))  # that call this package for the user
_BETWEEN = tuple([os.path.join(*folders, "") for folders in _LIBRARIES])
_OURS = (_HOME, "<ngraph", "<frozen ")  # generated code and the import machinery count as this package's
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OTHERS = tuple(_PYTHON + folder for folder in ("site-packages", "dist-packages"))  # inside of Python's own folder

Line = tuple[str, int]  # file, line number

difflib = deferred("difflib")  # most programs have no mistakes

ENDS: set[int] = set()  # the ids of code of functions that no user program calls: the command's


class _Owners(dict[str, bool | None]):
    """The answers of `by_user`, by file."""

    def __missing__(self, file: str) -> bool | None:
        between = file.startswith(_PYTHON) and not file.startswith(_OTHERS) or any(part in file for part in _BETWEEN)
        theirs = None if between else True
        self[file] = found = False if file.startswith(_OURS) or _NUMPY in file else theirs
        return found


_OWNERS = _Owners()


def by_user(file: str) -> bool | None:
    """Whether code of this file is the user's; None for modules of Python, Keras and PyTorch, which may be on the stack in between."""
    return _OWNERS[file]


def user_line() -> Line | None:
    """Returns the nearest caller outside this package, as (file, line); a module of Python or a library only where there is no other."""
    frame: FrameType | None = sys._getframe(1)
    between = None
    while frame is not None:
        if id(frame.f_code) in ENDS:  # code that Dynamo writes has no hash where a constant of it has none
            return None
        file = frame.f_code.co_filename
        users = _OWNERS[file]  # by_user, without a call for each frame
        if users:
            return (file, frame.f_lineno)
        if users is None:
            between = between or (file, frame.f_lineno)
        frame = frame.f_back
    return between


def show_line(line: Line | None) -> str:
    """Returns `file.py:12`, with the path as the user would type it; a place without a number is not a file, and is printed as it is."""
    if line is None:
        return "(unknown line)"
    file, number = line
    if not number:
        return file
    relative = os.path.relpath(file) if os.path.isabs(file) and os.path.exists(file) else file
    return f"{relative if not relative.startswith('..') else file}:{number}"


class NgraphError(Exception):
    """Base of errors that the user can fix. `message` says what, `details` both sides, `fix` how."""

    def __init__(self, message: str, *, fix: str = "", details: tuple[str, ...] = (), line: Line | None = None):
        self.message, self.fix, self.details = message, fix, details
        super().__init__()
        self.at(line if line is not None else user_line())

    def at(self, line: Line | None) -> Self:
        """Returns the error itself, with this line as its place; its text begins with it, unless there is none."""
        self.line = line
        lines = [f"{show_line(line)}: {self.message}" if line is not None else self.message, *("    " + d for d in self.details)]
        self.args = ("\n".join([*lines, *([f"  fix: {self.fix}"] if self.fix else [])]),)
        return self


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the one of `names` that a misspelt `name` probably means; None where none is similar."""
    by_case = {n.lower(): n for n in names}
    similar = 0.7 if len(name) > 3 else 0.6  # of three letters, two are the same
    found = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=similar)
    return by_case[found[0]] if found else None


class NgraphWarning(UserWarning):
    """A warning: a valid program that is probably not intended, such as a `dot` over the batch axis.

    Each is shown once for each of the user's lines. `ng.config(warnings="off")` silences them for a block, `warnings="always"`
    repeats them, and `strict=True` makes them errors.
    """


class AxisError(NgraphError, ValueError):
    """Axes that do not fit: two lengths at one index, an axis twice in a tensor, an unknown axis.

    Wrong: `ng.dot(W, X)` where `C` has length 4 in `W` and 5 in `X`. Right: give both tensors one axis `C`, or rename
    one of them with `ng.cast_axes(X, [...])` so that they are different axes.
    """


class IncompatibleAxesError(AxisError):
    """Axes that cannot be broadcast, flattened or unflattened into others.

    Right: broadcasting only adds axes, flattening joins consecutive axes in the order given.
    """


class UnmatchedAxesError(AxisError):
    """Two operands of which neither has all axes of the other, where one must have them, as in a cross-entropy.

    Right: rename an axis of one of them with `ng.map_roles(x, {old: new})`.
    """


class DuplicateAxisNames(AxisError):
    """A map of axis names that sends two names to one; `duplicate_axis_names` are the names that would occur twice."""

    def __init__(self, message: str, duplicate_axis_names: Iterable[str] = (), **about: Any):
        super().__init__(message, **about)
        self.duplicate_axis_names = frozenset(duplicate_axis_names)


class DTypeError(NgraphError, TypeError):
    """An element type that an op cannot take, such as the sine of a bool or bits of a float.

    Right: convert first with `ng.cast(x, ng.float32)`.
    """


class NoTensor(DTypeError):
    """A value that cannot become a tensor, such as a string, an axis or a list of ops, where a tensor is needed.

    Right: pass an op, a number, or an array of numbers; `ng.stack` makes one tensor of several.
    """


class GraphError(NgraphError, ValueError):
    """An invalid op-graph: a derivative of an op that is not scalar, two unordered assigns to one variable.

    Wrong: `ng.deriv(y, w)` where `y` has axes. Right: sum it first, `ng.deriv(ng.sum(y, out_axes=()), w)`, or give `error=`.
    Wrong: a computation of `[ng.assign(w, 1), ng.assign(w, 2)]`. Right: `ng.sequential([ng.assign(w, 1), ng.assign(w, 2)])`.
    Wrong: a placeholder that the result needs and the computation does not list. Right: `transformer.computation(y, x)`.
    """


class StateError(NgraphError, RuntimeError):
    """State used at the wrong time: a computation added after `initialize()`, a save of inconsistent or missing state.

    State is inconsistent where a call that updates it in place failed half-way: `restore` it, or `set` the variables that are named.
    A restore that does not fit lists every variable that is missing, superfluous, or of another shape, and changes nothing;
    `restore(path, partial=True)` skips variables that only one side has.
    """


class ArgumentError(NgraphError, ValueError):
    """A computation called with arguments that do not fit its placeholders: number, shape, or element type.

    Right: one value for each parameter, in the computation's order of parameters, dims in the order of the placeholder's axes; or
    `feed_dict={x: value}`. Floats are converted to narrower floats; floats are not truncated to integers.
    """


class ArgumentTypeError(ArgumentError, TypeError):
    """A function called with an argument of a wrong kind: a string for a tensor, an op for an axis, too few arguments.

    The details show the function's signature.

    Wrong: `ng.cumsum(H, x)`, `ng.sum(None)`, `ng.scan(carry, function, xs, T)`. Right: `ng.cumsum(x, H)`.
    """


class NanError(NgraphError, FloatingPointError):
    """A nan or an infinity that an op computed from finite operands; names the op, its layer and line, and the ranges of its operands.

    A training raises it at the first step that computes one (`Trainer(nans="ignore")` continues), and so does any call under
    `ng.config(nans="raise")`. Right: keep the operand in the range that the fix names, or use a lower learning rate, or clip
    gradients: `Adam(1e-3, gradient_clip_norm=1.0)`.
    """


class OutOfMemoryError(NgraphError, MemoryError):
    """A computation that needs more memory than is available; none of it has run.

    Details: bytes needed, and bytes available. Fix: a smaller batch.
    """


class BoundsError(NgraphError, IndexError):
    """An index outside of its axis, found during a computation, by reads or writes that check their indices.

    `ng.take(x, i, axis, mode="raise")` checks, and so do ONNX models, whose error names the node, the index and the length. State that such
    a call updates in place is inconsistent. Right: indices from -n to n - 1; or `mode="clip"`, for a model
    `ng.onnx.load(path, indices="clip")`, which takes the nearest index.
    """

    @staticmethod
    def of(message: str, length: int, negative: bool | str, file: str, line: int, fix: str) -> NgraphError:
        """Returns the error for an index of an axis of this length, at the line of the read or, in the message, at the node of a file.

        negative: whether indices from -length on are valid; "length" for an error of the length itself, "divisor" for a divisor of 0,
        "operand" for values that an operation does not take.
        """
        there = f"indices go from {-length if negative else 0} to {length - 1}" if length else "there is no index"
        message = f"{file}: {message}" if file and not line else message
        place = (file, line) if line else None
        if negative == "divisor":
            return DivisionError(message, fix=fix, line=place)
        if negative == "operand":
            return OperandError(message, fix=fix, line=place)
        return BoundsError(message, details=() if negative == "length" else (there,), fix=fix, line=place)


class DivisionError(NgraphError, ZeroDivisionError, RuntimeError):
    """Whole numbers divided by 0, or a remainder by 0, found during a computation of a PyTorch model, where PyTorch raises an error, too.

    Right: replace such divisors before, `x // torch.where(y == 0, 1, y)`, or divide floats. State that such a call updates in place is
    inconsistent.
    """


class OperandError(NgraphError, ValueError, RuntimeError):
    """Values that an operation does not take, found during a computation of a PyTorch model, where PyTorch raises an error, too.

    Such as probabilities that are not from 0 to 1, or fewer elements than a mask has true places. Right: bring them into the range before,
    `x.clamp(0, 1)`. State that such a call updates in place is inconsistent.
    """


class ProgramError(NgraphError, ValueError):
    """A program that violates a rule of `docs/spec.md`, found by `verify`; names the step and the rule.

    Also passes in an order that violates their needs, and rules that rewrite in circles. The cause is a pass or a rule, seldom the user's
    graph: `CHECK=1` names the pass after which the program is invalid, and shows it before and after.
    """


class ParseError(NgraphError, ValueError):
    """A text, JSON or weights file that is not in its format. `position` is the offset, line and column are in the message.

    A file of a newer format than this version reads is refused with both numbers: read it with the version that wrote it.
    """

    def __init__(self, message: str, *, position: int = 0, fix: str = "", details: tuple[str, ...] = ()):
        super().__init__(message, fix=fix, details=details)
        self.position = position


class FileError(NgraphError, OSError):
    """A file that cannot be read or written. A file that was to be written keeps its content.

    It is also the error of the system, such as a `FileNotFoundError`, with its `errno` and `filename`.
    Right: the path of an existing file; to write, a path in an existing folder.
    """

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedError(NgraphError, NotImplementedError):
    """A feature that this transformer or frontend does not support; the message names one that does, if there is one.

    Right: choose another by `ngt.make_transformer_factory(name)` or `NGRAPH_TRANSFORMER=name`; `ngt.transformer_choices()` lists
    the available ones.
    """


class SettingError(NgraphError, ValueError):
    """A setting with an invalid value, in `ng.config(...)` or in the environment.

    Wrong: `NGRAPH_NUM_THREADS=abc`, `with ng.config(warnings="never")`, `ng.config.exact = False`. Right: a value that the message
    names, for a block: `with ng.config(exact=False): ...`, or for the process: `NGRAPH_EXACT=0`.
    """


class UnknownName(NgraphError, AttributeError, TypeError):
    """An unknown name: of a function, of an op's attribute, of an argument, of a setting. The fix names the nearest one.

    Wrong: `ng.matmul(x, y)`, `x.ravel()`, `ng.sum(x, axis=0)`. Right: `ng.dot(x, y)`, `ng.flatten(x)`, `ng.sum(x, "H")`.
    """


class UnknownKey(NgraphError, KeyError):
    """An unknown key: a weight by its path, an input of a bound computation, an entry of a batch. The fix names the existing ones.

    Wrong: `model["Affine_7/W"]`. Right: one of `model.paths()`.
    """

    def __str__(self) -> str:
        return str(self.args[0])
