"""Programs to text and JSON and back: everything survives, and what is not a program is refused with a place."""

import json
import os
import random
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph as ng
from ngraph.errors import ParseError, ProgramError
from ngraph.op_graph import dtypes, expr
from ngraph.op_graph.arrays import ArrayRef
from ngraph.op_graph.expr import DEEPEST, Idx, Len, Run
from ngraph.op_graph.op import Origin, TensorType
from ngraph.program.interpret import interpret
from ngraph.program.lower import lower
from ngraph.program.program import AxisId, Program, State, Step, Value
from ngraph.program.text import FORMAT, MAX_DEPTH, arrays, equal, from_json, load, parse, save, step_text, text, to_json

# ---- any program, lawful or not ---------------------------------------------------------------------------------------

AXES = ["C", "N", "H'", "H''", "H.2", "H.2'", "H^", "_", "Größe", "float32", "min", "nan", "Len", "program", "in"]
AXES += ["two words", "`", "a\n\\b", ""]
NAMES = st.sampled_from(["", "x", "W", "in", "at", "net/h", 'a "quoted" name', "line\nbreak", "\u2028", "日本", "axis"])
DTYPES = st.sampled_from([d for d in dtypes.REGISTRY.values() if d.np is not None])
FLOATS = st.one_of(st.floats(), st.sampled_from([float("nan"), -float("nan"), -0.0, float("inf"), 5e-324, 1e16, 1e22]))
NAN_BITS = np.frombuffer(np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001], np.uint64).tobytes(), np.float64).tolist()


@st.composite
def refs(draw):
    dtype = draw(DTYPES).np
    size = draw(st.sampled_from([0, 1, 2, 3, 6, 40]))
    data = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    array = np.frombuffer(data, np.uint8) % 2 if dtype.kind == "b" else np.frombuffer(data, dtype)
    shape = draw(st.sampled_from([(size,), (1, size), (size, 1, 1)] + [()] * (size == 1) + [(2, 3)] * (size == 6)))
    return ArrayRef(array.astype(dtype).reshape(shape), draw(NAMES))


@st.composite
def exprs(draw, axes, values, index=True, depth=3):
    kinds = [Len] + [Idx] * index + [Run] * bool(values)
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()) or not axes:
            return draw(st.integers(-3, 10**12))
        kind = draw(st.sampled_from(kinds))
        return kind(draw(st.sampled_from(values)) if kind is Run else draw(st.sampled_from(axes)))
    a, b = draw(exprs(axes, values, index, depth - 1)), draw(exprs(axes, values, index, depth - 1))
    op = draw(st.sampled_from(list(expr.APPLY)))
    return expr.combine(op, a, b) if not (op in ("//", "%") and b == 0) else a


