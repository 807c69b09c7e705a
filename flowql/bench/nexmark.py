"""The bids of the Nexmark auction site, from a fixed seed, made column by column; and records of any of its rows.

Most bids go to a hot auction and come from a hot bidder, which move on as time passes. See `nexmark_timeline` for what
makes them the same in every run, `nexmark_people` for persons and auctions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.bench.nexmark_timeline import (
    AUCTIONS,
    BIDS,
    BLOCK,
    FIRST_ID,
    PERSONS,
    ROUND,
    SEED,
    choose,
    cut,
    digits,
    joined,
    moments,
    prices,
    schema_of,
    texts,
)
from flowql.runtime.log.base import PRODUCE_SCHEMA
from flowql.runtime.log.murmur2 import partitions as partitions_of

OPEN_AUCTIONS, ACTIVE_BIDDERS = 100, 1000  # a cold bid is spread over as many of the newest
COLD_AUCTION, COLD_BIDDER = 0.5, 0.25  # the share of bids that are not for the hot auction or by the hot bidder
CHANNELS = 10_000
POPULAR = ("Google", "Facebook", "Baidu", "Apple")
EXTRA_BYTES = 30

BID_SCHEMA = schema_of(
    auction=pa.int64(),
    bidder=pa.int64(),
    price=pa.int64(),
    channel=pa.string(),
    url=pa.string(),
    dateTime=pa.int64(),
    extra=pa.string(),
)


def bids(events: int, seed: int = SEED, chunk: int = BLOCK, spread: int = 0) -> Iterator[pa.RecordBatch]:
    """The first `events` bids in order of time, in batches of `chunk` (the last may be smaller), of BID_SCHEMA.

    spread: draw bidders evenly from this many ids, so that no key is hot. The other columns stay the same.

    >>> first = next(bids(3))
    >>> first.num_rows, first.schema.names[:3]
    (3, ['auction', 'bidder', 'price'])
    """
    return cut(events, chunk, BID_SCHEMA, lambda number: _block(number, seed, spread))


def records(batches: Iterator[pa.RecordBatch], partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows as log records: (partition, batch of PRODUCE_SCHEMA), in order within each partition.

    Key: the first column in digits (a STRING key, or a BIGINT in JSON), which also chooses the partition. Value: JSON.
    """
    for batch in batches:
        keys = pc.cast(digits(batch.column(0)), pa.binary())
        made = pa.record_batch(
            [
                batch.column("dateTime"),
                keys,
                json_values(batch),
                pa.nulls(batch.num_rows, PRODUCE_SCHEMA.field("headers").type),
            ],
            schema=PRODUCE_SCHEMA,
        )
        target = partitions_of(keys, partitions)
        for partition in range(partitions):
            chosen = np.flatnonzero(target == partition)
            if len(chosen):
                yield partition, made.take(pa.array(chosen))


def json_values(batch: pa.RecordBatch) -> pa.Array:
    """One JSON object per row, as bytes. The texts made here hold nothing that JSON would escape."""
    parts: list[pa.Scalar | pa.Array] = []
    for i, field in enumerate(batch.schema):
        lead = ("{" if i == 0 else ",") + f'"{field.name}":'
        if pa.types.is_string(field.type):
            parts += [pa.scalar(lead + '"'), batch.column(i), pa.scalar('"')]
        else:
            parts += [pa.scalar(lead), pc.cast(batch.column(i), pa.string())]
    return pc.cast(pc.binary_join_element_wise(*parts, pa.scalar("}"), ""), pa.binary())


def _block(number: int, seed: int, spread: int) -> pa.RecordBatch:
    """Bids `number * BLOCK` to `(number + 1) * BLOCK`, always drawn whole."""
    random = np.random.Generator(np.random.PCG64([seed, number]))
    bid = np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=np.int64)
    turn, within = bid // BIDS, bid % BIDS
    event = turn * ROUND + PERSONS + AUCTIONS + within
    newest_person, newest_auction = turn, turn * AUCTIONS + AUCTIONS - 1

    auction = choose(random, newest_auction, OPEN_AUCTIONS, COLD_AUCTION)
    bidder = choose(random, newest_person, ACTIVE_BIDDERS, COLD_BIDDER)
    price = prices(random, BLOCK)
    channel_id = random.integers(0, CHANNELS, BLOCK)
    popular = random.random(BLOCK) < 0.5
    channel = pc.if_else(
        pa.array(popular),
        pa.array(POPULAR).take(pa.array(channel_id % len(POPULAR))),
        joined("channel-", digits(channel_id)),
    )
    url = joined("https://auction.example/", channel, "/item.htm?query=1&channel_id=", digits(channel_id))
    extra = texts(random, BLOCK, EXTRA_BYTES)
    if spread:
        bidder = random.integers(0, spread, BLOCK)
    columns = [
        pa.array(auction + FIRST_ID),
        pa.array(bidder + FIRST_ID),
        pa.array(price),
        channel,
        url,
        pa.array(moments(event)),
        extra,
    ]
    return pa.record_batch(columns, schema=BID_SCHEMA)
