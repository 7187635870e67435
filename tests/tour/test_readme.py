"""The README's program prints what the README says, and its picture is the one that the command draws."""

import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()


def program_and_output():
    program, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", README, re.S).groups()
    return program, printed


def test_ten_lines_print_what_they_say(tmp_path):
    program, printed = program_and_output()
    assert len([line for line in program.splitlines() if line.strip()]) == 10
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (printed, "")


def test_the_picture_is_drawn_by_the_command(tmp_path, golden):
    (tmp_path / "program.py").write_text(program_and_output()[0])
    command = [sys.executable, "-m", "ngraph.tools", "graph", "program.py:loss", "-o", "loss.svg"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    golden("docs/loss.svg", (tmp_path / "loss.svg").read_text())


def test_what_the_readme_points_to_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if not os.path.exists(os.path.join(ROOT, link))] == []


def test_the_distribution_is_named_as_the_readme_says():
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as project:
        name = re.search(r'^name = "(.*?)"', project.read(), re.M).group(1)
    assert f"pip install {name} " in README and name != "ngraph"
