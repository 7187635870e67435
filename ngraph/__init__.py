"""ngraph: a deep-learning graph compiler with named axes.

    >>> import ngraph as ng
    >>> import ngraph.transformers as ngt
    >>> x = ng.placeholder(())
    >>> plus_one = ngt.make_transformer().computation(x + 1, x)
    >>> [float(plus_one(i)) for i in range(3)]
    [1.0, 2.0, 3.0]

The house, in the order in which a graph meets it; a room imports only rooms above it:

    parts            what all rooms stand on, of the standard library alone: facts by name
    errors, config   what went wrong and how to mend it; settings
    warn             what runs, but is probably not what the user means
    verbs, data      what rooms add to the `ngraph` command; digits to train on
    op_graph         what a user means: axes, ops, records, names
    ops              the vocabulary, one record per op
    autodiff         derivatives, from the records
    program          the straight line of core ops: lowering, law, text, and the oracle that interprets it
    rewrite          patterns and the driver that applies them
    numpy_functions  what NumPy lacks
    numpy_ops        core op -> NumPy call
    passes           program -> program: simplify, share, fold, dead, specialise
    plan             program -> kernels over buffers: one merge, one price, memory
    targets          what a machine is: registers, caches, features
    codegen          kernels -> machine code, one generator for every target
    runtime          computations, state, saving
    transformers     what runs a program: direct walks it, numpy prints Python
    export           programs as files for others to run: ONNX
    frontends        other ways of writing models
    tools            the `ngraph` command
    onnx_backend     the interface of onnx's own tests
    util, types, testing   names that users import
"""

import importlib as _importlib
from types import FunctionType as _FunctionType
from typing import Any as _Any

