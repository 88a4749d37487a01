"""Python imports this when it starts, in every process: the archive's packages come last on the path, so that packages
that the machine has, among them those of its torch and transformers, are the machine's own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "packages"))
