"""`scipy.special` in half of its import time: SciPy copies all of NumPy's namespace, and so imports NumPy's Fortran
parser, its test tools and more that nothing here uses."""

from __future__ import annotations

import numpy as np

UNUSED = ("ctypeslib", "f2py", "ma", "polynomial", "testing")

for name in UNUSED:
    vars(np).setdefault(name, None)  # found, and so not imported

from scipy import special  # noqa: E402

for name in UNUSED:
    if vars(np)[name] is None:
        delattr(np, name)  # from now on imported by whom it is asked for

__all__ = ["special"]