import ngraph.runtime.sources as _sources  # before all others: it notes when they were read
from ngraph.autodiff import deriv, jvp, vjp
from ngraph.config import config
from ngraph.errors import DuplicateAxisNames, IncompatibleAxesError, NgraphError, NgraphWarning, UnmatchedAxesError
from ngraph.op_graph import opdef as _opdef
from ngraph.op_graph.arguments import checked as _checked
from ngraph.op_graph.axes import Axes, AxesMap, Axis, AxisRole, FlattenedAxis, make_axes, make_axis, make_axis_role, spatial_axis
from ngraph.op_graph.dtypes import (
    bfloat16,
    bool_,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ngraph.op_graph.misspelt import OF_NGRAPH as _OF_NGRAPH
from ngraph.op_graph.misspelt import no_attribute as _no_attribute
from ngraph.op_graph.names import NameScope, make_name_scope, metadata, name_scope, with_name_scope, with_op_metadata
from ngraph.op_graph.op import Op
from ngraph.ops.activations import clip, elu, gelu, silu, softplus
from ngraph.ops.attention import attention, log_softmax, logsumexp
from ngraph.ops.checkpoint import checkpoint
from ngraph.ops.collective import all_gather, all_reduce, broadcast_from, reduce_scatter
from ngraph.ops.computation import ComputationOp, computation
from ngraph.ops.control import PrintOp, cond, print_values, scan, while_loop
from ngraph.ops.convolution import conv, convolution
from ngraph.ops.ctc import ctc
from ngraph.ops.deconvolution import deconv, deconvolution
from ngraph.ops.elementwise import (
    absolute,
    add,
    as_op,
    as_ops,
    atan,
    bitcast,
    cast,
    constant,
    cos,
    divide,
    equal,
    erf,
    exp,
    expm1,
    floor,
    floordivide,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    reciprocal,
    relu,
    rounded,
    safelog,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from ngraph.ops.indexing import gather, lookuptable, one_hot, put, scatter, scatter_add, take
from ngraph.ops.linear import contract, dot, linear_map_axes
from ngraph.ops.losses import cross_entropy_binary, cross_entropy_binary_inner, cross_entropy_multi, softmax
from ngraph.ops.notation import einsum, rearrange
from ngraph.ops.pooling import avg_pool, max_pool, pooling
from ngraph.ops.random import bernoulli, normal, permutation, randint, uniform
from ngraph.ops.rearrange import (
    axes_with_order,
    broadcast,
    cast_axes,
    cast_role,
    concat_along_axis,
    diagonal,
    expand_dims,
    flatten,
    flatten_at,
    flip,
    iota,
    map_roles,
    pad,
    slice_along_axis,
    stack,
    tensor_slice,
    unflatten,
)
from ngraph.ops.reduce import L1_norm, L2_norm, batch_size, max, mean, min, prod, squared_L2, sum, tensor_size, variance
from ngraph.ops.selection import nonzero, top_k
from ngraph.ops.sorting import argmax, argmin, cumsum, sort
from ngraph.ops.spellings import (
    compute_reduction_axes,
    constant_storage,
    constant_value,
    dualed_axes,
    is_constant,
    is_constant_scalar,
    sigmoidAtomic,
    slice_axis,
)
from ngraph.ops.state import assign, doall, persistent_tensor, placeholder, sequential, temporary, value_of, variable
from ngraph.ops.writing import fill, init_tensor, set_item

__version__ = "0.1.0"
_opdef.seal()

__all__ = [
    "absolute",
    "add",
    "all_gather",
    "all_reduce",
    "argmax",
    "argmin",
    "as_op",
    "as_ops",
    "assign",
    "atan",
    "attention",
    "avg_pool",
    "Axes",
    "axes_with_order",
    "AxesMap",
    "Axis",
    "AxisRole",
    "batch_size",
    "bernoulli",
    "bfloat16",
    "bitcast",
    "bool_",
    "broadcast",
    "broadcast_from",
    "cast",
    "cast_axes",
    "cast_role",
    "checkpoint",
    "clip",
    "computation",
    "ComputationOp",
    "compute_reduction_axes",
    "concat_along_axis",
    "cond",
    "config",
    "constant",
    "constant_storage",
    "constant_value",
    "contract",
    "conv",
    "convolution",
    "cos",
    "cross_entropy_binary",
    "cross_entropy_binary_inner",
    "cross_entropy_multi",
    "ctc",
    "cumsum",
    "deconv",
    "deconvolution",
    "deriv",
    "diagonal",
    "divide",
    "doall",
    "dot",
    "dualed_axes",
    "DuplicateAxisNames",
    "einsum",
    "elu",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "expm1",
    "fill",
    "flatten",
    "flatten_at",
    "FlattenedAxis",
    "flip",
    "float16",
    "float32",
    "float4_e2m1fn",
    "float64",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "floor",
    "floordivide",
    "gather",
    "gelu",
    "greater",
    "greater_equal",
    "IncompatibleAxesError",
    "init_tensor",
    "int16",
    "int2",
    "int32",
    "int4",
    "int64",
    "int8",
    "iota",
    "is_constant",
    "is_constant_scalar",
    "jvp",
    "L1_norm",
    "L2_norm",
    "less",
    "less_equal",
    "linear_map_axes",
    "log",
    "log1p",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logsumexp",
    "lookuptable",
    "make_axes",
    "make_axis",
    "make_axis_role",
    "make_name_scope",
    "map_roles",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "metadata",
    "min",
    "minimum",
    "mod",
    "multiply",
    "name_scope",
    "NameScope",
    "negative",
    "NgraphError",
    "NgraphWarning",
    "nonzero",
    "normal",
    "not_equal",
    "one_hot",
    "Op",
    "pad",
    "permutation",
    "persistent_tensor",
    "placeholder",
    "pooling",
    "power",
    "print_values",
    "PrintOp",
    "prod",
    "put",
    "randint",
    "rearrange",
    "reciprocal",
    "reduce_scatter",
    "relu",
    "rounded",
    "safelog",
    "scan",
    "scatter",
    "scatter_add",
    "sequential",
    "set_item",
    "sigmoid",
    "sigmoidAtomic",
    "sign",
    "silu",
    "sin",
    "slice_along_axis",
    "slice_axis",
    "softmax",
    "softplus",
    "sort",
    "spatial_axis",
    "sqrt",
    "square",
    "squared_L2",
    "stack",
    "stop_gradient",
    "subtract",
    "sum",
    "take",
    "tanh",
    "temporary",
    "tensor_size",
    "tensor_slice",
    "testing",
    "top_k",
    "transformers",
    "types",
    "uint16",
    "uint2",
    "uint32",
    "uint4",
    "uint64",
    "uint8",
    "unflatten",
    "uniform",
    "UnmatchedAxesError",
    "value_of",
    "variable",
    "variance",
    "vjp",
    "where",
    "while_loop",
    "with_name_scope",
    "with_op_metadata",
]

for _name in __all__:
    if isinstance(_function := globals().get(_name), _FunctionType):
        globals()[_name] = _checked(_function)

_LATER = ("frontends", "testing", "transformers", "types")  # rooms that `ng.testing` and the like load when they are first named

_FRONTENDS = ("onnx",)  # ng.onnx is ngraph.frontends.onnx, loaded when first named; it needs its package


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f"ngraph.{name}")
    if name in _FRONTENDS:
        return _importlib.import_module(f"ngraph.frontends.{name}")
    if name.startswith("_"):
        raise AttributeError(f"module 'ngraph' has no attribute {name!r}")
    raise _no_attribute("ngraph", name, _OF_NGRAPH, __all__, "ng")
