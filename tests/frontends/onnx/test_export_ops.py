"""Each record's samples, exported and run by ONNX Runtime (or onnx's reference evaluator), give what the record's reference says."""

import contextlib
import importlib
import io
import pkgutil
import zlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from exported import exported, run  # noqa: E402

import ngraph as ng  # noqa: E402
import ngraph.ops  # noqa: E402
from ngraph.op_graph import dtypes  # noqa: E402
from ngraph.op_graph.op import Op  # noqa: E402
from ngraph.op_graph.opdef import REGISTRY  # noqa: E402
from ngraph.program.interpret import interpret  # noqa: E402
from ngraph.program.lower import lower  # noqa: E402
from ngraph.testing.samples import feed, samples, tensors  # noqa: E402

for _module in pkgutil.iter_modules(ngraph.ops.__path__):
    importlib.import_module(f"ngraph.ops.{_module.name}")

# what cannot be exported, as docs/onnx.md lists it
REFUSED = {
    "effect": "nodes have no effects",
    "print": "nodes have no effects",
    "random_bits": "the generator is our own; its ops for users go out as the runtime's",
    "cast": "a narrow type begins at a later opset",
    "bitcast": "BitCast begins at opset 26, and float64 cannot be computed",
    **dict.fromkeys(("cholesky", "cholesky_block", "lu", "lu_block", "solve", "triangular_solve", "triangular_block"), "linear algebra"),
    **dict.fromkeys(("eigh", "pinv", "qr", "svd"), "linear algebra"),
}
RANDOM = {"uniform": (-2, 3), "normal": (-10, 10), "randint": (-(1 << 63), 1 << 63)}
# ONNX leaves open where NaN stands among others, and what becomes of infinities where they cancel
OPEN = {"reduce", "argreduce", "sort", "top_k", "max_pool", "avg_pool", "log_softmax", "sign"}
EXTREME = {"reduce", "cast"}  # sums that wrap are wrong in ONNX Runtime, and casts of what does not fit are anything

UNRUN = {(name, "bfloat16") for name in ("scan", "ctc", "cumulate", "uniform", "normal")}  # neither has a kernel for it
UNRUN |= {("erf", "float64")}  # the one has no kernel for it, the other rounds to float32
UNRUN |= {("scatter", "float16")}  # the one refuses the largest of these

RECORDS = sorted(r.name for r in REGISTRY.values() if r.samples is not None)
FIRST = {"float": "float32", "int": "int32", "uint": "uint32", "bool": "bool", "narrow": "int4"}
OTHERS = ["float64", "float16", "int64", "int32", "int8", "uint8", "uint16", "bool", "uint64", "int16", "bfloat16", "uint32", "int4"]


def cells():
    found = []
    for name in RECORDS:
        kinds = REGISTRY[name].kinds
        taken = [d for d in OTHERS if dtypes.as_dtype(d).kind in kinds and (name, d) not in UNRUN]
        first = FIRST["float" if "float" in kinds else kinds[0]]
        found += [(name, d) for d in dict.fromkeys([first, taken[zlib.crc32(name.encode()) % len(taken)]])]
    return found


def near(got, expected, record):
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    kind = dtypes.as_dtype(expected.dtype)
    if not kind.is_float:
        return bool((got.view(np.uint8) == expected.view(np.uint8)).all()) if kind.kind == "narrow" else bool((got == expected).all())
    g, e = got.astype(np.float64), expected.astype(np.float64)
    eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[kind.name]
    with np.errstate(all="ignore"):
        allowed = np.maximum(max(record.ulp, 8) * eps * np.maximum(abs(e), 1), record.error * eps / 2.0**-23)
        return bool(((abs(g - e) <= allowed) | (g == e) | (np.isnan(g) & np.isnan(e))).all())


