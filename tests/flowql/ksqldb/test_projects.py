"""Three projects of ksqlDB, imported, tested and run; their results are those that DuckDB computes from the same records."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import duckdb
import pytest

from tests.flowql.cli.conftest import flowql
from tests.flowql.cli.program import Program

pytestmark = pytest.mark.turns("long")

__all__ = ["flowql"]

PROJECTS = Path(__file__).parent / "projects"
SEED = int(os.environ.get("FLOWQL_SEED", "20"))
# What is named on the command line: scripts in their order, one that runs others, a folder of migrations.
SCRIPTS = {
    "fraud": ("01_sources.sql", "02_rules.sql", "03_alerts.sql"),
    "clickstream": ("",),
    "inventory": ("main.sql",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_imported_project_gives_what_duckdb_computes(
    flowql: Program, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"{name}, FLOWQL_SEED={SEED}")
    origin, into = PROJECTS / name, tmp_path / name
    _done(flowql("import", "ksql", *(str(origin / s) for s in SCRIPTS[name]), "--into", str(into)))
    shutil.copytree(origin / "tests", into / "tests")
    tested = flowql("test", "--splits", "1", "-p", str(into))
    assert tested.code == 0, tested.out
    assert re.search(r"[1-9]\d* passed, 0 failed", tested.out)
    given = _module(origin / "data.py").records(Random(SEED))
    for topic, records in given.items():
        lines = tmp_path / "lines"
        lines.write_text("\n".join(json.dumps(r) for r in records))
        with lines.open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            _done(flowql("topic", "produce", topic, "-p", str(into)))
    _done(flowql("run", "--until-caught-up", "-p", str(into)))
    oracle = duckdb.connect()
    for topic in given:
        _done(flowql("topic", "export", topic, "-p", str(into), "-o", str(tmp_path / f"{topic}.parquet")))
    oracle.execute(
        f"CREATE MACRO topic(name) AS TABLE SELECT * REPLACE (CAST(value AS JSON) AS value, CAST(key AS JSON)->>'$' AS key) "
        f"FROM read_parquet('{tmp_path}/' || name || '.parquet')"
    )
    oracle.execute((origin / "oracle.sql").read_text())
    names = [
        n for (n,) in oracle.execute("SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'want_%'").fetchall()
    ]
    assert len(names) >= 6
    for view in sorted(names):
        _compare(flowql, oracle, view.removeprefix("want_"), into)


def _compare(flowql: Program, oracle: duckdb.DuckDBPyConnection, name: str, project: Path) -> None:
    found = oracle.execute(f'SELECT * FROM "want_{name}"')
    columns = [d[0] for d in found.description or ()]
    want = Counter(_shown(row) for row in found.fetchall())
    of = _where(oracle).get(name, "TRUE")
    said = flowql("query", f"SELECT {', '.join(columns)} FROM {name} WHERE {of}", "-p", str(project), "-o", "json")
    _done(said)
    got = Counter(_shown([row[c] for c in columns]) for row in json.loads(said.out))
    assert len(want) > 1, f"{name}: the oracle has next to nothing"
    assert got == want, (
        f"{name} {columns}: missing {list((want - got).items())[:5]}, extra {list((got - want).items())[:5]}"
    )


def _where(oracle: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
    """Of some tables only a part is compared; the view `which` of the oracle says which."""
    try:
        return dict(oracle.execute("SELECT * FROM which").fetchall())
    except duckdb.CatalogException:
        return {}


def _shown(row: Iterable[Any]) -> str:
    return json.dumps([_plain(v) for v in row], ensure_ascii=False)


def _plain(value: Any) -> Any:
    """One spelling of a value: numbers to six digits, as DuckDB and JSON write them differently."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, Decimal)):
        return f"{round(float(value), 6) + 0.0:.6f}"
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in sorted(value.items())}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    text = str(value)
    return f"{float(text):.6f}" if re.fullmatch(r"-?\d+\.\d+", text) else text


def _done(outcome: Any) -> None:
    assert outcome.code == 0, f"{outcome.out}\n{outcome.err}"


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"data_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
