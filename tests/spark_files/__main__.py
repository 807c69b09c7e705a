"""`python -m tests.spark_files --seeds 300 --seed 1`: as many seeds from that one on; prints each that differs, and fails.

--streams: the project of `streams` by `flowql run -t spark --until-caught-up`, over files that come in two portions.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flowql.runtime.spark.java import find_java, java_home
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings
from tests.spark_files.check import SMALL, differences
from tests.spark_files.streams import stream_differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS = 10  # seeds
# As others have their sessions; a seed takes the next.
SETTINGS = [
    {
        "spark.sql.ansi.enabled": ansi,
        "spark.sql.session.timeZone": zone,
        "spark.sql.caseSensitive": case,
        "spark.sql.codegen.wholeStage": compiled,
    }
    for ansi, zone, case, compiled in [
        ("true", "America/New_York", "false", "false"),
        ("false", "UTC", "true", "true"),
        ("true", "Australia/Lord_Howe", "true", "false"),
        ("false", "Asia/Kolkata", "false", "true"),
    ]
]


@contextmanager
def _session(master: str, folder: Path, *, connect: bool) -> Iterator[SparkSession]:
    if connect:
        from pyspark.sql import SparkSession

        home = java_home(find_java(os.environ), folder / "java")
        os.environ |= {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        session = SparkSession.builder.remote(master).getOrCreate()
        yield session
        session.stop()
        return
    spark = open_session(settings_of(master), "spark_files", folder / "state")
    yield spark.newSession()
    close_session(spark)


def settings_of(master: str) -> SparkSettings:
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    # A process that was stopped for longer finds its own executor lost when it goes on, and ends its Spark.
    conf["spark.network.timeout"] = "10h"
    return SparkSettings(master=master, conf=conf, shuffle_partitions=2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_files", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--connect", action="store_true", help="through Spark Connect, in sessions with their own defaults"
    )
    parser.add_argument("--streams", action="store_true", help="as streams, on a session of the engine")
    args = parser.parse_args()
    assert not (args.connect and args.streams), "streams need an engine, which does not run through Spark Connect"
    wrong, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name, _session(args.master, Path(name), connect=args.connect) as session:
        for key, value in SMALL.items():
            session.conf.set(key, value)
        folder = Path(name)
        for seed in range(args.seed, args.seed + args.seeds):
            for key, value in SETTINGS[seed % len(SETTINGS)].items():
                session.conf.set(key, value)
            place = folder / str(seed)
            found = (
                stream_differences(place, seed, settings_of(args.master))
                if args.streams
                else differences(session, place, seed)
            )
            for difference in found:
                print(difference, flush=True)
                wrong += 1
            if (done := seed - args.seed + 1) % PROGRESS == 0:
                print(f"{done} seeds done", flush=True)
    seconds = time.monotonic() - began
    print(f"{args.seeds} seeds from {args.seed} on: {wrong} results differ ({seconds / args.seeds:.1f} s a seed)")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
