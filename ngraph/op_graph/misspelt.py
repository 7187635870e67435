"""Unknown names: the equivalent here for names of other libraries, else the nearest name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ngraph.errors import NoTensor, UnknownName, nearest

_TRANSFORMER = "ngraph.transformers.make_transformer()"


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: said for names, said in table.items() for name in names.split()}


# names in NumPy, PyTorch, TensorFlow and JAX, and their equivalents here
OF_NGRAPH = _by_name(
    {
        "matmul mm bmm inner tensordot linear vdot": "ng.dot or ng.contract: ng.dot(x, y) pairs axes by name",
        "addmm baddbmm": "ng.dot(x, y) + z",
        "allclose isclose array_equal": "ng.absolute(x - y) < 1e-6",
        "identity": "ng.eye, of two axes",
        "percentile": "ng.quantile(x, q / 100, axes)",
        "unbind": "ng.unstack(x, axis)",
        "amax": "ng.max(x, axes)",
        "amin": "ng.min(x, axes)",
        "ptp": "ng.max(x, axes) - ng.min(x, axes)",
        "arccos": "ng.acos(x)",
        "arcsin": "ng.asin(x)",
        "arctan": "ng.atan(x)",
        "arctan2": "ng.atan2(y, x)",
        "average": "ng.sum(x * weights, axes) / ng.sum(weights, axes)",
        "nanmean nansum": "ng.sum(ng.where(x == x, x, 0), axes)",
        "rot90": "ng.flip(x, A), and ng.axes_with_order for another order",
        "deg2rad": "x * (3.141592653589793 / 180)",
        "vander": "ng.power(x, ng.iota(A))",
        "fmod remainder": "ng.mod(x, y), which has the sign of y",
        "masked_fill": "ng.where(mask, value, x)",
        "masked_select": "ng.take(x, ng.nonzero(mask)[0], axis)",
        "rand": "ng.uniform(axes)",
        "randn": "ng.normal(axes)",
        "randperm": "ng.permutation(axis)",
        "multinomial": "ng.argmax(logits - ng.log(-ng.log(ng.uniform(logits))), axes)",
        "selu": "1.0507 * ng.elu(x, 1.67326)",
        "jit compile": "ng.function(results, *inputs)",
        "jacfwd jacrev": "ng.jacobian(f)",
        "pmap": "ng.vmap(f, axis)",
        "fori_loop": "ng.scan over an axis, or ng.while_loop",
        "switch": "ng.cond(predicate, then, otherwise), in each other",
        "concatenate concat cat hstack vstack append": "ng.concat_along_axis([x, y], axis)",
        "reshape view ravel squeeze": "ng.flatten(x, [A, B]) to join axes, ng.unflatten(x, axes) to take one apart, "
        "or ng.cast_axes(x, axes) for other axes of the same lengths",
        "transpose permute swapaxes moveaxis T mT": "ng.axes_with_order(x, [B, A]), though axes are found by name in any order",
        "unsqueeze newaxis": "ng.expand_dims(x, axis)",
        "zeros_like empty": "ng.zeros(axes)",
        "ones_like": "ng.ones(axes)",
        "full_like": "ng.full(axes, number)",
        "array asarray tensor as_tensor from_numpy": "ng.constant(array, axes)",
        "range": "ng.arange(stop, axis=...), or ng.iota(axis)",
        "gradient gradients backward": "ng.deriv(loss, w), or ng.grad(f) of a function",
        "detach no_grad": "ng.stop_gradient(x)",
        "broadcast_to expand broadcast_axes": "ng.broadcast(x, axes)",
        "topk": "ng.top_k(x, axis, k)",
        "chunk": "ng.split(x, axis, parts)",
        "narrow select index_select": "ng.slice_along_axis(x, axis, slice(0, 2))",
        "embedding embedding_lookup": "ng.lookuptable(table, indices, axes)",
        "cross_entropy nll_loss softmax_cross_entropy": "ng.cross_entropy_multi(ng.softmax(y), t)",
        "conv1d conv2d conv3d": "ng.conv(x, filters, {H: R, W: S})",
        "max_pool1d max_pool2d max_pool3d": "ng.max_pool(x, {H: 2, W: 2})",
        "avg_pool1d avg_pool2d avg_pool3d": "ng.avg_pool(x, {H: 2, W: 2})",
        "reduce_sum": "ng.sum(x)",
        "reduce_mean": "ng.mean(x)",
        "reduce_max": "ng.max(x)",
        "reduce_min": "ng.min(x)",
        "reduce_prod": "ng.prod(x)",
        "reduce_logsumexp": "ng.logsumexp(x)",
        "reduce_var": "ng.var(x)",
        "reduce_std": "ng.std(x)",
        "batchnorm": "ng.batch_norm(x, channels)",
        "Parameter get_variable": "ng.variable(axes)",
        "scatter_nd index_add": "ng.scatter_add(x, indices, values, axis)",
        "abs fabs": "ng.absolute(x)",
        "round rint": "ng.rounded(x)",
        "clamp clip_by_value": "ng.clip(x, low, high)",
        "mul": "ng.multiply(x, y)",
        "div true_divide": "ng.divide(x, y)",
        "floor_divide": "ng.floordivide(x, y)",
        "sub": "ng.subtract(x, y)",
        "neg": "ng.negative(x)",
        "pow": "ng.power(x, y)",
        "rsqrt": "1 / ng.sqrt(x)",
        "eq": "ng.equal(x, y)",
        "ne": "ng.not_equal(x, y)",
        "lt": "ng.less(x, y)",
        "le": "ng.less_equal(x, y)",
        "gt": "ng.greater(x, y)",
        "ge": "ng.greater_equal(x, y)",
        "invert bitwise_not": "~x",
        "half": "ng.float16",
        "float single": "ng.float32",
        "double": "ng.float64",
        "int": "ng.int32",
        "long": "ng.int64",
        "bool": "ng.bool_",
        "Transformer make_transformer Session": _TRANSFORMER,
        "computation run": f"{_TRANSFORMER}.computation(y, x)",
    }
)
OF_OPS = _by_name(
    {
        "ndim rank dim": "len(x.axes)",
        "size numel": "x.axes.size",
        "astype to type_as long float double half int bool": "ng.cast(x, 'int32')",
        "numpy item eval tolist value data cpu run": f"{_TRANSFORMER}.computation(x)(), which computes it",
        "assign": "ng.assign(x, value)",
        "grad": "ng.deriv(loss, x)",
        "copy clone": "x itself: ops never change",
        "requires_grad trainable": "x.is_trainable",
    }
)
OF_COMPUTATIONS = _by_name({"run eval forward predict execute": "f(x), which computes it"})
OF_TRANSFORMERS = _by_name({"compute function run eval execute executor": "transformer.computation(y, x)"})


def no_attribute(what: str, name: str, elsewhere: Mapping[str, str], there: Iterable[str], prefix: str) -> UnknownName:
    """Returns the error for an unknown attribute. `elsewhere`: equivalents of other libraries' names; `there`: the existing names."""
    said, meant = elsewhere.get(name), nearest(name, [n for n in there if not n.startswith("_")])
    fix = f"write {said or f'{prefix}.{meant}'}" if said or meant else f"dir({prefix}) lists what there is"
    return UnknownName(f"{what} has no attribute {name!r}", fix=fix)


