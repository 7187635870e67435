"""Writes what is kept of the models into a folder: `python texts.py out`. A process of its own, so that names count from 0.

`--kernels`: also the kernels of `cpu` over their buffers, and their LLVM IR for x86-64-v3, by which `make same` compares two revisions.
"""

import os
import re
import sys

import numpy as np
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


def kernels(name, model):
    """{file: text}: the plan for lengths of 3 where they are open, and the LLVM IR of each different kernel."""
    results, parameters = model()
    made = ngt.make_transformer_factory("cpu")().computation(results, *parameters, name=name)
    made(*[np.ones([3 if a.length is None else a.length for a in p.axes], p.dtype.np) for p in parameters])
    return {f"{name}.plan.txt": re.sub(r"  # .*", "", made.plan), f"{name}.ll.txt": re.sub(r"(?m)^;.*\n", "", made.llvm)}


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, model in MODELS.items():
        more = kernels(name, model) if "--kernels" in sys.argv else {}
        for file, body in {**texts(name, model), **more}.items():
            with open(os.path.join(sys.argv[1], file), "w", encoding="utf-8") as out:
                out.write(body)