@st.composite
def programs(draw, depth=2):
    axes = [AxisId(a) for a in draw(st.lists(st.sampled_from(AXES), unique=True, max_size=5))]

    def value():
        return Value(TensorType(tuple(draw(st.permutations(axes))[: draw(st.integers(0, 3))]), draw(DTYPES)), draw(NAMES))

    values = [value() for _ in range(draw(st.integers(0, 3)))]
    inputs, states = tuple(values[:1]), tuple(State(f"{draw(NAMES)}{k}", v) for k, v in enumerate(values[1:]))
    token = Value(TensorType((), dtypes.token), "token") if draw(st.booleans()) else None
    made = [Value(TensorType((), dtypes.int32)) for _ in range(3)]
    attr = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        FLOATS,
        st.sampled_from(NAN_BITS),
        NAMES,
        DTYPES,
        refs(),
        exprs(axes, [*values, *made]),
        *([st.sampled_from(axes)] if axes else []),
        *([programs(depth=depth - 1)] if depth else []),
    )
    attrs = st.dictionaries(NAMES, st.one_of(attr, st.lists(attr, max_size=3).map(tuple)), max_size=3)
    origins = st.lists(st.builds(Origin, NAMES, NAMES, NAMES, st.integers(0, 99)), max_size=3).map(tuple)
    steps = []
    for _ in range(draw(st.integers(0, 3))):
        taken = tuple(draw(st.lists(st.sampled_from(values), max_size=3))) if values else ()
        given = tuple(value() for _ in range(draw(st.integers(0, 2))))
        steps.append(Step(given, draw(st.sampled_from(["add", "my op", "while", "array"])), taken, draw(attrs), draw(origins)))
        values += given
    steps.append(Step(tuple(made), "made", (), {}, ()))
    lengths = st.one_of(st.integers(0, 10**15), exprs(axes, [*values, *made], index=False))
    return Program(
        axes={a: draw(st.one_of(st.just(Len(a)), lengths)) for a in axes},
        hints={a: draw(NAMES) for a in axes if draw(st.booleans())},
        inputs=inputs,
        state_in=states,
        steps=tuple(steps),
        outputs=tuple(draw(st.lists(st.sampled_from([*values, *made]), max_size=3))),
        state_out=tuple((s.name, draw(st.sampled_from(values))) for s in states if draw(st.booleans())),
        token_in=token,
        token_out=token,
        name=draw(NAMES) or "program",
    )


@settings(max_examples=150, deadline=None)
@given(programs())
def test_text_and_json_give_the_program_back(p):
    written = text(p)
    again = parse(written, arrays(p))
    assert equal(p, again, notes=True) and equal(again, p, notes=True)
    assert text(again) == written
    assert equal(p, parse(text(p, origins=False), arrays(p)))
    again = from_json(json.dumps(to_json(p), allow_nan=False))
    assert equal(p, again, notes=True)
    assert text(again) == written


@settings(max_examples=200, deadline=None)
@given(programs(depth=1), st.randoms(use_true_random=False))
def test_changed_text_is_parsed_or_refused_with_a_position(p, chance):
    written = text(p)
    for _ in range(chance.randint(1, 3)):
        at, to = sorted(chance.randrange(len(written) + 1) for _ in range(2))
        junk = chance.choice([*' \n"`%()[]{}-\\\x00é', "", "%0", "9" * 30, "nan", "axis", "min(", "program {"])
        written = written[:at] + junk + written[chance.choice([at, to, at + 1]) :]
    check_text(written, arrays(p))


WORDS = 'axis C = %0 : ( ) [ ] { } , + - // min Len "s" 1 1.5 add program float32 output # nan \n'.split(" ")


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join)))
def test_random_text_is_parsed_or_refused_with_a_position(source):
    check_text(source)
    check_text("ngraph program 1\n" + source)


def check_text(source, given=None):
    try:
        p = parse(source, given)
    except ParseError as e:
        assert 0 <= e.position <= len(source)
        where = str(e).split("\n")[0]
        before = source[: e.position]
        assert f"line {before.count(chr(10)) + 1}, column {e.position - before.rfind(chr(10))}:" in where
    else:
        assert text(parse(text(p), arrays(p))) == text(p)


def mutate(data, chance):
    """One place of JSON data changed."""
    path, here = [], data
    while isinstance(here, (dict, list)) and here and (not path or chance.random() < 0.85):
        key = chance.choice(list(here)) if isinstance(here, dict) else chance.randrange(len(here))
        path.append((here, key))
        here = here[key]
    if path:
        owner, key = path[-1]
        junk = [None, -1, 0, 1, 10**9, 1.5, "", "x", "float32", [], [[]], {}, {"id": "C"}, {"expr": ["+"]}, {"program": {}}]
        junk += [{"ref": ["", ["int8", [10**12], ""]]}]
        match chance.randrange(3):
            case 0:
                del owner[key]
            case 1:
                owner[key] = chance.choice(junk)
            case _:
                owner[key] = [here, here] if isinstance(owner, list) else {"list": [here]}