def missing_attribute(error: Callable[[Any, str], UnknownName]) -> Callable[[Any, str], NoReturn]:
    """Returns a `__getattr__` for a class that raises `error(instance, name)` for public names that the class lacks.

    A property that fails, or an empty slot, raises its own error; names that begin with "_" raise a plain AttributeError, since Python
    itself probes for those. Classes assign it under `if not TYPE_CHECKING:`, because type checkers report unknown names themselves.
    """

    def __getattr__(self: Any, name: str) -> NoReturn:
        if hasattr(type(self), name):
            object.__getattribute__(self, name)
        raise AttributeError(name) if name.startswith("_") else error(self, name)

    return __getattr__


def no_attribute_of_op(label: str, name: str, there: Iterable[str]) -> UnknownName:
    """Returns the error for an attribute that an op lacks; it may name a function of the package."""
    return no_attribute(label, name, _functions_for(name) | OF_OPS, there, "x")


def no_function_for(label: str, name: str) -> NoTensor:
    """Returns the error for a NumPy function that was given an op."""
    said = _functions_for(name).get(name)
    fix = f"write {said}" if said else "compute the op first: ngraph.transformers.make_transformer().computation(x)()"
    return NoTensor(f"np.{name} takes arrays, and {label} is an op", fix=fix)


def _functions_for(name: str) -> dict[str, str]:
    """Returns functions of the package by other libraries' names for them, and by `name` where the package has it."""
    there = getattr(sys.modules.get("ngraph"), "__all__", ())
    return OF_NGRAPH | ({name: f"ng.{name}(x)"} if name in there else {})
