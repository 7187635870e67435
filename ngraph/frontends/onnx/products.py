"""Translators of matrix products and einsum."""

from __future__ import annotations

from typing import Any

from ngraph.frontends.onnx.table import translates
from ngraph.frontends.positional import products
from ngraph.frontends.positional.shapes import turned
from ngraph.frontends.positional.values import Tensor, Value


@translates("MatMul")
def matmul(n: Any, a: Value, b: Value) -> Tensor:
    return products.matmul(n.g, n.g.tensor(a), n.g.tensor(b))


@translates("Gemm")
def gemm(n: Any, a: Value, b: Value, c: Value = None) -> Tensor:
    x, y = (turned(n.g.tensor(v)) if n.attr(name, 0) else n.g.tensor(v) for v, name in ((a, "transA"), (b, "transB")))
    return products.gemm(n.g, x, y, c, n.attr("alpha", 1.0), n.attr("beta", 1.0))


@translates("Einsum")
def einsum(n: Any, *values: Value) -> Tensor:
    return products.einsum(n.g, n.attr("equation"), [n.g.tensor(v) for v in values])
