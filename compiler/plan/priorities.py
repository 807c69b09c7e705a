"""The priority classes of queries and their weights; what an edited query does with its state."""

from __future__ import annotations

from typing import Literal

Priority = Literal["critical", "high", "normal", "batch"]
PRIORITY_WEIGHTS = {"critical": 64, "high": 16, "normal": 4, "batch": 1}
OnChange = Literal["rebuild", "forward"]
