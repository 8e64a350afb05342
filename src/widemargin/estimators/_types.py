"""Types of constructor parameters that several estimators share."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

ClassWeight = dict[Any, float] | Literal["balanced"] | None
RandomState = int | np.random.RandomState | None
Folder = str | os.PathLike[str] | None
