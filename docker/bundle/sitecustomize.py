"""Put the archive's packages last on the path of every process (Python imports this file when it starts), so that the
machine's own packages, such as torch, transformers and their dependencies, take precedence."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "packages"))