@settings(max_examples=300, deadline=None)
@given(programs(depth=1), st.randoms(use_true_random=False))
def test_changed_json_is_read_or_refused_and_equality_is_that_of_the_texts(p, chance):
    data = json.loads(json.dumps(to_json(p)))
    mutate(data, chance)
    for source in (data, json.dumps(data)):
        try:
            q = from_json(source)
        except ParseError:
            continue
        assert equal(from_json(json.dumps(to_json(q))), q, notes=True)
        try:
            same = text(p) == text(q) and [a.tobytes() for a in arrays(p).values()] == [a.tobytes() for a in arrays(q).values()]
        except ProgramError:
            continue  # an attribute that only op-graphs have
        assert equal(p, q, notes=True) == same


# ---- programs that run ------------------------------------------------------------------------------------------------


def network():
    C, N, K = ng.make_axis(4, name="C"), ng.make_axis(name="N"), ng.make_axis(30, name="K")
    x = ng.placeholder([C, N], name="x")
    w = ng.variable([K, C], initial_value=0.5, name="W")
    with ng.name_scope("net"):
        h = ng.tanh(ng.contract(w, x, over=(C,)) + ng.constant(np.linspace(0, 1, 30, dtype=np.float32), [K]))
        y = ng.sum(h * ng.constant(np.array([0.1, np.nan, -0.0, np.inf], np.float32), [C]), reduction_axes=[K])
    return lower([y, h, ng.assign(w, w * 0.9)], [x]).program


def test_what_was_parsed_runs_to_equal_bits_also_in_another_process(tmp_path):
    p = network()
    x, w = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32), np.full((30, 4), 0.25, np.float32)
    first, state = interpret(p, [x], {"W": w})
    wanted = b"".join([a.tobytes() for a in [*first, state["W"]]])
    for q in (parse(text(p), arrays(p)), from_json(to_json(p))):
        again, after = interpret(q, [x], {"W": w})
        assert b"".join([a.tobytes() for a in [*again, after["W"]]]) == wanted
    save(p, tmp_path / "p.json")
    (tmp_path / "p.txt").write_text(text(p), encoding="utf-8")
    np.savez(tmp_path / "a.npz", x=x, w=w, **arrays(p))
    code = """
import sys, numpy as np, ngraph, pathlib
from ngraph.program.text import load, parse
from ngraph.program.interpret import interpret
folder = pathlib.Path(sys.argv[1])
a = dict(np.load(folder / "a.npz"))
for p in (load(folder / "p.json"), parse((folder / "p.txt").read_text(encoding="utf-8"), a)):
    outputs, state = interpret(p, [a["x"]], {"W": a["w"]})
    sys.stdout.buffer.write(b"".join([o.tobytes() for o in [*outputs, state["W"]]]))
"""
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=True).stdout
    assert out == wanted * 2


def test_a_printed_program_reads_as_documented():
    C, N = ng.make_axis(4, name="C"), ng.make_axis(name="N")
    x, w = ng.placeholder([C, N], name="x"), ng.variable([C], name="W")
    p = lower([ng.contract(w, x, over=(C,))], [x], name="a dot").program
    assert text(p, origins=False) == (
        'ngraph program 1 "a dot"\n'
        "axis C = 4\n"
        "axis N\n"
        "input %0 x : float32[C, N]\n"
        'state "W" = %1 W : float32[C]\n'
        "%2 : float32[N] = contract(%1, %0) {over: [C], accumulate: float32}\n"
        "output %2\n"
    )
    assert f'  # contract at "{__file__}":' in text(p)


