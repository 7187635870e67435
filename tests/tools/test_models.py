"""The verbs for model files as a stranger calls them: answers, exit codes, messages without a traceback, pages, completion."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper as h  # noqa: E402

import ngraph.transformers as ngt  # noqa: E402
from ngraph.program.interpret import interpret  # noqa: E402
from ngraph.program.text import parse  # noqa: E402
from ngraph.tools import completion, models  # noqa: E402
from ngraph.tools import main as command  # noqa: E402
from ngraph.verbs import REGISTRY  # noqa: E402
from tests.frontends.onnx.made import B, F, model  # noqa: E402
from tests.tools.test_command import ngraph  # noqa: E402

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, good and bad, and inputs, good and bad."""
    home = tmp_path_factory.mktemp("models")
    nodes = [h.make_node("MatMul", ["x:0", "w"], ["a"], name="/first/MatMul"), h.make_node("Relu", ["a"], ["y"], name="/first/act/Relu")]
    onnx.save(model(nodes, [("x:0", F, ["N", 4])], [("y", F, ["N", 2])], {"w": W}), home / "good.onnx")
    onnx.save(onnx.load(home / "good.onnx"), home / "beside.onnx", save_as_external_data=True, location="beside.data", size_threshold=1)
    branches = {
        f"{name}_branch": h.make_graph([h.make_node(op, ["x"], ["r"], name=f"in_{name}")], name, [], [h.make_empty_tensor_value_info("r")])
        for name, op in (("then", "Neg"), ("else", "Abs"))
    }
    chosen = [h.make_node("If", ["c"], ["z"], name="chooses", **branches), h.make_node("Exp", ["z"], ["y"], name="last")]
    onnx.save(model(chosen, [("x", F, [2]), ("c", B, [])], [("y", F, [2])]), home / "if.onnx")
    bad = [h.make_node("Relux", ["x"], ["a"], name="one"), h.make_node("Fancy", ["a"], ["y"], name="two", domain="my.ops")]
    onnx.save(model(bad, [("x", F, [2])], [("y", F, [2])]), home / "bad.onnx")
    window = [h.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5])]
    onnx.save(model(window, [("x", F, [1, 1, "W"])], [("y", F, None)]), home / "window.onnx")
    (home / "empty.onnx").write_bytes(b"")
    (home / "text.onnx").write_text("this is not a model\n" * 9)
    (home / "cut.onnx").write_bytes((home / "good.onnx").read_bytes()[:-9])
    (home / "folder.onnx").mkdir()
    for name, arrays in {
        "in": {"x:0": X},
        "names": {"y": X},
        "shape": {"x:0": X[0]},
        "length": {"x:0": X[:, 1:]},
        "dtype": {"x:0": X.astype("c8")},
        "object": {"x:0": np.array([{}], object)},
    }.items():
        np.savez(home / f"{name}.npz", **arrays)
    np.save(home / "one.npy", X)
    return home


def refused(folder, *words):
    """Exit code and message of a call that goes wrong: nothing on stdout, no traceback."""
    code, out, err = ngraph(folder, *words)
    assert out == "" and "Traceback" not in err and "unexpected" not in err, (out, err)
    return code, err


def test_run_reads_and_writes_arrays_by_name(folder, tmp_path):
    for _ in range(2):  # the second time from the cache
        code, out, err = ngraph(folder, "run", "good.onnx", "--inputs", "in.npz", "--outputs", str(tmp_path / "out.npz"))
        assert (code, err) == (0, "") and out.startswith("y: float32[3, 2] ")
        with np.load(tmp_path / "out.npz") as found:
            np.testing.assert_allclose(found["y"], np.maximum(X @ W, 0), rtol=1e-5)
    code, out, _ = ngraph(folder, "run", "good.onnx", "--shape", "x:0:2,4", "--seed", "3", "--json")
    y = json.loads(out)["y"]
    assert code == 0 and (y["dtype"], y["shape"]) == ("float32", [2, 2]) and np.shape(y["values"]) == (2, 2)
    assert ngraph(folder, "run", "good.onnx", "-q") == (0, "", "")


