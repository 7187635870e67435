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
        "nansum": "ng.sum(ng.where(ng.isnan(x), 0, x), axes)",
        "nanmean": "ng.sum(ng.where(ng.isnan(x), 0, x), axes) / ng.sum(ng.where(ng.isnan(x), 0, 1), axes)",
        "nanmax": "ng.max(ng.where(ng.isnan(x), -inf, x), axes)",
        "nanmin": "ng.min(ng.where(ng.isnan(x), inf, x), axes)",
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
        "logsigmoid log_sigmoid": "-ng.softplus(-x)",
        "softsign": "x / (1 + ng.absolute(x))",
        "softmin": "ng.softmax(-x, axes)",
        "celu": "ng.elu(x)",
        "hardtanh": "ng.clip(x, -1, 1)",
        "relu6": "ng.clip(x, 0, 6)",
        "hardsigmoid hard_sigmoid": "ng.clip(x / 6 + 0.5, 0, 1)",
        "tanhshrink": "x - ng.tanh(x)",
        "softshrink": "ng.sign(x) * ng.relu(ng.absolute(x) - 0.5)",
        "hardshrink": "ng.where(ng.absolute(x) > 0.5, x, 0)",
        "threshold": "ng.where(x > least, x, value)",
        "expit": "ng.sigmoid(x)",
        "logit": "ng.log(x / (1 - x))",
        "erfc": "1 - ng.erf(x)",
        "gammaln": "ng.lgamma(x)",
        "polygamma": "ng.digamma(x), and ng.deriv of it",
        "betaln": "ng.lgamma(x) + ng.lgamma(y) - ng.lgamma(x + y)",
        "ndtr": "0.5 * (1 + ng.erf(x / 2**0.5))",
        "ndtri": "2**0.5 * ng.erfinv(2 * x - 1)",
        "xlogy": "x * ng.log(ng.where(ng.equal(x, 0), 1, y))",
        "copysign": "ng.where(y < 0, -ng.absolute(x), ng.absolute(x))",
        "signbit": "x < 0",
        "heaviside": "ng.where(ng.equal(x, 0), y, ng.where(x > 0, 1, 0))",
        "cbrt": "ng.sign(x) * ng.power(ng.absolute(x), 1 / 3)",
        "ldexp": "x * ng.exp2(y)",
        "rad2deg": "x * (180 / 3.141592653589793)",
        "fix": "ng.trunc(x)",
        "positive": "x itself",
        "lerp": "x + weight * (y - x)",
        "diff": "x['K', 1:] - x['K', :-1]",
        "trapezoid trapz": "ng.sum((x['K', 1:] + x['K', :-1]) * step, 'K') / 2",
        "cumulative_sum": "ng.cumsum(x, axis)",
        "cumulative_prod": "ng.cumprod(x, axis)",
        "count_nonzero": "ng.sum(ng.not_equal(x, 0), axes)",
        "argwhere": "ng.nonzero(x)",
        "bucketize digitize": "ng.searchsorted(edges, x, side='right')",
        "interp": "ng.searchsorted(places, x), and ng.take for the values beside that",
        "kthvalue partition": "ng.sort(x, axis), and its slice",
        "argpartition": "ng.top_k(x, axis, k)[1]",
        "mode": "ng.unique(x, counts=True)",
        "isin": "ng.any(ng.equal(x, values), axis), of values along an axis that x lacks",
        "take_along_axis": "ng.take(x, indices, axis), which pairs the other axes by name",
        "put_along_axis": "ng.put(x, indices, values, axis), which pairs the other axes by name",
        "meshgrid ogrid mgrid": "x * y: axes of other names are paired with each other",
        "fliplr flipud": "ng.flip(x, axis)",
        "dstack column_stack": "ng.stack([x, y], axis) for a new axis, or ng.concat_along_axis([x, y], axis)",
        "tril_indices triu_indices": "ng.tril(x, rows, columns), or ng.triu",
        "pixel_unshuffle space_to_depth": "ng.rearrange(x, 'N C (H r) (W s) -> N (C r s) H W', r=2, s=2)",
        "movedim swapdims": "ng.axes_with_order(x, [B, A]), though axes are found by name in any order",
        "cov": "ng.contract(d, ng.map_roles(d, {'K': 'K2'}), over='N') / (n - 1), of d = x - ng.mean(x, 'N')",
        "corrcoef": "ng.contract(d, ng.map_roles(d, {'K': 'K2'}), over='N') / n, of d = (x - ng.mean(x, 'N')) / ng.std(x, 'N')",
        "cdist": "ng.norm(x - y, 2, 'D'), where the points of x and y have axes of two names",
        "pairwise_distance": "ng.norm(x - y, 2, 'D')",
        "cosine_similarity": "ng.sum(x * y, 'D') / (ng.norm(x, 2, 'D') * ng.norm(y, 2, 'D'))",
        "normalize": "x / ng.norm(x, 2, axis)",
        "polyval": "ng.sum(coefficients * ng.power(x, ng.iota(P)), P), the lowest first",
        "convolve": "ng.conv(x, ng.flip(filters, R), {H: R}): ng.conv does not turn filters round",
        "correlate": "ng.conv(x, filters, {H: R})",
        "mse_loss": "ng.mean(ng.square(x - y), out_axes=())",
        "l1_loss": "ng.mean(ng.absolute(x - y), out_axes=())",
        "binary_cross_entropy": "ng.cross_entropy_binary(y, t)",
        "scaled_dot_product_attention": "ng.attention(q, k, v, features=D, queries=T)",
        "instance_norm": "ng.layer_norm(x, [H, W])",
        "moments var_mean": "ng.mean(x, axes), ng.var(x, axes)",
        "std_mean": "ng.std(x, axes), ng.mean(x, axes)",
        "aminmax": "ng.min(x, axes), ng.max(x, axes)",
        "logdet": "ng.linalg.slogdet(x, rows, columns)[1]",
        "cholesky inv det slogdet solve qr svd eigh lu pinv lstsq matrix_power": "ng.linalg: its functions take the names of two axes",
        "vectorize apply_along_axis": "ng.vmap(f, axis)",
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
OF_LINALG = _by_name(
    {
        "norm": "ng.linalg.matrix_norm(x, rows, columns), or ng.norm(x, 2, axes) of vectors",
        "vector_norm": "ng.norm(x, 2, axes)",
        "eigvalsh": "ng.linalg.eigh(x, rows, columns)[0]",
        "eig eigvals": "ng.linalg.eigh(x, rows, columns), of symmetric matrices: there are no complex dtypes",
        "svdvals": "ng.linalg.svd(x, rows, columns)[1]",
        "cond": "ng.linalg.matrix_norm(x, rows, columns, 2) / ng.linalg.matrix_norm(x, rows, columns, -2)",
        "matrix_rank": "ng.sum(s > 1e-6, s.axes[-1]), of s = ng.linalg.svd(x, rows, columns)[1]",
        "logdet": "ng.linalg.slogdet(x, rows, columns)[1]",
        "solve_triangular": "ng.linalg.triangular_solve(a, b, rows, columns)",
        "cholesky_solve cho_solve cho_factor": "ng.linalg.cholesky, and ng.linalg.triangular_solve twice",
        "lu_factor lu_solve": "ng.linalg.lu, or ng.linalg.solve(a, b, rows, columns)",
        "cross": "ng.cross(x, y, axis)",
        "outer": "ng.outer(x, y)",
        "diagonal": "ng.diag(x, axis, other)",
        "trace": "ng.trace(x, axis, other)",
        "matmul multi_dot tensordot vecdot": "ng.contract(x, y, over=axis), or ng.einsum",
        "matrix_transpose": "x itself: rows and columns are named",
        "tensorsolve tensorinv": "ng.linalg.solve after ng.flatten of the rows and of the columns",
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