def test_lengths_and_bodies_read_as_documented():
    n, h, t = AxisId("N"), AxisId("H.2"), AxisId("T")
    count, x, y = Value(TensorType((), dtypes.int32)), Value(TensorType((n,), dtypes.float32), "x"), Value(TensorType((n,), dtypes.float32))
    body = Program(axes={n: Len(n)}, inputs=(x,), outputs=(x,), name="body")
    scan = Step((y,), "scan", (y,), {"body": body, "axis": t}, ())
    p = Program(
        axes={n: Len(n), h: expr.minimum(Len(n), 3), t: expr.minimum(Run(count), 2 * Len(n) + 1)},
        hints={h: "ax.H"},
        inputs=(count,),
        steps=(scan,),
    )
    assert text(p) == (
        "ngraph program 1\n"
        "axis N\n"
        'axis H.2 "ax.H" = min(N, 3)\n'
        "axis T = min(Run(%0), N * 2 + 1)\n"
        "input %0 : int32[]\n"
        '%1 : float32[N] = scan(%1) {body: program "body" {\n'
        "    axis N\n"
        "    input %0 x : float32[N]\n"
        "    output %0\n"
        "}, axis: T}\n"
    )
    assert equal(parse(text(p)), p)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_small_arrays_keep_every_bit(dtype):
    words = np.array([0, 1, 2**15, 0x7C00, 0x7C01, 0xFFFF, 0x7FC0, 0x7F80, 0xFF81, 3, 0x7F81, 0x7FF0], np.uint16)
    array = np.frombuffer(words.tobytes(), dtype)
    x = Value(TensorType((), dtypes.float32))
    p = Program(steps=(Step((x,), "constant", (), {"value": ArrayRef(array)}, ()),))
    for q in (parse(text(p)), from_json(to_json(p))):
        assert q.steps[0].attrs["value"] == p.steps[0].attrs["value"]
        assert q.steps[0].attrs["value"].array.tobytes() == array.tobytes()


def test_large_arrays_stand_by_name_once_each():
    big = [ArrayRef(np.arange(100.0) + k, "W") for k in range(2)]
    steps = [Step((Value(TensorType((), dtypes.float64)),), "constant", (), {"value": big[k % 2]}, ()) for k in range(4)]
    p = Program(steps=tuple(steps))
    kept = arrays(p)
    assert list(kept) == ["W", "W_2"]
    assert text(p).count('array("W")') == 2 and text(p).count('array("W_2")') == 2
    q = parse(text(p), kept)
    assert q.steps[0].attrs["value"] is q.steps[2].attrs["value"] and equal(p, q)
    assert not equal(p, parse(text(p), {**kept, "W": np.arange(100.0) + 0.5}))
    with pytest.raises(ParseError, match=r"array 'W_2' is not among the arrays given \(W\)"):
        parse(text(p), {"W": kept["W"]})
    other = {}
    to_json(p, other)
    assert len(other) == 2
    with pytest.raises(ParseError, match="steps.0."):
        from_json(to_json(p, {}), {})


def test_a_newer_format_is_refused_with_both_numbers():
    p = network()
    newer = FORMAT + 6
    with pytest.raises(ParseError, match=rf"format {newer}, .* up to {FORMAT}") as e:
        parse(text(p).replace(f"ngraph program {FORMAT}", f"ngraph program {newer}"), arrays(p))
    assert e.value.position == len("ngraph program ")
    with pytest.raises(ParseError, match=rf"format {newer}, .* up to {FORMAT}"):
        from_json({**to_json(p), "format": newer})
    for wrong in (None, "1", 0, True, 1.0):
        with pytest.raises(ParseError, match="format"):
            from_json({**to_json(p), "format": wrong})
    with pytest.raises(ParseError, match="not a program of ngraph"):
        from_json({**to_json(p), "kind": "op-graph"})


HEAD = "ngraph program 1\n"


