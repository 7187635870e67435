"""ngraph: a deep-learning graph compiler with named axes.

    >>> import ngraph as ng
    >>> import ngraph.transformers as ngt
    >>> x = ng.placeholder(())
    >>> plus_one = ngt.make_transformer().computation(x + 1, x)
    >>> [float(plus_one(i)) for i in range(3)]
    [1.0, 2.0, 3.0]

The rooms, in the order in which they process a graph; a room imports only rooms above it:

    parts            common ground of all rooms, of the standard library alone: facts by name, passes in sequence, walks
    errors, config   what went wrong and how to fix it; settings
    warn             warnings: valid programs that are probably not intended
    verbs, data      registry of the `ngraph` command's verbs; digits to train on
    op_graph         the user's graph: axes, ops, records, names
    ops              the vocabulary, one record per op
    autodiff         derivatives, from the records
    api              the public names, which `ng.x` looks up when x is first used
    program          the intermediate representation, core ops in sequence: lowering, verifier, text, and the oracle that interprets it
    rewrite          patterns and the driver that applies them
    numpy_functions  functions of arrays that NumPy lacks
    numpy_ops        core op -> NumPy call
    passes           program -> program: simplify, share, fold, dead, specialise
    targets          descriptions of machines: registers, caches, features; every tuned number
    tensors          program -> scalar operations over index spaces, and rewrites of them
    plan             tensors -> kernels over buffers: fusion, layouts, cost, memory
    schedule         kernels -> scheduled kernels: loops, vectors, tiles and prefetches as values
    codegen          kernels -> LLVM IR, one generator for every target
    runtime.host     IR -> machine code in this process: compiling, loading, threads, the entry from Python
    runtime          computations, state, saving
    transformers.executable  compiled plans on a kind of machine: memory of calls, tables of instructions, versions by lengths
    transformers     execution of programs: direct calls NumPy, numpy prints Python, cpu runs machine code
    export           programs as files for other systems: ONNX
    frontends.positional  graphs whose tensors have dims in an order, as files and frameworks have them
    frontends.neon   layers, costs, optimizers, data
    frontends.onnx, frontends.tensorflow, frontends.torch  readers of these formats, each upon frontends.positional
    frontends        what importers of 2016 to 2019 shared
    keras            the backend `ngraph` of Keras 3
    bridge           clusters of nodes within TensorFlow's functions; needs TensorFlow
    tools            the `ngraph` command
    onnx_backend     the interface of onnx's own tests
    util, types, testing   names that users import

Words: docs/glossary.md.
"""

import typing as _typing
from importlib import import_module as _import_module

import ngraph.runtime.sources as _sources  # before all others: it records when they were read
from ngraph.config import config as config
from ngraph.parts.registry import LOADERS as _LOADERS

if _typing.TYPE_CHECKING:  # `as` says to type checkers that a name is public
    from ngraph import frontends as frontends
    from ngraph import testing as testing
    from ngraph import transformers as transformers
    from ngraph import types as types
    from ngraph.api import *  # noqa: F403  for type checkers alone
    from ngraph.frontends import onnx as onnx
    from ngraph.frontends import tensorflow as tensorflow
    from ngraph.frontends import torch as torch
    from ngraph.frontends.neon.initializers import ConstantInit as ConstantInit
    from ngraph.frontends.neon.initializers import GaussianInit as GaussianInit
    from ngraph.frontends.neon.initializers import GlorotInit as GlorotInit
    from ngraph.frontends.neon.initializers import KaimingInit as KaimingInit
    from ngraph.frontends.neon.initializers import OrthogonalInit as OrthogonalInit
    from ngraph.frontends.neon.initializers import UniformInit as UniformInit
    from ngraph.frontends.neon.initializers import XavierInit as XavierInit
    from ngraph.transformers.function import function as function

__version__ = "0.1.0"

_LOADERS["op"] = lambda: _import_module("ngraph.api")  # a graph from a file may contain any op
_ROOMS = ("frontends", "testing", "transformers", "types")  # `ng.testing` and the like load a room when it is first used
_FRONTENDS = ("onnx", "tensorflow", "torch")  # ng.onnx is ngraph.frontends.onnx; each needs packages of its own
_BELOW = {  # public names of rooms below `api`
    "function": "ngraph.transformers.function",
    **dict.fromkeys(
        ("ConstantInit", "GaussianInit", "GlorotInit", "KaimingInit", "OrthogonalInit", "UniformInit", "XavierInit"),
        "ngraph.frontends.neon.initializers",
    ),
}


def _public(name: str) -> _typing.Any:
    """Loads public names on first use, so that `import ngraph` is cheap."""
    if name in _ROOMS:
        return _import_module(f"ngraph.{name}")
    if name in _FRONTENDS:
        return _import_module(f"ngraph.frontends.{name}")
    if name in _BELOW:
        globals()[name] = getattr(_import_module(_BELOW[name]), name)
        return globals()[name]
    api = _import_module("ngraph.api")
    if name == "__all__":
        return sorted([*api.__all__, *_ROOMS[1:], *_BELOW], key=lambda n: (n.lower(), n))
    if name in api.__all__:
        globals()[name] = found = getattr(api, name)
        return found
    if name.startswith("_"):
        raise AttributeError(f"module 'ngraph' has no attribute {name!r}")
    misspelt = _import_module("ngraph.op_graph.misspelt")
    raise misspelt.no_attribute("ngraph", name, misspelt.foreign().OF_NGRAPH, [*api.__all__, *_ROOMS, *_FRONTENDS, *_BELOW], "ng")


if not _typing.TYPE_CHECKING:  # type checkers report a misspelt name where a module has no `__getattr__`
    __getattr__ = _public


def __dir__() -> list[str]:
    return sorted({*globals(), *_public("__all__"), *_FRONTENDS})
