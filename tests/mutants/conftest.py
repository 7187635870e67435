"""The generated tests' own helpers, which the planted mistakes are shown to."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "every_op"))
