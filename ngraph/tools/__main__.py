"""`python -m ngraph.tools` is the `ngraph` command."""

import sys

from ngraph.tools.main import main

sys.exit(main())
