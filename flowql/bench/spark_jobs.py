"""Nexmark queries written by hand for Spark: the baseline for FlowQL's queries on Spark.

`over_columns` is a job over a frame of typed bids; `over_records` the same over records with JSON values, and returns such records.
Frames are `pyspark.sql.DataFrame`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BID_DDL = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT, extra STRING"
JOBS: Mapping[str, str] = {
    "q1": "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908D AS price, dateTime, extra FROM {bid}",
    "q2": "SELECT auction, price FROM {bid} WHERE auction % 123 = 0",
    "q7": (
        "SELECT window_start, best.auction, best.bidder, best.price FROM ("
        "SELECT dateTime - dateTime % 10000 AS window_start, max(struct(price, auction, bidder)) AS best "
        "FROM {bid} GROUP BY 1)"
    ),
    "qc": "SELECT bidder, count(*) AS bids, sum(price) AS total, max(price) AS top FROM {bid} GROUP BY bidder",
}
KEYS: Mapping[str, str] = {"q1": "auction", "q2": "auction", "q7": "window_start", "qc": "bidder"}


def over_columns(query: str, bid: Any) -> Any:
    return bid.sparkSession.sql(JOBS[query], bid=bid)


def over_records(query: str, records: Any) -> Any:
    """records: with `value`, JSON as bytes. Gives `key` and `value`."""
    bid = records.selectExpr(f"from_json(CAST(value AS STRING), '{BID_DDL}') AS b").select("b.*")
    key = f"CAST(CAST({KEYS[query]} AS STRING) AS BINARY) AS key"
    return over_columns(query, bid).selectExpr(key, "CAST(to_json(struct(*)) AS BINARY) AS value")
