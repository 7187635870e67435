"""Every stage of a computation: its list, the rules that fired, pages, and what DUMP leaves in a folder."""

import json
import re

import pytest

import ngraph as ng
import ngraph.transformers as ngt
from ngraph.program.text import equal, parse
from ngraph.runtime import dump
from ngraph.tools import main, pages

PROGRAM = """
import ngraph as ng
import ngraph.transformers as ngt

C = ng.make_axis(3, name="C")
x = ng.placeholder([C]).named("x")
w = ng.variable([C], initial_value=1).named("w")
loss = ng.sum(ng.exp(ng.log(x * w)) * 1 - w, out_axes=()).named("loss")
train = ngt.allocate_transformer("numpy").computation([loss, ng.assign(w, w - ng.deriv(loss, w))], x, name="train")
"""
STAGES = ["op-graph", "lower", "share", "simplify", "fold", "simplify.2", "share.2", "dead", "source"]


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "prog.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ngraph(program, capsys):
    def call(*arguments):
        code = main.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def stages_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])["stages"]


def test_the_list_says_how_large_each_stage_is_and_how_many_rules_fired(ngraph):
    code, out, _ = ngraph("explain", "prog.py:train", "--list")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and [r[0] for r in rows] == STAGES
    listed = {s["stage"]: s for s in json.loads(ngraph("explain", "prog.py:train", "--list", "--json")[1])}
    whole = {s["stage"]: s for s in json.loads(ngraph("explain", "prog.py:train", "--json")[1])}
    for name, size, unit, *rest in rows:
        text = whole[name]["text"]
        counts = {
            "ops": lambda t: len(re.findall(r"^%", t, re.M)),
            "steps": lambda t: len(parse(t).steps),
            "lines": lambda t: t.count("\n") + 1,
        }
        assert int(size) == counts[unit](text) == listed[name]["size"]
        fired, took = sum(listed[name]["rules"].values()), listed[name]["seconds"]
        if name in STAGES[2:-1]:
            assert took > 0 and rest[1] == "ms" and float(rest[0]) >= 0
            rest = rest[2:]
        assert rest == ([str(fired), "rule" if fired == 1 else "rules", "fired"] if fired else [])
    assert listed["simplify"]["rules"]["x * 1"] >= 1 and "text" not in listed["simplify"]


def test_the_rules_that_fired_stand_before_the_program(ngraph):
    out = ngraph("explain", "prog.py:train", "--after", "simplify")[1]
    rules, _, rest = out.partition("ngraph program 1")
    assert re.search(r"^# +\d x  x \* 1$", rules, re.M) and "multiply" not in rules and len(parse("ngraph program 1" + rest).steps) > 5
    rules = ngraph("explain", "prog.py:train", "--after", "simplify", "--rules")[1].partition("ngraph program 1")[0]
    assert "# x * 1   at multiply   prog.py:8\n" in rules
    assert ngraph("explain", "prog.py:train", "--after", "lower")[1].startswith("ngraph program 1")


def test_text_goes_into_a_file(ngraph, program):
    code, out, _ = ngraph("explain", "prog.py:train", "--after", "dead", "-o", "dead.txt")
    assert code == 0 and out == "dead.txt\n" and parse((program / "dead.txt").read_text()).name == "train"
    assert ngraph("explain", "prog.py:train", "--after", "dead", "-o", "no/where.txt")[0] == 1


def test_a_page_has_every_stage_and_nothing_from_elsewhere(ngraph, program):
    code, out, _ = ngraph("explain", "prog.py:train", "--after", "simplify", "--html", "-o", "page.html")
    page = (program / "page.html").read_text()
    assert code == 0 and out == "page.html\n" and [s["name"] for s in stages_of(page)] == STAGES and '"first":"simplify"' in page
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", page)
    for stage in stages_of(page):
        if stage["name"] not in ("op-graph", "source"):
            parse("\n".join(line[1:] for line in stage["lines"] if line[0] != "-"))
    changed = [line for s in stages_of(page) if s["name"] == "simplify" for line in s["lines"] if line[0] != " "]
    assert any(line.startswith("-") and "multiply" in line for line in changed)


def test_what_changed_does_not_mind_numbers_and_lines():
    before = ["a", "%1 : f = exp(%0)  # at 3", "%2 : f = log(%1)", "z"]
    after = ["a", "%7 : f = exp(%5)", "%8 : f = sin(%7)", "z"]
    assert pages.changes(before, after) == [" a", " %7 : f = exp(%5)", "-%2 : f = log(%1)", "+%8 : f = sin(%7)", " z"]


