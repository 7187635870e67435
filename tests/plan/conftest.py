"""Lets the tests of plans import what they share, and the random programs of the passes' tests."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "passes")]
