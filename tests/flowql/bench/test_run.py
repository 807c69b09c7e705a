"""`flowql bench nexmark` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flowql.bench.measuring import BenchFailed
from flowql.cli import main

FLOWQL = [sys.executable, "-c", "from flowql.cli import main; main()"]


@pytest.mark.turns("load")
def test_each_query_runs_alone_and_is_compared_with_the_oracle(tmp_path: Path) -> None:
    words = ["--queries", "q2,qc", "--events", "3000", "--threads", "1", "--touch", "0.01", "--json", "figures.json"]
    done = subprocess.run([*FLOWQL, "bench", "nexmark", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("equal to the oracle") == 2
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [(f["query"], f["engine"], f["log"], f["events"]) for f in figures] == [
        ("q2", "runtime", "embedded", 3000),
        ("qc", "runtime", "embedded", 3000),
    ]
    assert all(f["seconds"] > 0 and f["events_per_s"] > 0 and f["cpu_s"] > 0 and f["rss_mb"] > 0 for f in figures)


def test_a_failure_has_the_code_of_a_failed_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had FQ5301, which is a wrong token of a request."""

    def run(*_: object, **__: object) -> None:
        raise BenchFailed("q0: 1 rows missing")

    monkeypatch.setattr("flowql.cli.bench.run", run)
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "nexmark", "--queries", "q0"])
    assert stopped.value.code == 1
    assert "error[FQ5001]: q0: 1 rows missing" in capsys.readouterr().err
