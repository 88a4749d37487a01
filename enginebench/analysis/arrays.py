"""Array types by their elements."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Instants = Integers  # nanoseconds since the run's start
Flags = npt.NDArray[np.bool_]
