"""Time zones of standard SQL, with the answers of PostgreSQL 15; those of ksqlDB's dialect are java.time's."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.functions import java_time
from flowql.compiler.functions.sql_zones import zone_named
from flowql.compiler.functions.temporal import zone_of
from tests.compiler.functions.test_sql_values import bound, evaluated, shown
from tests.slt.rows import rendered
from tests.slt.session import Shape, SqlSession

ANSWERS = Path(__file__).with_name("java_zones.tsv")
# A zone => what a clock of UTC shows when one there shows noon on 2024-07-01, and on 2024-01-01.
NOON = """
+05:30 => 17:30 17:30
-03:00 => 09:00 09:00
UTC+2 => 14:00 14:00
GMT-5 => 07:00 07:00
EST => 17:00 17:00
est => 17:00 17:00
PDT => 19:00 19:00
CET => 11:00 11:00
CEST => 10:00 10:00
IST => 10:00 10:00
zulu => 12:00 12:00
europe/berlin => 10:00 11:00
etc/gmt+5 => 17:00 17:00
EST5EDT => 16:00 17:00
FOO5BAR => 16:00 17:00
FOO-1BAR,M3.5.0/2,M10.5.0/3 => 10:00 11:00
A5B6 => 18:00 17:00
QQ3RR2,59,300/1 => 14:00 15:00
<+03>-3 => 09:00 09:00
05:30 => 17:30 17:30
"""
VALUES = """
TIMESTAMPTZ '2024-07-01 12:00Z' AT TIME ZONE 'UTC+2' => 2024-07-01 10:00:00
TIMESTAMPTZ '2024-07-01 12:00Z' AT TIME ZONE '+05:30' => 2024-07-01 06:30:00
TIMESTAMP '2024-07-01 12:00' AT TIME ZONE INTERVAL '-08:00' => 2024-07-01 20:00:00+00
TIMESTAMPTZ '2024-07-01 12:00Z' AT TIME ZONE INTERVAL '5:30' => 2024-07-01 17:30:00
DATE_TRUNC('hour', TIMESTAMPTZ '2023-11-05 05:30Z', 'America/New_York') => 2023-11-05 05:00:00+00
DATE_TRUNC('day', TIMESTAMPTZ '2023-11-05 05:30Z', 'America/New_York') => 2023-11-05 04:00:00+00
DATE_TRUNC('day', TIMESTAMPTZ '2023-11-05 05:30Z', '+05:30') => 2023-11-05 05:30:00+00
'2024-01-01' AT TIME ZONE 'EST' => 2023-12-31 19:00:00
DATE '2024-01-01' AT TIME ZONE 'EST' => 2023-12-31 19:00:00
MAKE_TIMESTAMPTZ(2024, 1, 1, 0, 0, 0, 'UTC+2') => 2024-01-01 02:00:00+00
MAKE_TIMESTAMPTZ(2024, 1, 1, 0, 0, 0, '+05:30') => 2023-12-31 18:30:00+00
'2024-07-01 00:00 PST'::timestamptz => 2024-07-01 08:00:00+00
'2024-07-01 00:00PST'::timestamptz => 2024-07-01 08:00:00+00
'2024-01-01 EST'::timestamptz => 2024-01-01 05:00:00+00
'2024-01-01 00:00 +05:30'::timestamptz => 2023-12-31 18:30:00+00
'2024-01-01 00:00+530'::timestamptz => 2023-12-31 18:30:00+00
'2024-01-01 00:00+05:30:15'::timestamptz => 2023-12-31 18:29:45+00
'2024-01-01 00:00 UTC+2'::timestamptz => 2024-01-01 02:00:00+00
'2024-01-01 00:00 GMT-5'::timestamptz => 2023-12-31 19:00:00+00
'2024-01-01T00:00:00.5europe/berlin'::timestamptz => 2023-12-31 23:00:00.5+00
'2024-01-01 00:00 EST'::timestamp => 2024-01-01 00:00:00
'2024-01-01 00:00 MSK'::timestamp => 2024-01-01 00:00:00
TIME '08:15 EST' => 08:15:00
"""
FAIL = ("UTC+0530", "nowhere", "", " EST", "A,", "A5,", "A5B,x", "<a5")
REFUSED = {"MSK": "use Europe/Moscow", "UTC+30": "a day or more"}


def test_zones_are_postgresqls() -> None:
    rows = [line.split(" => ") for line in NOON.strip().splitlines()]
    for day, place in (("2024-07-01", 0), ("2024-01-01", 1)):
        exprs = bound(*(f"TO_CHAR(TIMESTAMP '{day} 12:00' AT TIME ZONE '{zone}', 'HH24:MI')" for zone, _ in rows))
        assert evaluated(exprs) == [wanted.split()[place] for _, wanted in rows]


def test_moments_in_zones_are_postgresqls() -> None:
    rows = [line.split(" => ") for line in VALUES.strip().splitlines()]
    exprs = bound(*(text for text, _ in rows))
    found = [shown(v, e.type) for v, e in zip(evaluated(exprs), exprs, strict=True)]
    assert found == [wanted for _, wanted in rows]


@pytest.mark.parametrize("zone", FAIL)
def test_what_is_no_zone_fails(zone: str) -> None:
    with pytest.raises(ValueError, match="not recognized"):
        zone_named(zone)


@pytest.mark.parametrize("zone", REFUSED)
def test_zones_that_are_not_supported_are_refused_by_name(zone: str) -> None:
    with pytest.raises(CompileError, match=REFUSED[zone]):
        bound(f"ts AT TIME ZONE '{zone}'")


def test_zones_of_ksqldb_are_javas() -> None:
    """Answers of Java 17 (`ZoneId.of`): seconds east of UTC at noon of 2024-07-01 and of 2024-01-01 in UTC, or that it refuses the name."""
    moments = [dt.datetime(2024, month, 1, 12, tzinfo=dt.UTC) for month in (7, 1)]

    def answer(name: str) -> str:
        try:
            zone = zone_of(name)
        except ValueError as error:
            return "-" if "unknown time zone" in str(error) else str(error)
        return " ".join(f"{(m.astimezone(zone).utcoffset() or dt.timedelta()).total_seconds():.0f}" for m in moments)

    rows = [line.split("\t") for line in ANSWERS.read_text().splitlines()]
    assert [(name, answer(name)) for name, _ in rows] == [(name, wanted) for name, wanted in rows]


def test_short_names_are_zones_in_a_text_alone() -> None:
    assert java_time.parse_timestamp("2024-07-01 05:00 pdt", "yyyy-MM-dd HH:mm z") == 1719835200000
    assert java_time.parse_timestamp("2024-07-01 12:00 z", "yyyy-MM-dd HH:mm X") == 1719835200000
    for zone in ("PDT", "EST", "utc"):
        with pytest.raises(ValueError, match="unknown time zone"):
            java_time.format_timestamp(0, "HH:mm", zone)


ASKED = (
    "ts AT TIME ZONE '+05:30'", "z AT TIME ZONE 'UTC+2'", "m AT TIME ZONE 'europe/berlin'", "m::timestamptz AT TIME ZONE 'PST'",
    "d AT TIME ZONE 'EST'", "ts AT TIME ZONE INTERVAL '-08:00'", "z AT TIME ZONE INTERVAL '5:30'", "timezone('PST', ts)",
    "date_trunc('hour', z, 'America/New_York')", "date_trunc('day', ts, '+05:30')", "make_timestamptz(2024, 1, 1, 0, 0, 0, 'UTC+2')",
    "s::timestamptz", "CAST(s AS timestamptz(0))", "z = '2023-11-04 22:30 PDT'", "z BETWEEN '2023-11-04 22:30 pdt' AND '2023-11-05 05:30z'",
    "TIMESTAMPTZ '2024-07-01 00:00 PST'", "TRY_CAST(s AS timestamptz)", "ts AT TIME ZONE k::varchar", "'2024-01-01' AT TIME ZONE 'EST'",
)  # fmt: skip


def test_an_interactive_query_takes_zones_as_a_view_does() -> None:
    world = SqlSession(Shape())
    try:
        world.execute(
            "CREATE TABLE t (k INT PRIMARY KEY, z TIMESTAMPTZ, ts TIMESTAMP, m TIMESTAMP(6), s VARCHAR, d DATE)"
        )
        world.execute(
            "INSERT INTO t VALUES (1, '2023-11-05 05:30Z', '2024-07-01 12:00', '2024-07-01 12:00:00.123456', "
            "'2024-07-01 00:00 PST', '2024-01-01')"
        )
        items = ", ".join(f"{e} AS x{i}" for i, e in enumerate(ASKED))
        world.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {items} FROM t")
        assert rendered(world.ask(f"SELECT {items} FROM t")) == rendered(world.ask("SELECT * FROM v"))
    finally:
        world.close()
