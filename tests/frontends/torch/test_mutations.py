"""Exported programs bear whatever they hold; `mutations.py` takes any number of mutants, here a part of them."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def test_mutants_run_or_are_refused(tmp_path):
    environment = {**os.environ, "PYTHONPATH": ROOT, "MUTANTS": str(tmp_path)}
    command = [sys.executable, os.path.join(HERE, "mutations.py"), "40", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    ends = ("read", "refused", "refused in the run", "run")
    assert sum(told.get(f"{kind}: {end}", 0) for kind in ("bytes", "fields") for end in ends) == 40, done.stderr[-3000:]
    assert told["bytes: refused"] > 5 and told["fields: refused"] > 5, told
