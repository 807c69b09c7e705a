"""Nexmark queries written by hand for Spark: the baseline for FlowQL's queries on Spark.

`over_columns` is a job over frames of typed bids, auctions and persons; `over_records` one over bids as records with JSON values, which returns
such records. Frames are `pyspark.sql.DataFrame`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BID_DDL = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT, extra STRING"
JOBS: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, channel, url, dateTime, extra FROM {bid}",
    "q1": "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908D AS price, dateTime, extra FROM {bid}",
    "q2": "SELECT auction, price FROM {bid} WHERE auction % 123 = 0",
    "q3": (
        "SELECT a.seller, p.name, p.city, p.state, a.id FROM {auction} a JOIN {person} p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"
    ),
    "q5": (
        "SELECT window_start, best.auction, best.num FROM (SELECT window_start, max(struct(num, auction)) AS best FROM ("
        "SELECT auction, unix_millis(w.start) AS window_start, count(*) AS num FROM ("
        "SELECT auction, window(timestamp_millis(dateTime), '10 seconds', '2 seconds') AS w FROM {bid}) GROUP BY auction, w) GROUP BY 1)"
    ),
    "q7": (
        "SELECT window_start, best.auction, best.bidder, best.price FROM ("
        "SELECT dateTime - dateTime % 10000 AS window_start, max(struct(price, auction, bidder)) AS best "
        "FROM {bid} GROUP BY 1)"
    ),
    "q8": (
        "SELECT p.id, p.name, p.dateTime - p.dateTime % 10000 AS window_start, count(*) AS auctions FROM {person} p JOIN {auction} a "
        "ON p.id = a.seller AND p.dateTime DIV 10000 = a.dateTime DIV 10000 GROUP BY ALL"
    ),
    "q11": (
        "SELECT bidder, count(*) AS bid_count, unix_millis(s.start) AS starttime, unix_millis(s.end) AS endtime FROM ("
        "SELECT bidder, session_window(timestamp_millis(dateTime), '10 seconds') AS s FROM {bid}) GROUP BY bidder, s"
    ),
    "qc": "SELECT bidder, count(*) AS bids, sum(price) AS total, max(price) AS top FROM {bid} GROUP BY bidder",
}
# A job needs these conditions to keep the same rows as FlowQL: rows with an unusable time are left out, sums of BIGINT do not overflow, and there is one name
# per person and window, the latest.
USABLE = "dateTime >= 0 AND dateTime < 7258118400000"
GUARDED: Mapping[str, str] = {
    **JOBS,
    "q8": (
        "SELECT id, max_by(name, struct(at, name)) AS name, at - at % 10000 AS window_start, count(*) AS auctions FROM ("
        "SELECT p.id, p.name, greatest(p.dateTime, a.dateTime) AS at FROM {person} p JOIN {auction} a "
        "ON p.id = a.seller AND p.dateTime DIV 10000 = a.dateTime DIV 10000) GROUP BY id, at - at % 10000"
    ),
    "qc": (
        "SELECT bidder, count(*) AS bids, sum(CAST(price AS DECIMAL(20, 0))) AS total, max(price) AS top "
        "FROM {bid} GROUP BY bidder"
    ),
}
KEYS: Mapping[str, str] = {"q1": "auction", "q2": "auction", "q7": "window_start", "qc": "bidder"}


def over_columns(query: str, frames: Mapping[str, Any], *, guarded: bool = False) -> Any:
    """frames: of the topics that the query reads. guarded: with the guarantees of FlowQL's query."""
    spark = next(iter(frames.values())).sparkSession
    if guarded:
        return spark.sql(GUARDED[query], **{name: frame.where(USABLE) for name, frame in frames.items()})
    return spark.sql(JOBS[query], **frames)


def over_records(query: str, records: Any) -> Any:
    """records: with `value`, JSON as bytes. Gives `key` and `value`."""
    bid = records.selectExpr(f"from_json(CAST(value AS STRING), '{BID_DDL}') AS b").select("b.*")
    key = f"CAST(CAST({KEYS[query]} AS STRING) AS BINARY) AS key"
    return over_columns(query, {"bid": bid}).selectExpr(key, "CAST(to_json(struct(*)) AS BINARY) AS value")
