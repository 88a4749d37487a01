"""`enginebench run concurrent` as a process, without this machine's settings."""

import os
import sys

RUN = [sys.executable, "-m", "enginebench", "run", "concurrent"]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name == "ENGINEBENCH_CACHE" or not name.startswith(("ENGINEBENCH", "OPENAI"))
}
