"""Makes `python -m ngraph` the command `ngraph`, also where the folder of commands is not on the path.

Words: docs/glossary.md.
"""

import sys

from ngraph.tools.main import main

if __name__ == "__main__":
    sys.exit(main())
