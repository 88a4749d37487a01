"""Names of runs."""

from __future__ import annotations

import random
import re
import string
from datetime import datetime


def new_run_id(label: str, at: datetime) -> str:
    """`20261121-100542-transformers-k3vq`: sorts by time, says what it is, and is not taken twice."""
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
    chance = "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=4))
    return f"{at:%Y%m%d-%H%M%S}-{readable}-{chance}"