@pytest.mark.parametrize(
    ("source", "where", "message"),
    [
        ("", (1, 1), "ngraph is expected, and here is the end"),
        ("ngraph program", (1, 15), "the number of the format"),
        (HEAD + "axis C = 4\naxis C", (3, 6), "axis C occurs twice"),
        (HEAD + "axis C = 4 +", (2, 13), "a number or an expression is expected, and here is the end"),
        (HEAD + "axis C = 4 // 0", (2, 12), "divides by zero"),
        (HEAD + "axis C = 1.5", (2, 10), "a number or an expression is expected, and here is 1.5"),
        (HEAD + "axis C = " + "9" * 500, (2, 10), "500 digits"),
        (HEAD + "input %0 x : float33[]", (2, 14), "a dtype is expected, and here is float33"),
        (HEAD + "input %0 : int8[]\ninput %0 : int8[]", (3, 7), "%0 is defined twice"),
        (HEAD + "output %7", (2, 8), "%7 is defined nowhere"),
        (HEAD + "%0 : int8[] = f(", (2, 17), "a value such as %3 is expected"),
        (HEAD + "%0 : int8[] = f() {a: 1, a: 2}", (2, 26), "attribute a occurs twice"),
        (HEAD + "%0 : int8[] = f() {a: array(int8, [3], [1, 2])}", (2, 23), "2 elements do not make a int8[3]"),
        (HEAD + "%0 : int8[] = f() {a: array(int8, [1], [300])}", (2, 23), "300"),
        (HEAD + "%0 : int8[] = f() {a: array(int8, [99999999999999], [])}", (2, 23), "0 elements"),
        (HEAD + "%0 : int8[] = f() {a: array(float64, [9], [1, 2, 3, 4, 5, 6, 7, 8, 9])}", (2, 23), "at most 64 bytes"),
        (HEAD + "%0 : int8[] = f() {a: array(token, [0], [])}", (2, 23), "no arrays of token"),
        (HEAD + "%0 : int8[] = f() {a: nan(0x0)}", (2, 27), "64 bits of a NaN"),
        (HEAD + '%0 : int8[] = f() {a: "b}', (2, 23), "a string in quotes is expected"),
        (HEAD + '%0 : int8[] = f() {a: "\\q"}', (2, 23), "as JSON has it"),
        (HEAD + "%0 : int8[] = f() {a: " + "[" * 99, (2, 24 + MAX_DEPTH), "deep in each other"),
        (HEAD + "axis C = " + "(" * 99, (2, 11 + MAX_DEPTH), "deep in each other"),
        (HEAD + "axis C = " + "min(" * 99, (2, 11 + 2 * MAX_DEPTH), "deep in each other"),
        (HEAD + "axis C = " + "+".join(["N"] * 999), (2, 11 + 2 * DEEPEST), "257 within each other"),
        (HEAD + "token_in %0 : token[]\ntoken_in %1 : token[]", (3, 1), "a second token_in"),
        (HEAD + "nonsense", (2, 1), "a statement is expected, and here is nonsense"),
        (HEAD + "axis C = 4 axis N", (2, 12), "the end of the line is expected"),
    ],
)
def test_errors_name_line_column_and_show_the_line(source, where, message):
    with pytest.raises(ParseError) as e:
        parse(source)
    lines = str(e.value).split("\n")
    assert f"{__file__.rsplit('/', 1)[-1]}:" in lines[0]
    if "min(" not in source:
        assert f"line {where[0]}, column {where[1]}:" in lines[0]
    assert message in lines[0]
    shown, caret = lines[1][4:], lines[2][4:]
    assert shown in source and len(caret) <= 81
    at = e.value.position
    assert source[at : at + 1] in ("\n", shown[len(caret) - 1 : len(caret)])


def test_reading_takes_linear_time():
    """Texts made to be slow: each would take minutes if anything were quadratic."""
    for junk in ('"', '"\\', "`", "\n", "%", "1", "1e", "'", "0x", "a.1", "[", "("):
        check_text(HEAD + junk * 100_000)
        check_text(HEAD + "axis C = " + junk * 100_000)


def test_sixty_thousand_steps_in_a_row():
    value = Value(TensorType((), dtypes.float32))
    p = Program(inputs=(value,))
    steps = []
    for _ in range(60_000):
        steps.append(Step((Value(value.type),), "add", (value, value), {}, (Origin("x", "", "f.py", 1),)))
        value = steps[-1].result
    p = p.with_(steps=tuple(steps), outputs=(value,))
    assert equal(parse(text(p)), p, notes=True)
    assert equal(from_json(json.dumps(to_json(p))), p, notes=True)


