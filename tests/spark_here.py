"""Tests that need Spark are left out, with the reason, where the extra or Java is missing."""

from __future__ import annotations

import pytest

from runtime.spark.errors import JavaMissing, SparkMissing
from runtime.spark.session import require_spark


def skip_without_spark() -> None:
    try:
        require_spark()
    except (SparkMissing, JavaMissing) as e:
        pytest.skip(e.title)