def test_large_outputs_are_summed_up():
    x = np.arange(20, dtype=np.float32)
    x[3] = np.nan
    about = models._summary(x)
    assert about == {"dtype": "float32", "shape": (20,), "min": 0.0, "mean": float(np.nanmean(x.astype(np.float64))), "max": 19.0, "nan": 1}
    assert models._summary(x[:2])["values"] == [0.0, 1.0]
    assert models._summary(np.full(20, np.nan))["nan"] == 20 and models._summary(np.full(20, np.nan))["min"] is None
    assert models._summary(np.array(["a"] * 20, object)) == {"dtype": "object", "shape": (20,)}


def test_info_and_check(folder):
    code, out, _ = ngraph(folder, "info", "good.onnx", "--json")
    data = json.loads(out)
    assert code == 0 and data["ops"] == {"MatMul": 1, "Relu": 1} and data["parameters"] == 8 and data["unsupported"] == []
    assert data["inputs"] == [{"name": "x:0", "type": "tensor(float)", "shape": ["N", 4]}]
    assert "cannot be translated: ai.onnx.Relux" in ngraph(folder, "info", "bad.onnx")[1]
    assert ngraph(folder, "check", "good.onnx")[0] == 0
    code, err = refused(folder, "check", "bad.onnx")
    assert code == 1 and "2 nodes" in err and "node 'one'; the nearest is Relu" in err and "my.ops.Fancy" in err
    code, out, _ = ngraph(folder, "check", "bad.onnx", "--json")
    error = json.loads(out)["error"]
    assert code == 1 and error["kind"] == "UnsupportedError" and len(error["details"]) == 2