def odd(array):
    """Whether values are among those that OPEN or EXTREME leaves open."""
    kind = dtypes.as_dtype(array.dtype)
    if kind.is_integer:
        return bool(array.size) and kind.bits > 16 and max(abs(int(array.min())), int(array.max())) >= (1 << kind.bits - 2)
    return kind.is_float and not np.isfinite(array).all()


def agree(record, source, roots, opset):
    """One graph of all roots, here and there."""
    holes, values = feed(source, roots)
    with contextlib.redirect_stdout(io.StringIO()):
        expected, _ = interpret(lower(roots, holes).program, values)
    named = {f"y{k}": r for k, r in enumerate(roots)}
    made = exported(named, opset, inputs={f"x{k}": h for k, h in enumerate(holes)})
    got, who = run(made, {f"x{k}": v for k, v in enumerate(values)})
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        if record.name in RANDOM:
            low, high = RANDOM[record.name]
            assert g.shape == e.shape and g.dtype == e.dtype and ((g >= low) & (g <= high)).all()
        else:
            assert near(g, e, record), f"{who}, sample {k}, {roots[k]}:\n{g}\n{e}"


@pytest.mark.parametrize(("name", "dtype"), cells(), ids=["-".join(c) for c in cells()])
def test_record(name, dtype):
    record, opset = REGISTRY[name], 20 if name in RANDOM else 24
    source, made = samples(record, dtype, seed=zlib.crc32(name.encode()))
    roots = tensors(o for o in made if o.type is not None) + [o for o in made if o.type is None]
    if name in OPEN | EXTREME:
        roots = [r for r in roots if not any(odd(v) for v in feed(source, [r])[1])]
    left, refused = [], 0
    for r in roots:
        below = Op.all_op_references([r])
        mine = [o.opdef.name for o in below if o.opdef.name in ("effect", "print", "random_bits")]
        if mine or name in REFUSED:
            try:
                exported({"y": r}, opset)
            except ng.errors.UnsupportedError as error:
                assert name in REFUSED or mine, error
                refused += 1
                continue
            assert not mine or 0 in r.axes.lengths
        left.append(r)
    assert left or refused == len(roots)
    if left:
        agree(record, source, left, opset)


def test_what_is_refused_is_listed():
    """The page on ONNX has every record that cannot be exported."""
    import pathlib

    page = (pathlib.Path(__file__).parents[3] / "docs" / "onnx.md").read_text()
    for name in REFUSED:
        assert f"`{name}`" in page.split("## Export")[1].split("\n## ")[0], name


@pytest.mark.parametrize("opset", [17, 20])
def test_a_transform_of_a_length_that_calls_bring(opset):
    x = ng.placeholder("N=? T=?", dtype="float64").named("x")
    whole, half = (f(x, "T") for f in (ng.fft, ng.rfft))
    made = exported({"whole": whole, "half": half, "back": ng.ifft(whole, whole.axes[1].name)}, opset)
    for n, t in ((3, 8), (1, 7), (2, 1), (4, 97)):
        a = np.random.default_rng(t).standard_normal((n, t))
        found, who = run(made, {"x": a})
        assert who == "ONNX Runtime"
        real = [f(a) for f in (np.fft.fft, np.fft.rfft)]
        for got, want in zip(found, [np.stack([y.real, y.imag], -1) for y in [*real, a + 0j]], strict=True):
            np.testing.assert_allclose(got, want, 1e-9, 1e-9)
    with pytest.raises(ng.errors.UnsupportedError, match="needs opset 17") as refused:
        exported({"whole": whole}, 16)
    assert refused.value.fix.endswith("has them")


@pytest.mark.parametrize("dims", ["T=4 N=?", "N=? T=4"])
def test_the_gradient_of_every_third_element_beside_a_length_that_calls_bring(dims):
    x = ng.placeholder(dims).named("x")
    y = x["T", ::3]
    made = exported({"slope": ng.deriv((y * y).sum(out_axes=()), x)})
    for n in (3, 1, 5):
        a = np.random.default_rng(n).standard_normal((4, n) if dims.startswith("T") else (n, 4)).astype("float32")
        along = a if dims.startswith("T") else a.T
        wanted = np.where(np.arange(4)[:, None] % 3 == 0, 2 * along, 0)
        (found,), who = run(made, {"x": a})
        assert who == "ONNX Runtime"
        np.testing.assert_array_equal(found, wanted if dims.startswith("T") else wanted.T)


