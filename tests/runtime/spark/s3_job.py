"""A job of a user over s3a: `python -m tests.runtime.spark.s3_job CONF PROJECT` says as JSON what became of it.

CONF: Spark's properties, as JSON. PROJECT: a folder with the targets of `test_s3a.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowql.runtime.spark.errors import SparkFailure
from flowql.spark import run, ship, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINTS = "s3a://lake/checkpoints"
REFUSED = ("forbidden", "missing", "silent")


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session, project = builder.getOrCreate(), Path(sys.argv[2])
    if not session.sparkContext.master.startswith("local"):
        ship(session)
    shared = project / "files"
    told: dict[str, Any] = {}
    for target in ("here", "there"):
        run(project, session, target=target).close()
    told["batch"] = {
        n: _rows(session, f"{shared}/{n}") == _rows(session, f"s3a://lake/there/{n}") for n in ("DAYS", "NAMED")
    }
    told["read"] = []
    for portion in (1, 2):
        session.read.parquet(f"{shared}/portion{portion}").write.mode("append").parquet("s3a://lake/portions")
        told["read"].append(stream(session, project, "streams", CHECKPOINTS))
    streamed = _rows(session, "s3a://lake/streams/NAMED")
    told["streamed"] = streamed == _rows(session, f"{shared}/NAMED")
    told["refused"] = {name: _refused(lambda n=name: run(project, session, target=n)) for name in REFUSED}
    told["refused checkpoint"] = {
        bucket: _refused(lambda b=bucket: stream(session, project, "again", f"s3a://{b}/checkpoints"))
        for bucket in REFUSED
    }
    print(json.dumps(told))
    session.stop()


def stream(session: SparkSession, project: Path, target: str, checkpoint: str) -> int:
    """Rows of orders that a stream has read to their end."""
    started = start(project, session, target=target, checkpoint=checkpoint, trigger={"availableNow": True})
    for query in started.values():
        query.awaitTermination()
    return sum(p["numInputRows"] for q in started.values() for p in q.recentProgress)


def _refused(work: Callable[[], object]) -> tuple[str, str, float]:
    """The code, the text and the seconds."""
    began = time.monotonic()
    try:
        work()
    except SparkFailure as failure:
        return failure.code, str(failure), time.monotonic() - began
    return "", "it was not refused", time.monotonic() - began


def _rows(session: SparkSession, path: str) -> list[str]:
    frame = session.read.option("basePath", path).parquet(path)
    return sorted(repr(tuple(row)) for row in frame.select(*sorted(frame.columns)).collect())


if __name__ == "__main__":
    main()