@pytest.mark.parametrize("verb", ["info", "check", "run", "bench", "profile", "view"])
@pytest.mark.parametrize(
    "name, code, said",
    [
        ("missing.onnx", 2, "there is no file missing.onnx"),
        ("folder.onnx", 2, "folder.onnx is a folder"),
        ("empty.onnx", 1, "empty.onnx holds no graph"),
        ("text.onnx", 1, "text.onnx is not an ONNX model, or a damaged one"),
        ("cut.onnx", 1, "cut.onnx is not an ONNX model, or a damaged one"),
    ],
)
def test_files_that_are_no_models(folder, verb, name, code, said, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    try:
        found = command.main([verb, name])
    except SystemExit as stop:
        found = stop.code
    told = capsys.readouterr()
    assert found == code and told.out == "" and said in told.err and "Traceback" not in told.err


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("good.onnx --inputs names.npz", 1, r"there is no input 'y'; input x:0: tensor(float)[N, 4] is missing"),
        ("good.onnx --inputs shape.npz", 1, "got the shape [4]"),
        ("good.onnx --inputs length.npz", 1, "got the shape [3, 3]"),
        ("good.onnx --inputs dtype.npz", 1, "got an array of complex64"),
        ("good.onnx --inputs object.npz", 2, "object.npz is not a .npz file of plain arrays"),
        ("good.onnx --inputs one.npy", 2, "one.npy is not a .npz file of plain arrays"),
        ("good.onnx --inputs text.onnx", 2, "text.onnx is not a .npz file of plain arrays"),
        ("good.onnx --inputs empty.onnx", 2, "empty.onnx is not a .npz file of plain arrays"),
        ("good.onnx --inputs none.npz", 2, "there is no file none.npz"),
        ("good.onnx --inputs in.npz --outputs nowhere/out.npz", 1, "nowhere/out.npz cannot be written: no such file or directory"),
        ("good.onnx --shape 1,2", 2, "'1,2' is not a shape; write it as input:1,3,224,224"),
        ("good.onnx --shape y:1,2", 2, "there is no input y; there are x:0"),
        ("good.onnx --shape x:0:3", 1, "got the shape [3]"),
        ("good.onnx --shape x:0:-1,4", 2, "cannot be made"),
        ("good.onnx --shape x:0:99999999999999,4", 2, "cannot be made"),
        ("good.onnx --nonsense", 2, "unrecognized arguments: --nonsense"),
        ("good.onnx --seed x", 2, "argument --seed: 'x' is not a whole number"),
        ("bad.onnx", 1, "2 nodes of made cannot be translated"),
        ("window.onnx", 1, "a dim would have the length -3"),
        ("", 2, "the following arguments are required: MODEL"),
    ],
)
def test_run_called_wrongly(folder, words, code, said, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    try:
        found = command.main(["run", *words.split()])
    except SystemExit as stop:
        found = stop.code
    told = capsys.readouterr()
    assert found == code and told.out == "" and said in told.err and "Traceback" not in told.err, told


def test_what_nobody_thought_of_is_one_line_and_with_v_a_traceback(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(REGISTRY, "info", REGISTRY["info"]._replace(run=lambda given: {}["gone"]))
    assert command.main(["info", "good.onnx"]) == 1
    assert capsys.readouterr().err == "unexpected: KeyError: 'gone' (an internal error of ngraph; -v shows the traceback)\n"
    assert command.main(["info", "good.onnx", "-v"]) == 1 and "Traceback" in capsys.readouterr().err
    assert command.main(["info", "good.onnx", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "unexpected"


def test_diff_names_the_first_node_that_differs(folder):
    code, out, _ = ngraph(folder, "diff", "good.onnx", "good.onnx", "--inputs", "in.npz")
    version = metadata.version("onnxruntime")
    assert code == 0 and out.startswith(f"all 2 values agree with onnxruntime {version}'s\nruntimes: onnxruntime {version}, openvino ")
    found = json.loads(ngraph(folder, "diff", "beside.onnx", "good.onnx", "--json")[1])
    assert found["values"] == 2 and found["against"] is None and found["runtimes"]["onnxruntime"] == version
    other = onnx.load(folder / "good.onnx")
    other.graph.node[1].op_type = "Neg"
    onnx.save(other, folder / "other.onnx")
    code, err = refused(folder, "diff", "good.onnx", "other.onnx", "--inputs", "in.npz")
    assert code == 1 and "node /first/act/Relu (Relu) is the first that differs: y, by up to" in err


def test_a_converted_model_agrees_where_lengths_are_computed_for_a_node(tmp_path):
    nodes = [
        h.make_node("Shape", ["x"], ["t"], start=1, name="/Shape"),
        h.make_node("Neg", ["t"], ["back"], name="/Neg"),
        h.make_node("Mod", ["back", "eight"], ["more"], name="/Mod"),
        h.make_node("Concat", ["zeros", "more"], ["pads"], axis=0, name="/Concat"),
        h.make_node("Pad", ["x", "pads"], ["padded"], name="/Pad"),
        h.make_node("Exp", ["padded"], ["y"], name="/Exp"),
    ]
    held = {"eight": np.array([8]), "zeros": np.zeros(3, int)}
    onnx.save(model(nodes, [("x", F, ["B", "T"])], [("y", F, None)], held), tmp_path / "a.onnx")
    assert ngraph(tmp_path, "convert", "a.onnx", "b.onnx", "--opset", "17")[0] == 0
    code, out, err = ngraph(tmp_path, "diff", "a.onnx", "b.onnx", "--shape", "x:2,13")
    assert code == 0 and out.startswith("all 2 values agree"), err


def test_bench_measures_beside_another(folder):
    pytest.importorskip("onnxruntime")
    words = ("bench", "good.onnx", "--inputs", "in.npz", "-t", "0.1", "--against", "onnxruntime")
    code, out, _ = ngraph(folder, *words, "--json")
    found = json.loads(out)["times"]
    assert json.loads(out)["runtimes"]["onnxruntime"] == metadata.version("onnxruntime")
    assert code == 0 and found["ngraph"]["count"] > 0 and found["onnxruntime"]["largest difference"] < 1e-5
    assert "onnxruntime takes" in ngraph(folder, *words)[1]
    assert refused(folder, "bench", "good.onnx", "--against", "abacus")[0] == 2


def test_bench_varies_lengths(folder):
    for name, *shape in (["N"], ["x:0.0"], ["n", "--shape", "x:0:n,4"]):
        words = ("bench", "good.onnx", "--vary", f"{name}=1..40", *shape, "-t", "0.3")
        code, out, _ = ngraph(folder, *words, "--json")
        found = json.loads(out)
        assert code == 0 and found["times"]["ngraph"]["count"] > 5 and found["compiled"] <= 1  # the first may be from the cache
    assert "calls of ngraph after the first compiled something" in ngraph(folder, *words)[1]
    for wrong in ("width=3..5", "N=5..3", "N=x", "N"):
        assert refused(folder, "bench", "good.onnx", "--vary", wrong)[0] == 2
    words = ("bench", "good.onnx", "--vary", "N=1..4", "--inputs", "in.npz", "-t", "0.1")
    assert ngraph(folder, *words)[0] == 0
    assert refused(folder, *words, "--shape", "x:3,4")[0] == 2


def test_lengths_that_nothing_says(tmp_path):
    """A convolution over pictures of any size, which has none of one place: what is varied, given, taken to be 1, and said."""
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, (2, 3, 3, 5), np.ones(90, "f"))
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [None, 3, None, None]), ("y", [None] * 4))]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Conv", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3, 9, 9), "f"))
    vary = ("bench", "m.onnx", "--vary", "x.3=8..20", "-t", "0.1", "--json")
    for more, height, batch in ((["--shape", "x:?,3,7,?"], 7, 1), (["--inputs", "in.npz"], 9, 2)):
        code, out, _ = ngraph(tmp_path, *vary, *more)
        _, shape = json.loads(out)["inputs"]["x"]
        assert code == 0 and [*shape[:3]] == [batch, 3, height] and 8 <= shape[3] <= 20
    _, out, _ = ngraph(tmp_path, *vary[:-1], "--shape", "x:?,3,7,?")
    assert out.startswith("x.0: length 1, for the file has none; --shape gives others\n")
    for words in (vary[:-1], ("bench", "m.onnx"), ("run", "m.onnx")):
        code, err = refused(tmp_path, *words)
        assert code == 1 and "with length 1 for x.0, x.2" in err and "--shape x:1,64" in err and "--inputs" in err and "unknown" not in err
    code, err = refused(tmp_path, "run", "m.onnx", "--shape", "z:1,3,8,8")
    assert code == 2 and "there is no input z; there are x" in err


