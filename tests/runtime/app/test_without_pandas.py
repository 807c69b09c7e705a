"""A process of ours makes its first array without loading pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.turns("long")

FIRST_ARRAY = """
import sys
import numpy as np
import pyarrow as pa
{before}
print(pa.array(np.arange(3)).to_pylist(), pa.array([None, "a"]).null_count, "pandas" in sys.modules)
{after}
"""


LOADED = """
import sys
from importlib import import_module

class Looked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        assert name != "pandas", "Arrow looks for pandas"

sys.meta_path.insert(0, Looked)
for module in sys.argv[1:]:
    import_module(module)
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


def test_arrow_that_is_imported_later_loads_no_pandas() -> None:
    pytest.importorskip("pandas")
    code = """
import sys
from flowql.runtime.app.without_pandas import leave_pandas_out
before = list(sys.meta_path)
leave_pandas_out()
assert "pyarrow" not in sys.modules
import pyarrow as pa
assert pa.array([1]).to_pylist() == [1] and "pandas" not in sys.modules
assert sys.meta_path == before and pa.__spec__.loader is pa.__loader__
import pandas
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_loading_the_engine_and_the_commands_makes_no_array() -> None:
    """An array that a module makes when it is loaded looks for pandas before any process has said that it needs none."""
    modules = ["flowql.server.daemon", "flowql.server.on_runtime", "flowql.api.connection", "flowql.api.instance"]
    modules += [
        f"flowql.cli.{p.stem}" for p in (ROOT / "flowql" / "cli").glob("*.py") if p.stem not in ("__init__", "bench")
    ]
    done = subprocess.run([sys.executable, "-c", LOADED, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_program_may_ask_for_pandas_after_it_has_run_an_instance(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "flowql.yaml").write_text("name: p\nsql: [p.sql]\n")
    (tmp_path / "p.sql").write_text(
        "CREATE STREAM S (A INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"
    )
    program = "import flowql\nwith flowql.Instance() as i: print(i.connection.sql('SELECT 1 AS A').df()['A'].tolist())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "[1]\n", done.stderr
