"""`python -m tests.spark_files --seeds 300 --seed 1`: as many seeds from that one on; prints each that differs, and fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from runtime.spark.session import close_session, open_session
from runtime.spark.settings import SparkSettings
from tests.spark_files.check import SMALL, differences

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_files", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    args = parser.parse_args()
    wrong, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(
            SparkSettings(master=args.master, shuffle_partitions=2), "spark_files", Path(folder) / "state"
        )
        session = spark.newSession()
        for key, value in SMALL.items():
            session.conf.set(key, value)
        for seed in range(args.seed, args.seed + args.seeds):
            for key, value in SETTINGS[seed % len(SETTINGS)].items():
                session.conf.set(key, value)
            for difference in differences(session, Path(folder) / str(seed), seed):
                print(difference, flush=True)
                wrong += 1
        close_session(spark)
    seconds = time.monotonic() - began
    print(f"{args.seeds} seeds from {args.seed} on: {wrong} results differ ({seconds / args.seeds:.1f} s a seed)")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
