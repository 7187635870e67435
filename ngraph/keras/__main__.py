"""Runs a script with Keras on ngraph: `python -m ngraph.keras script.py arguments`."""

from __future__ import annotations

import os
import runpy
import sys

import ngraph.keras  # noqa: F401  Keras is imported behind it

if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: python -m ngraph.keras script.py [arguments]", file=sys.stderr)
        raise SystemExit(2)
    import keras

    print(f"keras {keras.__version__} on ngraph", file=sys.stderr)
    del sys.argv[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