# ---- profile and view


@pytest.mark.skipif("cpu" not in ngt.transformer_choices(), reason="there is no machine code here")
def test_profile_names_the_nodes_of_the_file(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    page, trace = str(tmp_path / "p.html"), str(tmp_path / "t.json")
    for _ in range(2):  # also where a run would come from the cache
        assert command.main(["profile", "good.onnx", "--inputs", "in.npz", "--calls", "2", "--html", page, "--trace", trace]) == 0
        out = capsys.readouterr().out
        assert "MatMul '/first/MatMul'; Relu '/first/act/Relu'" in out and "the fastest of 2 calls" in out
    with open(page, encoding="utf-8") as file:
        assert "Relu &#x27;/first/act/Relu&#x27;" in file.read()
    with open(trace, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    assert any("MatMul '/first/MatMul'" in e["args"]["lines"] for e in events)
    assert command.main(["profile", "if.onnx", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    names = {line for k in data["kernels"] for line in k["lines"]}
    assert "Exp 'last'" in names and data["seconds"] > 0 and names <= {"Exp 'last'", "Neg 'in_then'", "Abs 'in_else'", "If 'chooses'"}
    assert command.main(["profile", "good.onnx", "--calls", "0"]) == 2
    monkeypatch.setenv("NGRAPH_TRANSFORMER", "direct")
    assert ngraph(folder, "profile", "good.onnx")[0] == 1


def test_view_draws_the_file(folder, tmp_path, monkeypatch):
    page = str(tmp_path / "page.html")
    code, out, _ = ngraph(folder, "view", "if.onnx", "-o", page, "--json")
    assert code == 0 and json.loads(out) == {"page": page, "boxes": 6, "arrows": 6}
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for found in ("chooses then_branch", "in_then", "Abs", "chooses", "last", "tensor(float)[2]"):
        assert found in text, found
    code, out, _ = ngraph(tmp_path, "view", str(folder / "bad.onnx"))  # what cannot be run can be seen
    assert code == 0 and out == "bad.html: 3 boxes, 2 arrows\n" and os.path.exists(tmp_path / "bad.html")
    assert refused(folder, "view", "good.onnx", "-o", "nowhere/x.html") == (
        1,
        "FileError: nowhere/x.html cannot be written: no such file or directory\n  fix: make the folder before: os.makedirs('nowhere')\n",
    )


# ---- the whole command


def test_the_table_of_modules_is_what_they_register():
    command.load_verbs()
    for module, verbs in command.MODULES.items():
        own = [v.name for v in REGISTRY.values() if v.run.__module__ == f"ngraph.tools.{module}"]
        assert sorted(own) == sorted(verbs.split()), module


def test_a_verb_imports_only_its_own_module(folder):
    program = (
        "import sys\nfrom ngraph.tools.main import main\nmain(sys.argv[1:])\nprint(sorted(m for m in sys.modules if 'ngraph.tools.' in m))"
    )
    done = subprocess.run([sys.executable, "-c", program, "cache", "-q"], capture_output=True, text=True, cwd=folder, env={**os.environ})
    assert "ngraph.tools.cache" in done.stdout and "ngraph.tools.models" not in done.stdout and "doctor" not in done.stdout


def completed(*words):
    """What bash offers for the last word."""
    script = completion.bash(command.parser())
    line = " ".join(f"'{w}'" for w in words)
    ask = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ngraph; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_verbs_options_and_choices():
    command.load_verbs()
    assert completed("ngraph", "") == [*sorted(REGISTRY), "-h", "--help", "--version"]
    assert completed("ngraph", "ch") == ["check"] and completed("ngraph", "--v") == ["--version"]
    assert completed("ngraph", "run", "--") == ["--help", "--json", "--quiet", "--verbose", "--inputs", "--shape", "--seed", "--outputs"]
    assert completed("ngraph", "run", "--inputs", "") == []  # files, by bash's own
    assert completed("ngraph", "run", "model.onnx", "--out") == ["--outputs"]
    assert completed("ngraph", "completion", "") == ["bash", "zsh", "fish"] and completed("ngraph", "-v", "cache", "c") == ["clear"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_verb_and_option(shell, tmp_path):
    code, out, _ = ngraph(tmp_path, "completion", shell)
    command.load_verbs()
    assert code == 0 and all(v in out for v in REGISTRY)
    for name, (_, options) in completion.verbs(command.parser()).items():
        for option in options:
            for word in option.names:
                flag = f"-{'l' if word[:2] == '--' else 's'} {word.lstrip('-')} "
                assert (flag if shell == "fish" else word) in out, (name, word)
    found = shutil.which(shell)
    if found:
        done = subprocess.run([found, "-n" if shell != "fish" else "--no-execute", "/dev/stdin"], input=out, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_page_of_the_command_names_every_verb():
    command.load_verbs()
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "command.md"), encoding="utf-8") as file:
        page = file.read()
    assert [v for v in REGISTRY if f"`ngraph {v}" not in page] == []


def test_a_pipe_is_no_model_file():
    """A model is mapped, so it cannot come through a pipe; the message says so."""
    words = [sys.executable, "-m", "ngraph", "info", "/dev/stdin"]
    answer = subprocess.run(words, input="x", capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert answer.returncode == 2 and "/dev/stdin is a pipe or a device" in answer.stderr
    assert "fix: write its content to a file" in answer.stderr


def test_one_node_that_cannot_run_is_one_node(tmp_path, capsys):
    bad = [h.make_node("Relux", ["x"], ["y"])]
    onnx.save(model(bad, [("x", F, [2])], [("y", F, [2])]), tmp_path / "one.onnx")
    assert command.main(["check", str(tmp_path / "one.onnx")]) == 1
    said = capsys.readouterr().err
    assert "1 node of" in said and "fix: `ngraph ops --onnx`" in said


# ---- explain ------------------------------------------------------------------------------------------------------------


def test_explain_takes_a_model_file(folder):
    code, out, err = ngraph(folder, "explain", "good.onnx", "--after", "lower", "--shape", "x:0:5,4")
    assert code == 0, err
    program = parse(out.partition("\n#")[0])
    (got,), _ = interpret(program, [X])
    np.testing.assert_allclose(got, np.maximum(X @ W, 0), rtol=1e-6)  # what it prints is the model
    listed = json.loads(ngraph(folder, "explain", "good.onnx", "--list", "--json")[1])
    assert [s["stage"] for s in listed][:2] == ["op-graph", "lower"]
    by_file = json.loads(ngraph(folder, "explain", "good.onnx", "--json", "--inputs", "in.npz")[1])
    assert {s["stage"] for s in by_file} == {s["stage"] for s in listed} and by_file[0]["computation"]


def test_explain_numbers_the_parts_of_a_file_with_steps_in_python(folder, tmp_path):
    nodes = [h.make_node("Relu", ["x"], ["a"]), h.make_node("Unique", ["a"], ["u"]), h.make_node("Exp", ["u"], ["y"])]
    onnx.save(model(nodes, [("x", F, ["N"])], [("y", F, ["M"])]), tmp_path / "unique.onnx")
    code, out, err = ngraph(tmp_path, "explain", "unique.onnx", "--after", "2.lower", "--shape", "x:5")
    assert code == 0, err
    x = np.array([0, 1], np.float32)
    np.testing.assert_allclose(interpret(parse(out), [x])[0][0], np.exp(x))
    assert "relu" in ngraph(tmp_path, "explain", "unique.onnx", "--after", "op-graph")[1]


@pytest.mark.skipif("cpu" not in ngt.transformer_choices(), reason="there is no machine code here")
def test_explain_compares_the_kernels_of_a_file(folder, tmp_path):
    code, out, err = ngraph(folder, "explain", "good.onnx", "--compare", "--inputs", "in.npz")
    assert code == 0 and out.endswith("kernel compared with the plan: no differences\n"), err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nope.onnx"], "there is no file nope.onnx"),
        (["empty.onnx"], "empty.onnx"),
        (["cut.onnx"], "cut.onnx"),
        (["text.onnx", "--compare"], "text.onnx"),
        (["folder.onnx"], "folder.onnx holds no computation's stages"),
        (["good.onnx", "--shape", "z:3,4"], "there is no input z; there are x:0"),
        (["good.onnx", "--shape", "x:0:3,5"], "x:0"),
        (["good.onnx", "--shape", "x:0:3,4", "--inputs", "in.npz"], "--shape is for random inputs"),
        (["good.onnx", "--inputs", "names.npz"], "there is no input 'y'"),
        (["good.onnx", "--after", "nope"], "has no stage 'nope'; it has op-graph, lower, "),
        (["good.onnx", "--compare", "--list"], "--list shows stages"),
        (["bad.onnx"], "Relux"),
    ],
)
def test_explain_refuses_what_is_wrong(folder, words, says):
    code, err = refused(folder, "explain", *words)
    assert code in (1, 2) and says in err
