"""Makes the tables of samples here, and what checks exported models, importable."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "frontends", "onnx")]
