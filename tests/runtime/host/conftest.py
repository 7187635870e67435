"""Makes what the tests of this room share importable, and the kernels of the tests of code generation."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "codegen")]
