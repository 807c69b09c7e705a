"""A process of ours makes its first array without loading pandas."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_ARRAY = """
import sys
import numpy as np
import pyarrow as pa
{before}
print(pa.array(np.arange(3)).to_pylist(), pa.array([None, "a"]).null_count, "pandas" in sys.modules)
{after}
"""


def _run(before: str = "", after: str = "") -> str:
    code = FIRST_ARRAY.format(before=before, after=after)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_first_array_loads_no_pandas() -> None:
    pytest.importorskip("pandas")
    assert _run() == "[0, 1, 2] 1 True", "Arrow no longer looks for pandas: this is not needed any more"
    assert (
        _run("from flowql.runtime.app.without_pandas import leave_pandas_out\nleave_pandas_out()")
        == "[0, 1, 2] 1 False"
    )


def test_pandas_can_be_imported_afterwards() -> None:
    pytest.importorskip("pandas")
    left = "from flowql.runtime.app.without_pandas import leave_pandas_out\nleave_pandas_out()"
    out = _run(left, "import pandas; print(len(pandas.Series([1, 2])))")
    assert out.splitlines() == ["[0, 1, 2] 1 False", "2"]


def test_where_pandas_is_in_use_it_stays() -> None:
    pytest.importorskip("pandas")
    used = "import pandas\nfrom flowql.runtime.app.without_pandas import leave_pandas_out\nleave_pandas_out()"
    out = _run(used, "print(pa.array(pandas.Series([1, 2])).to_pandas().tolist())")
    assert out.splitlines() == ["[0, 1, 2] 1 True", "[1, 2]"]
