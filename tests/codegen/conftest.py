"""Makes what the tests of this room share importable, and the programs of other rooms' tests."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, *[os.path.join(os.path.dirname(HERE), room) for room in ("plan", "passes", "every_op")]]