def test_an_attribute_that_no_program_may_hold_is_named():
    p = Program(steps=(Step((), "f", (), {"a": object}, (Origin("f", "", "net.py", 3),)),))
    with pytest.raises(ProgramError, match=r"net.py:3: f has an attribute of type type"):
        text(p)
    with pytest.raises(ProgramError, match="cannot be saved"):
        to_json(p)
    assert "f() {a: <type" in step_text(p, p.steps[0])


def test_a_body_deeper_than_any_is_refused_both_ways():
    p = Program()
    for _ in range(MAX_DEPTH + 1):
        p = Program(steps=(Step((), "scan", (), {"body": p}, ()),))
    with pytest.raises(ProgramError, match="deep in each other"):
        text(p)


# ---- files ------------------------------------------------------------------------------------------------------------


def test_files_come_back_and_leave_nothing_behind(tmp_path):
    p = network()
    for _ in range(3):
        save(p, tmp_path / "p.json")
        assert equal(load(tmp_path / "p.json"), p, notes=True)
        assert len(list(tmp_path.iterdir())) == 2
    save(Program(), tmp_path / "p.json")
    assert [f.name for f in tmp_path.iterdir()] == ["p.json"]


def test_types_that_numpy_has_not_come_back_from_files(tmp_path):
    big = ArrayRef(np.linspace(-1, 1, 100).astype(ml_dtypes.bfloat16).reshape(4, 25))
    p = Program(steps=(Step((Value(TensorType((), dtypes.bfloat16)),), "constant", (), {"value": big}, ()),))
    save(p, tmp_path / "p.json")
    assert equal(load(tmp_path / "p.json"), p)


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_file_whole(tmp_path, monkeypatch, broken):
    p = network()
    save(p, tmp_path / "p.json")
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    calls = []
    real = getattr(os, broken) if broken != "write" else None

    def crash(*args):
        calls.append(args)
        if len(calls) >= 2 or broken == "write":  # the arrays are written, the JSON is not
            raise OSError("no space left on device")
        return real(*args)

    if broken == "write":
        monkeypatch.setattr("ngraph.op_graph.text.json.dumps", crash)
    else:
        monkeypatch.setattr(os, broken, crash)
    with pytest.raises(OSError, match="no space left"):
        save(p.with_(name="other"), tmp_path / "p.json")
    monkeypatch.undo()
    assert calls
    assert equal(load(tmp_path / "p.json"), p, notes=True)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert not list(tmp_path.glob("*.tmp"))


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "p.json"
    p = network()
    save(p, path)
    whole = path.read_bytes()
    (beside,) = tmp_path.glob("*.safetensors")
    tensors = beside.read_bytes()
    chance = random.Random(0)
    elsewhere = whole.replace(b'"beside": "', b'"beside": "../')
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"{}", b"null", whole[: len(whole) // 2], elsewhere):
        path.write_bytes(content)
        with pytest.raises(ParseError):
            load(path)
    path.write_bytes(whole)
    for content in (b"", b"\xff" * 100, tensors[: len(tensors) // 2], tensors[:8] + b"[" + tensors[9:]):
        beside.write_bytes(content)
        with pytest.raises(ParseError, match="arrays of p.json"):
            load(path)
    for _ in range(300):  # any byte of the header or the JSON
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :])
        header = chance.randrange(8 + int.from_bytes(tensors[:8], "little"))
        beside.write_bytes(tensors[:header] + bytes([chance.randrange(256)]) + tensors[header + 1 :])
        try:
            load(path)
        except ParseError:
            pass
    beside.unlink()
    path.write_bytes(whole)
    with pytest.raises(ParseError, match="arrays of p.json"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.json")
