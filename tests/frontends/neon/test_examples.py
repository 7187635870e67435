"""Every example runs with --quick, which checks that its loss falls; and every flag that its --help shows does what it says."""

import argparse
import ast
import csv
import json
import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from ngraph.data.mnist import data_folder
from ngraph.frontends.neon import NgraphArgparser
from ngraph.frontends.neon.data.readers import idx_pair

EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples"))
NAMES = """mnist_mlp mnist_cnn cifar10_mlp cifar10_conv cifar10_msra char_rnn char_lstm word_lstm gpt timeseries_lstm imdb_rnn
reverse_attention mnist_gan autoencoder wide_deep mobilenet char_conv""".split()
OWN_LOOP = {"mnist_gan", "char_rnn"}  # no checkpoints, so no --resume
SMALL = {  # instead of --quick, which has a length of its own there
    "char_lstm": "--units 8 --depth 1 --embed 4 --steps 8 --copies 0 --late 0 --length 4 --adapt 0".split(),
    "gpt": "--width 8 --depth 1 --heads 2 --steps 8 --copies 0 --late 0 --length 4 --seed_text a".split(),
}


def has_mnist():
    try:
        return len(idx_pair(data_folder(), "train")[0]) > 0
    except OSError:
        return False


def command_and_environment(name, *flags):
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
    return [os.path.join(EXAMPLES, f"{name}.py"), *map(str, flags)], env


def run(name, folder, *flags):
    command, env = command_and_environment(name, *flags)
    return subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", NAMES)
def test_quick(name, tmp_path):
    if name.startswith(("mnist", "autoencoder")) and not has_mnist():
        pytest.skip("MNIST is not here")
    done = run(name, tmp_path, "--quick")
    if "bible.txt is missing" in done.stderr:
        pytest.skip("the text is not here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "the loss fell from" in done.stdout or name == "mnist_gan"


# ---- flags --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder for -w: pictures in the layouts of MNIST and CIFAR-10, and a text with the marks of the Bible's books."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for part in ("train", "t10k"):
        for kind, shape in (("images-idx3", (600, 28, 28)), ("labels-idx1", (600,))):
            values = random.integers(0, 10, shape).astype(np.uint8)
            header = struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape)
            (folder / "mnist" / f"{part}-{kind}-ubyte").write_bytes(header + values.tobytes())
    (folder / "cifar10").mkdir()
    for part in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        rows = random.integers(0, 256, (100, 3073)).astype(np.uint8)
        rows[:, 0] %= 10
        (folder / "cifar10" / f"{part}.bin").write_bytes(rows.tobytes())
    (folder / "bible").mkdir()
    words = "in the beginning was a word and it went out of Egypt unto them".split()
    verses = [f"{book}1:{k} {' '.join(random.choice(words, 12))}\n" for book in "Ge Josh Job Isa Mat Rom".split() for k in range(1, 80)]
    (folder / "bible" / "bible.txt").write_text("".join(verses))
    return folder


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """`run`, in processes that have imported neon already: three steps are shorter than the import. `more` goes into the environment."""
    output = tmp_path_factory.mktemp("output")
    _, env = command_and_environment("")
    server = [sys.executable, os.path.join(os.path.dirname(__file__), "forked.py")]
    with subprocess.Popen(server, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(name, folder, *flags, **more):
            command, _ = command_and_environment(name, *flags)
            for file in ("out", "err"):
                (output / file).unlink(missing_ok=True)
            print(json.dumps([command, str(folder), more, str(output / "out"), str(output / "err")]), file=process.stdin, flush=True)
            status = int(process.stdout.readline())
            return subprocess.CompletedProcess(command, status, (output / "out").read_text(), (output / "err").read_text())

        yield run
        process.stdin.close()


def test_forked_processes_are_apart(forked, tmp_path):
    """A program's exit status, output and errors are its own."""
    wrong, right = forked("wide_deep", tmp_path, "-z", "0"), forked("wide_deep", tmp_path, "--help")
    assert (wrong.returncode, wrong.stdout) == (2, "") and "0 is not above 0" in wrong.stderr
    assert (right.returncode, right.stderr) == (0, "") and right.stdout == run("wide_deep", tmp_path, "--help").stdout


def shown(run, name, folder):
    """The long names of the flags that --help shows."""
    done = run(name, folder, "--help")
    assert done.returncode == 0 and "--quick" in done.stdout
    return {f.replace("-", "_") for f in re.findall(r"^  (?:-\w+ ?\w*(?:\{[^}]*\})?, )?--([\w-]+)", done.stdout, re.M)}


def read_names(path):
    """The names of what a program reads of `args`."""
    with open(path, encoding="utf-8") as file:
        nodes = list(ast.walk(ast.parse(file.read())))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "args"}


def costs(folder):
    with open(os.path.join(folder, "costs.csv")) as file:
        return [float(r[2]) for r in csv.reader(file) if "cost/train" in r]