def test_a_page_survives_any_text():
    evil = "</script><script>alert(1)</script><!-- & \u2028"
    stage = dump.DumpedStage(evil, evil, 1, {evil: 1}, evil)
    page = pages.page(evil, [stage], None)
    assert page.count("</script>") == 2 and stages_of(page)[0]["lines"] == [" " + evil]
    assert "&lt;/script&gt;" in page


def test_dump_writes_every_stage_of_every_computation(tmp_path):
    C = ng.make_axis(3, name="C")
    x = ng.placeholder([C])
    with ng.config(dump=str(tmp_path)):
        transformers = [ngt.allocate_transformer(name) for name in ("numpy", "numpy", "direct")]
        made = [t.computation(ng.exp(x) * 1 + k, x, name="plus") for k, t in enumerate(transformers)]
        for c in made:
            c([1, 2, 3])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plus", "plus.2", "plus.3"]
    for computation, folder in zip(made, ("plus", "plus.2", "plus.3"), strict=True):
        place = tmp_path / folder
        source = ["8-source.py"] if computation.source else []
        names = sorted(p.name for p in place.iterdir() if ".rules." not in p.name)
        assert names == sorted([*(f"{k}-{s}.txt" for k, s in enumerate(STAGES[:-1])), *source, "stages.json"])
        assert equal(parse((place / "1-lower.txt").read_text()), computation.lowered)
        assert equal(parse((place / "7-dead.txt").read_text()), computation.program)
        assert "x * 1   at multiply" in (place / "3-simplify.rules.txt").read_text()
        if source:
            assert (place / "8-source.py").read_text() == computation.source
    found = dump.read(str(tmp_path))
    assert list(found) == ["plus", "plus.2", "plus.3"] and found["plus"][1][3].rules == {"x * 1": 1}
    assert set(found["plus"][0]) == {"passes", "compile"}


def test_a_dump_becomes_pages(ngraph, program, capsys):
    with ng.config(dump="dumped"):
        ngraph("explain", "prog.py:train", "--after", "source")
    assert ngraph("explain", "dumped")[1].startswith("---- train\nop-graph")
    code, out, _ = ngraph("explain", "dumped", "--html")
    assert code == 0 and out.split() == ["dumped/train.html", "dumped/index.html"]
    index = (program / "dumped" / "index.html").read_text()
    assert '<a href="train.html">train</a>' in index and " steps<td>passes " in index
    assert [s["name"] for s in stages_of((program / "dumped" / "train.html").read_text())] == STAGES
    ngraph("explain", "dumped", "--html", "-o", "elsewhere")
    assert (program / "elsewhere" / "train.html").is_file()


def test_a_folder_without_a_dump_is_refused(ngraph, program):
    (program / "empty").mkdir()
    code, _, err = ngraph("explain", "empty")
    assert code == 2 and "run your program with DUMP=empty" in err


@pytest.mark.parametrize("level, said, unsaid", [(0, (), ("train",)), (1, ("train: ", "compiled in"), ("def train",))])
def test_the_first_levels_of_debug(level, said, unsaid, capsys):
    x = ng.placeholder(())
    with ng.config(debug=level):
        ngt.allocate_transformer("numpy").computation(x + 1, x, name="train")(1)
    err = capsys.readouterr().err
    assert all(s in err for s in said) and not any(s in err for s in unsaid)


def test_debug_four_shows_the_code_and_five_each_pass_once(capsys, tmp_path):
    x = ng.placeholder(())
    for level in (4, 5):
        with ng.config(debug=level, dump=str(tmp_path)):
            ngt.allocate_transformer("numpy").computation((x + 1) * 1, x, name="train")(1)
        err = capsys.readouterr().err
        assert "def train(" in err and err.count("-- after dead") == level - 4 and err.count("x x * 1") == level - 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prog.py:train", "-o", "nowhere/text.txt"], "nowhere/text.txt cannot be written: no such file or directory"),
        (["prog.py:train", "-o", "prog.py"], "prog.py is what is explained, and would be written over"),
        (["prog.py", "--html", "-o", "."], ". cannot be written"),
        (["prog.py:train", "--after", "simplfy"], "fix: take simplify"),
    ],
)
def test_wrong_words_are_told_and_write_nothing(ngraph, program, words, says):
    code, out, err = ngraph("explain", *words)
    assert code in (1, 2) and out == "" and says in err and (program / "prog.py").read_text() == PROGRAM
    assert sorted(p.name for p in program.iterdir() if p.name != "__pycache__") == ["prog.py"]
