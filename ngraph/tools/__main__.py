"""Makes `python -m ngraph.tools` the `ngraph` command."""

import sys

from ngraph.tools.main import main

sys.exit(main())