def test_choices_among_masks():
    m, c = ng.placeholder("N=? T=4", dtype="bool").named("m"), ng.placeholder("N=?", dtype="bool").named("c")
    i = ng.constant([3, -1, 9], "K=3", dtype="int32")
    made = exported({"chosen": ng.where(c, m, ~m), "taken": ng.take(m, i, "T")})
    for n in (2, 1):
        masks, which = np.random.default_rng(n).uniform(size=(n, 4)) < 0.5, np.arange(n) % 2 == 0
        found, who = run(made, {"m": masks, "c": which})
        assert who == "ONNX Runtime"
        np.testing.assert_array_equal(found[0], np.where(which[:, None], masks, ~masks))
        np.testing.assert_array_equal(found[1], np.stack([masks[:, 3], masks[:, 3] & False, masks[:, 3] & False], 1))


@pytest.mark.parametrize("names", ["N H W C", "N C H W", "N H C W", "C N H W", "H C N", "N C"])
def test_a_product_with_a_vector_in_any_order_of_axes(names):
    """ONNX Runtime optimises these, and reads wrong elements where a transposed stack of matrices meets a vector."""
    lengths = {"N": 2, "C": 3, "H": 5, "W": 7}
    axes = {k: ng.make_axis(n, name=k) for k, n in lengths.items()}
    x, w = (ng.placeholder([axes[k] for k in of.split()]).named(of.lower().replace(" ", "")) for of in (names, "C"))
    y = ng.contract(x, w, over=axes["C"])
    rng = np.random.default_rng(len(names))
    a, b = rng.normal(size=[lengths[k] for k in names.split()]).astype("float32"), rng.normal(size=3).astype("float32")
    found, who = run(exported({"y": y}), {"".join(names.lower().split()): a, "c": b})
    assert who == "ONNX Runtime"
    wanted = np.tensordot(a.astype("float64"), b, [names.split().index("C"), 0])
    np.testing.assert_allclose(found[0], wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16"])
def test_bits_are_computed_below_opset_26(name):
    dtype = dtypes.as_dtype(name)
    signed, unsigned = f"int{dtype.bits}", f"uint{dtype.bits}"
    draw = np.random.default_rng(0).integers(0, 1 << dtype.bits, 2000)
    edges = [b + s for b in (0, 1, 2, 127, 1 << 7, 1 << 10, 1 << 23, 0x7C00, 0x7F80, 0x7F800000) for s in (0, 1 << dtype.bits - 1)]
    given = np.arange(1 << 16) if name == "float16" else np.concatenate([draw, [b % (1 << dtype.bits) for b in edges]])
    bits = given.astype(unsigned)
    floats = bits.view(dtype.np)
    n = ng.make_axis(len(bits), name="N")
    x, y, z = (ng.placeholder([n], dtype=d) for d in (unsigned, signed, name))
    casts = [(x, name), (y, name), (z, unsigned), (z, signed)]
    roots = {f"y{k}": ng.bitcast(v, dtype=d) for k, (v, d) in enumerate(casts)}
    got, _ = run(exported(roots, 20, inputs={"a": x, "b": y, "c": z}), {"a": bits, "b": bits.view(signed), "c": floats})
    nan = np.isnan(floats.astype(np.float32))
    assert 0 < nan.sum() < len(bits) / 2
    for g in got:
        np.testing.assert_array_equal(g.view(unsigned)[~nan], bits[~nan])
    for g in got[:2]:
        assert np.isnan(g[nan].astype(np.float32)).all()
    for g in got[2:]:
        assert np.isnan(g.view(dtype.np)[nan].astype(np.float32)).all()
