"""ngraph: a deep-learning graph compiler with named axes.

    >>> import ngraph as ng
    >>> import ngraph.transformers as ngt
    >>> x = ng.placeholder(())
    >>> plus_one = ngt.make_transformer().computation(x + 1, x)
    >>> [float(plus_one(i)) for i in range(3)]
    [1.0, 2.0, 3.0]

The house, in the order in which a graph meets it; a room imports only rooms above it:

    parts            what all rooms stand on, of the standard library alone: facts by name, passes in a row
    errors, config   what went wrong and how to mend it; settings
    warn             what runs, but is probably not what the user means
    verbs, data      what rooms add to the `ngraph` command; digits to train on
    op_graph         what a user means: axes, ops, records, names
    ops              the vocabulary, one record per op
    autodiff         derivatives, from the records
    api              the public names, which `ng.x` looks up when x is first named
    program          the straight line of core ops: lowering, law, text, and the oracle that interprets it
    rewrite          patterns and the driver that applies them
    numpy_functions  what NumPy lacks
    numpy_ops        core op -> NumPy call
    passes           program -> program: simplify, share, fold, dead, specialise
    targets          what a machine is: registers, caches, features; every tuned number
    tensors          program -> scalar operations over index spaces, and rewrites of them
    plan             tensors -> kernels over buffers: one merge, one price, memory
    schedule         kernels -> scheduled kernels: loops, vectors, tiles and prefetches as values
    codegen          kernels -> LLVM IR, one generator for every target
    runtime.host     IR -> machine code in this process: compiling, loading, threads, the entry from Python
    runtime          computations, state, saving
    transformers.executable  compiled plans on a kind of machine: memory of calls, tables of instructions, versions by lengths
    transformers     what runs a program: direct walks it, numpy prints Python
    export           programs as files for others to run: ONNX
    frontends        other ways of writing models: neon's layers; positional, which all formats of files share, and onnx on top of it
    tools            the `ngraph` command
    onnx_backend     the interface of onnx's own tests
    util, types, testing   names that users import
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import ngraph.runtime.sources as _sources  # before all others: it notes when they were read
from ngraph.config import config
from ngraph.parts.registry import LOADERS as _LOADERS

if _TYPE_CHECKING:
    from ngraph.api import *  # noqa: F403  for type checkers alone

__version__ = "0.1.0"

_LOADERS["op"] = lambda: _import_module("ngraph.api")  # a graph that comes from a file may hold any op
_ROOMS = ("frontends", "testing", "transformers", "types")  # `ng.testing` and the like load a room when it is first named
_FRONTENDS = ("onnx",)  # ng.onnx is ngraph.frontends.onnx; it needs its package


def __getattr__(name: str) -> _Any:
    """Loads what is public where it is first named, so that `import ngraph` costs next to nothing."""
    if name in _ROOMS:
        return _import_module(f"ngraph.{name}")
    if name in _FRONTENDS:
        return _import_module(f"ngraph.frontends.{name}")
    api = _import_module("ngraph.api")
    if name == "__all__":
        return sorted([*api.__all__, *_ROOMS[1:]], key=lambda n: (n.lower(), n))
    if name in api.__all__:
        globals().update((n, getattr(api, n)) for n in api.__all__)
        return globals()[name]
    if name.startswith("_"):
        raise AttributeError(f"module 'ngraph' has no attribute {name!r}")
    misspelt = _import_module("ngraph.op_graph.misspelt")
    raise misspelt.no_attribute("ngraph", name, misspelt.OF_NGRAPH, [*api.__all__, *_ROOMS, *_FRONTENDS], "ng")


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__"), *_FRONTENDS]
