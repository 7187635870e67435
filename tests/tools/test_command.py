"""The `ngraph` command as a user calls it: what it prints, its exit codes, its messages without a traceback."""

import json
import os
import subprocess
import sys

import pytest

from ngraph import verbs
from ngraph.op_graph.opdef import REGISTRY
from ngraph.program.text import parse
from ngraph.tools import main

PROGRAM = """
import ngraph as ng
import ngraph.transformers as ngt
from ngraph.util.utils import executor

print("this is the program speaking")
C = ng.make_axis(3, name="C")
x = ng.placeholder([C]).named("x")
loss = ng.sum(ng.exp(ng.log(x)) * 1, out_axes=()).named("loss")
slope = ng.deriv(loss, x)
transformer = ngt.make_transformer_factory("numpy")()
both = transformer.computation([loss, slope], x)
walked = ngt.make_transformer_factory("direct")().computation(loss, x)
run = executor(loss, x)

class model:
    train = both

if __name__ == "__main__":
    raise SystemExit("it was run as a script")
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def ngraph(folder, *arguments, **environment):
    """Exit code, output and errors of the command, run in a folder."""
    command = [sys.executable, "-m", "ngraph.tools", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def test_explain_prints_each_stage(program):
    code, out, err = ngraph(program, "explain", "prog.py:both", "--json")
    stages = {s["stage"]: s["text"] for s in json.loads(out)}
    assert code == 0 and err == "this is the program speaking\n"
    assert list(stages) == ["op-graph", "lower", "share", "simplify", "fold", "simplify.2", "share.2", "dead", "source"]
    assert "# prog.py:9" in stages["op-graph"] and "log(" in stages["lower"]
    assert len(parse(stages["dead"]).steps) < len(parse(stages["lower"]).steps)
    scope = {}
    exec(stages["source"], scope)  # the printed program runs by itself
    assert "def computation_0(" in stages["source"] and callable(scope["computation_0"])


@pytest.mark.parametrize(
    "stage, found", [("op-graph", "results %"), ("lower", "ngraph program 1"), ("simplify", "ngraph program 1"), ("source", "np.")]
)
def test_explain_after_one_stage(program, stage, found):
    code, out, _ = ngraph(program, "explain", "prog.py:both", "--after", stage)
    assert code == 0 and found in out and "----" not in out


@pytest.mark.parametrize("name", ["loss", "run", "model.train", "walked"])
def test_explain_takes_ops_executors_and_attributes(program, name):
    for _ in range(2):  # the second time it is found in the cache
        code, out, _ = ngraph(program, "explain", f"prog.py:{name}", "--after", "lower", NGRAPH_CACHE=str(program / "cache"))
        assert code == 0 and out.startswith("ngraph program 1")


def test_explain_finds_the_only_computation_by_itself(program):
    (program / "one.py").write_text(PROGRAM.replace("walked =", "_walked =").replace("run =", "_run ="))
    assert ngraph(program, "explain", "one.py", "--after", "lower")[0] == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["explain", "nowhere.py:f"], "there is no file nowhere.py"),
        (["explain", "prog.py:nothing"], "prog.py defines no nothing; it has to be a computation; prog.py has x, loss"),
        (["explain", "prog.py:C"], "C in prog.py is an Axis, no computation"),
        (["explain", "prog.py"], "say which computation, as in prog.py:both; prog.py has"),
        (["explain", "prog.py:both", "--after", "supper"], "no stage 'supper'; it has op-graph, lower, share"),
        (["explain", "prog.py:walked", "--after", "source"], "no stage 'source'"),
        (["explain"], "the following arguments are required"),
        (["fly"], "invalid choice: 'fly'"),
        (["graph", "prog.py:C"], "C in prog.py is an Axis, no op or computation"),
    ],
)
def test_a_wrong_call_exits_with_2_and_says_what_there_is(program, arguments, said):
    code, out, err = ngraph(program, *arguments)
    assert code == 2 and out == "" and said in err and "Traceback" not in err


@pytest.mark.parametrize(
    "text, said",
    [
        ("x = 1\ny = x / 0\n", "bad.py:2: ZeroDivisionError: division by zero"),
        ("def f():\n    return g\nf()\n", "bad.py:2: NameError"),
        ("x = (\n", "bad.py:1: SyntaxError"),
        ("import sys\nsys.exit('no data')\n", "the program stopped itself with 'no data'"),
        ("import ngraph as ng\nng.make_axis(-1)\n", "bad.py:2: an axis length cannot be negative: -1"),
    ],
)
def test_a_failing_program_exits_with_1_and_its_own_line(tmp_path, text, said):
    (tmp_path / "bad.py").write_text(text)
    code, out, err = ngraph(tmp_path, "explain", "bad.py:f")
    assert code == 1 and out == "" and said in err and "Traceback" not in err
    code, _, err = ngraph(tmp_path, "explain", "bad.py:f", "-v")
    assert code == 1 and "Traceback" in err


def test_graph_writes_svg_and_dot(program):
    for name, start in (("a.svg", "<svg"), ("a.dot", "digraph")):
        code, out, _ = ngraph(program, "graph", "prog.py:both", "-o", name)
        assert code == 0 and out.startswith(f"{name}: ") and (program / name).read_text().startswith(start)
    code, out, _ = ngraph(program, "graph", "prog.py:loss")
    assert code == 0 and out.startswith("digraph")
    data = json.loads(ngraph(program, "graph", "prog.py:loss", "--json")[1])
    assert ["x", "[C=3]"] in [b["lines"] for b in data["boxes"]]


def test_graph_into_a_folder_that_is_not_there_exits_with_1(program):
    code, _, err = ngraph(program, "graph", "prog.py:loss", "-o", "nowhere/a.svg")
    assert code == 1 and "nowhere/a.svg" in err and "Traceback" not in err


def test_ops_has_a_row_for_every_record(tmp_path):
    code, out, _ = ngraph(tmp_path, "ops")
    assert code == 0 and len(out.splitlines()) == len(REGISTRY) + 1
    rows = {r["op"]: r for r in json.loads(ngraph(tmp_path, "ops", "--json")[1])}
    assert list(rows) == list(REGISTRY)
    assert [rows[r]["is"] for r in ("tanh", "sigmoid", "variable")] == ["core", "made of others", "leaf or effect"]
    assert rows["exp"]["gradient"] == "yes" and rows["compare"]["gradient"] == "-"
    assert {"direct", "numpy"} <= set(rows["exp"]["taken whole by"].split()) and rows["sigmoid"]["taken whole by"] == "-"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sum", "ng.sum(x"), ("ng.mean", "ngraph/ops/reduce.py:"), ("linalg.cholesky", "ng.linalg.cholesky(x"),
        ("uniform", "ng.uniform(x"), ("compare", "compare(x, y"), ("exp", "ONNX Exp"), ("ng.max", "Returns the maximum"),
    ],
)  # fmt: skip
def test_ops_tells_of_functions_and_of_records(tmp_path, name, says):
    code, out, _ = ngraph(tmp_path, "ops", name)
    assert code == 0 and says in out
    assert json.loads(ngraph(tmp_path, "ops", name, "--json")[1])


@pytest.mark.parametrize("arguments", [(), ("exp",), ("softmax",)])
def test_tables_of_ops_fit_the_terminal(tmp_path, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = ngraph(tmp_path, "ops", *arguments)
    table = out[out.index("op  " if not arguments else "fact  ") :].splitlines()
    assert max(map(len, table)) <= 80
    assert not arguments or any("ngraph/ops/" in line for line in table)


@pytest.mark.parametrize(
    ("name", "says"),
    [("meen", "did you mean mean?"), ("matmul", "write ng.dot or ng.contract"), ("linalg.sovle", "ng.linalg.solve"), ("linalg", "no op")],
)
def test_ops_names_what_to_write(tmp_path, name, says):
    code, _, err = ngraph(tmp_path, "ops", name)
    assert code == 2 and says in err


def test_the_spec_has_a_row_for_every_core_op(tmp_path):
    code, out, _ = ngraph(tmp_path, "ops", "--spec")
    core = [r for r in REGISTRY.values() if r.core and r.reference]
    assert code == 0 and len(out.splitlines()) == len(core) + 2
    assert "| `add(x, y)` | x + y; integers wrap. |" in out.splitlines()


def test_no_color(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    fix = "  fix: give the path of a file that is there\n"
    assert main.main(["explain", "nowhere.py"]) == 2
    assert capsys.readouterr().err == "\x1b[31mngraph\x1b[0m: there is no file nowhere.py\n" + fix
    monkeypatch.setenv("NO_COLOR", "1")
    main.main(["explain", "nowhere.py"])
    assert capsys.readouterr().err == "ngraph: there is no file nowhere.py\n" + fix


def test_a_verb_from_outside(capsys):
    @verbs.verb("double", "double a number", lambda p: p.add_argument("number", type=int))
    def double(arguments):
        return verbs.Answer(f"twice is {2 * arguments.number}", 2 * arguments.number)

    try:
        assert main.main(["double", "21"]) == 0 and capsys.readouterr().out == "twice is 42\n"
        assert main.main(["double", "21", "--json"]) == 0 and capsys.readouterr().out == "42\n"
        with pytest.raises(ValueError, match="registered already"):
            verbs.verb("double", "again")(double)
    finally:
        del verbs.REGISTRY["double"]


def test_rooms_lists_and_draws(tmp_path):
    code, out, _ = ngraph(tmp_path, "rooms", "-o", "rooms.svg")
    assert code == 0 and "op_graph" in out and "stands above" not in out
    assert "transformers" in (tmp_path / "rooms.svg").read_text()


def test_version_and_help(tmp_path):
    assert ngraph(tmp_path, "--version")[1].startswith("ngraph 0.")
    code, out, _ = ngraph(tmp_path, "--help")
    assert code == 0 and all(verb in out for verb in ("explain", "graph", "ops", "rooms"))


def test_it_is_a_module_too():
    made = subprocess.run([sys.executable, "-m", "ngraph", "ops"], capture_output=True, text=True)
    assert made.returncode == 0 and "softmax" in made.stdout
    made = subprocess.run([sys.executable, "-m", "ngraph", "opz"], capture_output=True, text=True)
    assert made.returncode == 2 and made.stderr.startswith("ngraph: argument VERB: invalid choice: 'opz'")


def test_ctrl_c_exits_with_130_and_leaves_no_file(tmp_path):
    (tmp_path / "slow.py").write_text("import os, signal\nprint('here', flush=True)\nos.kill(os.getpid(), signal.SIGINT)\n")
    code, out, err = ngraph(tmp_path, "graph", "slow.py:y", "-o", "y.svg")
    assert code == 130 and out == "" and err.splitlines()[-1] == "ngraph: interrupted" and "Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["slow.py"]


def test_ctrl_c_while_a_verb_is_loaded(monkeypatch, capsys):
    def interrupted(wanted):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "load_verbs", interrupted)
    assert main.main(["info", "m.onnx"]) == 130 and capsys.readouterr().err == "ngraph: interrupted\n"
