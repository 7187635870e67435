"""AOTAutograd's cache: each test run has one of its own, empty at its begin."""

import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="torch_cache_")
