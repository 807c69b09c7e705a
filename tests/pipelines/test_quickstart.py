"""The quickstart's data and oracle: checked against plain Python over the files that are imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
import yaml

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.parser import parse_statements

pytestmark = pytest.mark.turns("long")

PROJECT = Path(__file__).resolve().parents[2] / "pipelines" / "quickstart"
HOUR = 3_600_000
Rows = list[dict[str, Any]]


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / name), *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    folder = tmp_path_factory.mktemp("data")
    made = script("data.py", str(folder))
    assert made.returncode == 0, made.stderr
    assert "already" in script("data.py", str(folder)).stdout
    return {p.stem: [orjson.loads(line) for line in p.read_bytes().splitlines()] for p in folder.iterdir()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every result as the oracle expects it, in files as `--results` takes them."""
    folder = tmp_path_factory.mktemp("results")
    sys.path.insert(0, str(PROJECT))
    try:
        import oracle
    finally:
        sys.path.remove(str(PROJECT))
    connection = duckdb.connect()
    oracle.load(connection)
    connection.execute(oracle.BASE)
    for name, sql in (oracle.TABLES | oracle.STREAMS).items():
        connection.execute(f"COPY ({sql}) TO '{folder / name}.json' (FORMAT json, ARRAY true)")
    return folder


def test_the_data_is_whole_and_in_order(data: dict[str, Rows]) -> None:
    assert {name: len(rows) for name, rows in data.items()} == {
        "flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16,
    }  # fmt: skip
    for name, column in (("flights", "SCHED_DEP_TIME"), ("weather", "TIME_HOUR")):
        times = [row[column] for row in data[name]]
        assert times == sorted(times)
    first = data["flights"][0]
    # 2013-01-01 05:15 in New York; the look-up tables are older than that.
    assert first["SCHED_DEP_TIME"] == 1_357_035_300_000
    assert all(row["LOADED_AT"] < first["TIME_HOUR"] for row in data["planes"] + data["airlines"])
    assert sum(row["DEP_DELAY"] is None for row in data["flights"]) == 8_255


def test_the_oracle_agrees_with_plain_python_on_delays(data: dict[str, Rows], expected: Path) -> None:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in data["flights"]:
        if row["DEP_DELAY"] is not None:
            groups[row["CARRIER"], row["SCHED_DEP_TIME"] // HOUR * HOUR].append(row["DEP_DELAY"])
    want = {key: (len(d), sum(d), max(d)) for key, d in groups.items()}
    rows = json.loads((expected / "DELAYS_BY_CARRIER.json").read_text())
    assert {(r["CARRIER"], r["WINDOWSTART"]): (r["FLIGHTS"], r["TOTAL_DELAY"], r["WORST_DELAY"]) for r in rows} == want
    assert all(r["AVG_DELAY"] == pytest.approx(r["TOTAL_DELAY"] / r["FLIGHTS"]) for r in rows)


def test_the_oracle_agrees_with_plain_python_on_sessions(data: dict[str, Rows], expected: Path) -> None:
    sessions: dict[str, list[list[int]]] = defaultdict(list)  # per airport: start, end, flights
    for row in data["flights"]:
        if row["DEP_DELAY"] is None or row["DEP_DELAY"] > 60:
            at, of = row["SCHED_DEP_TIME"], sessions[row["ORIGIN"]]
            if of and at - of[-1][1] <= HOUR:
                of[-1][1:] = [at, of[-1][2] + 1]
            else:
                of.append([at, at, 1])
    rows = json.loads((expected / "DISRUPTIONS_BY_AIRPORT.json").read_text())
    got = sorted((r["ORIGIN"], r["WINDOWSTART"], r["WINDOWEND"], r["FLIGHTS"]) for r in rows)
    assert got == sorted((origin, *s) for origin, of in sessions.items() for s in of)


def test_the_oracle_agrees_with_plain_python_on_the_look_up(data: dict[str, Rows], expected: Path) -> None:
    weather = {row["STATION_HOUR"]: row for row in data["weather"]}
    want: dict[str, int] = defaultdict(int)
    windy = 0
    for row in data["flights"]:
        key = f"{row['ORIGIN']}|{row['TIME_HOUR']}"
        want[key] += 1
        windy += (weather.get(key, {}).get("WIND_SPEED") or 0) >= 20
    rows = json.loads((expected / "FLIGHTS_WITH_WEATHER.json").read_text())
    got: dict[str, int] = defaultdict(int)
    for row in rows:
        got[row["STATION_HOUR"]] += 1
    assert got == want
    assert sum((row["WIND_SPEED"] or 0) >= 20 for row in rows) == windy > 0


def test_right_results_are_accepted(expected: Path) -> None:
    names = ["DISRUPTIONS_BY_AIRPORT", "FLIGHTS_BY_MANUFACTURER", "WEATHER_IMPACT"]
    done = script("oracle.py", "--results", str(expected), "--only", *names)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": equal") == len(names)


@pytest.mark.parametrize("fault", ["lost", "twice", "changed"])
def test_a_wrong_result_is_shown_and_fails(expected: Path, tmp_path: Path, fault: str) -> None:
    rows = json.loads((expected / "WEATHER_IMPACT.json").read_text())
    if fault == "lost":
        rows.pop(3)
    elif fault == "twice":
        rows.append(rows[3])
    else:
        rows[3]["WORST_DELAY"] += 1
    (tmp_path / "WEATHER_IMPACT.json").write_text(json.dumps(rows))
    done = script("oracle.py", "--results", str(tmp_path), "--only", "WEATHER_IMPACT")
    assert done.returncode == 1
    assert ("1 rows expected and not there" in done.stdout) == (fault != "twice")
    assert ("1 rows there and not expected" in done.stdout) == (fault != "lost")


def test_every_query_has_an_expected_result() -> None:
    config = yaml.safe_load((PROJECT / "flowql.yaml").read_text())
    oracle = (PROJECT / "oracle.py").read_text()
    named = [
        s.name
        for path in config["sql"]
        for s in parse_statements(SourceText(path, (PROJECT / path).read_text()))[0]
        if type(s).__name__ == "CreateAs"
    ]
    assert len(named) == 8
    # FLIGHTS_NAMED is a step on the way to FLIGHTS_ENRICHED, which holds all of its columns but one.
    assert [n for n in named if f'"{n}"' not in oracle] == ["FLIGHTS_NAMED"]


def test_both_forms_declare_the_same_sources() -> None:
    def statements(path: Path) -> dict[str, str]:
        parsed, mistakes = parse_statements(SourceText(str(path), path.read_text()))
        assert not mistakes
        return {s.name: s.text for s in parsed}

    both = statements(PROJECT / "yaml_form" / "sources.sql")
    assert both.items() <= statements(PROJECT / "sources.sql").items()
    assert set(both) == {"FLIGHTS", "WEATHER"}