@pytest.mark.parametrize("name", NAMES)
def test_flags(name, tmp_path, data, forked):
    flags, run = shown(forked, name, tmp_path), forked
    neon = {a.dest for a in NgraphArgparser()._actions} & flags
    proven = set("help config data_dir log save_path batch_size backend rng_seed num_iterations quick".split())
    (tmp_path / "more").write_text("batch_size: 8\n")
    always = ["-c", "more", "-w", data, "-b", "numpy", *SMALL.get(name, ["--quick"])]
    empty = {"NGRAPH_DATA": str(tmp_path / "nothing")}
    if "iter_interval" in flags:
        always, proven = [*always, "--iter_interval", 2], proven | {"iter_interval"}
    done = run(name, tmp_path, *always, "-t", 3, "-s", "one", "-r", 5, "-l", "log", **empty)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "log").read_text() == done.stdout
    assert "the loss fell" not in done.stdout  # another length is not what --quick checks
    assert sorted(os.listdir(tmp_path)) == ["log", "more", "one"], "files beside the folder that -s names"
    if "iter_interval" in flags:
        assert re.search(r"^(step|iteration) 2:", done.stdout, re.M), done.stdout
    if name != "mnist_gan":
        assert len(costs(tmp_path / "one")) == 3
    if name in OWN_LOOP:
        assert "resume" not in flags
    else:
        assert "trained   3 steps, 24 examples" in done.stdout and "on the transformer 'numpy'" in done.stdout
        more = run(name, tmp_path, *always, "-t", 5, "-s", "one", "-r", 5, "--resume", **empty)
        assert more.returncode == 0, more.stderr
        assert "resuming after 3 steps from one" in more.stdout and "trained   2 steps" in more.stdout
        again = run(name, tmp_path, *always, "-t", 3, "-s", "two", "-r", 6, **empty)
        assert again.returncode == 0, again.stderr
        assert len(costs(tmp_path / "one")) == 5 and costs(tmp_path / "two")[0] != costs(tmp_path / "one")[0]
        proven |= {"resume"}
    if "epochs" in flags:
        long = run(name, tmp_path, *always, "-e", 4, "-eval", 2, "-z", 200, "-s", "three", **empty)
        assert long.returncode == 0, long.stderr
        total, said = int(re.search(r"trained +(\d+) steps", long.stdout)[1]), re.findall(r"^step (\d+):", long.stdout, re.M)
        assert total % 4 == 0 and said == [str(total // 2), str(total)]
        proven |= {"epochs", "eval_freq"}
    left = neon - proven
    with_own = flags - proven - neon
    assert left <= read_names(os.path.join(EXAMPLES, "example.py")) | read_names(os.path.join(EXAMPLES, f"{name}.py"))
    assert with_own <= read_names(os.path.join(EXAMPLES, f"{name}.py")), "flags that nothing reads"


@pytest.mark.parametrize(
    "flags, said", [(["-z", "0"], "0 is not above 0"), (["-b", "gpu"], "invalid choice"), (["-w", "nowhere"], "there is no such folder")]
)
def test_wrong_flags_are_named(flags, said, tmp_path):
    done = run("wide_deep", tmp_path, *flags)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_a_nan_is_named_and_the_checkpoint_before_it_stays(tmp_path, data):
    done = run("mnist_mlp", tmp_path, "--quick", "-w", data, "-s", "one", "--nan-at", 3)
    line = 1 + next(k for k, line in enumerate(open(os.path.join(EXAMPLES, "mnist_mlp.py"))) if "ng.log(x + 1.0)" in line)
    assert done.returncode == 1
    assert re.search(
        rf"mnist_mlp.py:{line}: step 3: log in Sequential_0/Preprocess_1 made the first nan\n    add: .*, from -2.9", done.stderr
    )
    assert len(costs(tmp_path / "one")) == 3 and not (tmp_path / "one" / "checkpoint.json").exists()
    done = run("mnist_mlp", tmp_path, "-w", data, "-s", "two", "-z", 20, "-t", 600, "--nan-at", 505)
    assert "step 505: log in" in done.stderr and "the checkpoint in two is of step 500" in done.stderr
    assert '"step": 500' in (tmp_path / "two" / "checkpoint.json").read_text()
    more = run("mnist_mlp", tmp_path, "-w", data, "-s", "two", "-z", 20, "-t", 520, "--resume")
    assert more.returncode == 0 and "resuming after 500 steps from two" in more.stdout, more.stdout + more.stderr


def test_only_some_flags():
    parser = NgraphArgparser(only=["epochs", "log"])
    assert {a.dest for a in parser._actions} == {"help", "epochs", "log"} and isinstance(parser, argparse.ArgumentParser)
    with pytest.raises(ValueError, match="no flag nothing; there are config"):
        NgraphArgparser(only=["nothing"])
