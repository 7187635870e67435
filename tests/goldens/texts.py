"""Writes what is kept of the models into a folder: `python texts.py out`. A process of its own, so that names count from 0."""

import os
import re
import sys

from models import MODELS

import ngraph.transformers as ngt
from ngraph.program.text import text


def texts(name, model):
    """{file: text}: the program as it was lowered, the program after the passes, and the code that `numpy` prints."""
    results, parameters = model()
    made = ngt.make_transformer_factory("numpy")().computation(results, *parameters, name=name)
    source = re.sub(r"  # \S+models\.py:\d+", "", made.source)
    return {
        f"{name}.lowered.txt": text(made.lowered, origins=False),
        f"{name}.passes.txt": text(made.program, origins=False),
        f"{name}.numpy.txt": source,
    }


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, model in MODELS.items():
        for file, body in texts(name, model).items():
            with open(os.path.join(sys.argv[1], file), "w", encoding="utf-8") as out:
                out.write(body)
