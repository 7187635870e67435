"""Lets the tests of tensor graphs import what the tests of plans share, the random programs and the models of goldens."""

import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, room) for room in ("plan", "passes", "goldens")]
