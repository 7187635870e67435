"""The graphs of TensorFlow 1 that `record_v1.py` recorded, with TensorFlow's answers."""

import lzma
import os

import numpy as np

import ngraph as ng
from ngraph.frontends.tensorflow.messages import classes

with lzma.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded", "v1.npz.xz")) as packed, np.load(packed) as file:
    RECORDED = {key: file[key] for key in file.files}
CASES = sorted(key[: -len("|graph")] for key in RECORDED if key.endswith("|graph"))
IN_CALLS = {"dead", "dead_by_control", "two_predicates"}  # decided in each call, by what is dead


def under(prefix):
    return {key[len(prefix) :]: value for key, value in RECORDED.items() if key.startswith(prefix)}


def load(name, folder, transformer=None):
    """The graph of a case as a meta graph with a checkpoint of its variables."""
    meta = classes()["MetaGraphDef"]()
    meta.graph_def.ParseFromString(RECORDED[f"{name}|graph"].tobytes())
    path = str(folder / "model")
    with open(f"{path}.meta", "wb") as file:
        file.write(meta.SerializeToString())
    ng.tensorflow.save_checkpoint(path, under(f"{name}|start|"))
    return ng.tensorflow.load(f"{path}.meta", transformer)
