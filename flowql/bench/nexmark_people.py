"""The persons and auctions of the Nexmark timeline, made as its bids are.

A seller may be a person who has not joined yet: some auctions come before their seller, as they would over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from flowql.bench.nexmark import BID_SCHEMA, bids
from flowql.bench.nexmark_timeline import (
    AUCTIONS,
    BIDS,
    BLOCK,
    FIRST_ID,
    HOT_FOR,
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
    some_of,
    texts,
)

ACTIVE_SELLERS, AHEAD = 1000, 10  # a cold auction is of one of the newest persons, or one of the next
COLD_SELLER = 0.25
CATEGORIES, FIRST_CATEGORY = 5, 10
OPEN_FOR_MS = 20_000  # an auction is open for up to as long
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
FIRST_NAMES = ("Ava", "Ben", "Cora", "Dan", "Elif", "Femi", "Gus", "Hana", "Ines", "Jun", "Kofi")
LAST_NAMES = ("Abe", "Bauer", "Costa", "Diaz", "Evans", "Fischer", "Garcia", "Haas", "Ito")
# One number of a random stream beside seed and block, so that kinds draw apart; bids, the oldest, have none.
_PERSON_STREAM, _AUCTION_STREAM = 1, 2

PERSON_SCHEMA = schema_of(
    id=pa.int64(),
    name=pa.string(),
    emailAddress=pa.string(),
    creditCard=pa.string(),
    city=pa.string(),
    state=pa.string(),
    dateTime=pa.int64(),
    extra=pa.string(),
)
AUCTION_SCHEMA = schema_of(
    id=pa.int64(),
    itemName=pa.string(),
    description=pa.string(),
    initialBid=pa.int64(),
    reserve=pa.int64(),
    dateTime=pa.int64(),
    expires=pa.int64(),
    seller=pa.int64(),
    category=pa.int64(),
    extra=pa.string(),
)
SCHEMAS: Mapping[str, pa.Schema] = {"person": PERSON_SCHEMA, "auction": AUCTION_SCHEMA, "bid": BID_SCHEMA}


def persons(rows: int, seed: int = SEED, chunk: int = BLOCK) -> Iterator[pa.RecordBatch]:
    """The first `rows` persons, of PERSON_SCHEMA.

    >>> next(persons(2)).column("id").to_pylist()
    [1000, 1001]
    """
    return cut(rows, chunk, PERSON_SCHEMA, lambda number: _persons(number, seed))


def auctions(rows: int, seed: int = SEED, chunk: int = BLOCK) -> Iterator[pa.RecordBatch]:
    """The first `rows` auctions, of AUCTION_SCHEMA."""
    return cut(rows, chunk, AUCTION_SCHEMA, lambda number: _auctions(number, seed))


def counts(bid_count: int) -> dict[str, int]:
    """How many records of each kind the timeline has had when the last of `bid_count` bids comes.

    >>> counts(1_000_000)
    {'person': 21740, 'auction': 65220, 'bid': 1000000}
    """
    turns = -(-bid_count // BIDS)
    return {"person": turns * PERSONS, "auction": turns * AUCTIONS, "bid": bid_count}


MAKERS: Mapping[str, Callable[..., Iterator[pa.RecordBatch]]] = {"person": persons, "auction": auctions, "bid": bids}


def _persons(number: int, seed: int) -> pa.RecordBatch:
    random = np.random.Generator(np.random.PCG64([seed, number, _PERSON_STREAM]))
    person = np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=np.int64)
    card = [digits(random.integers(1000, 10_000, BLOCK)) for _ in range(4)]
    columns = [
        pa.array(person + FIRST_ID),
        joined(some_of(random, BLOCK, FIRST_NAMES), " ", some_of(random, BLOCK, LAST_NAMES)),
        joined(texts(random, BLOCK, 7), "@", texts(random, BLOCK, 5), ".example"),
        joined(card[0], " ", card[1], " ", card[2], " ", card[3]),
        some_of(random, BLOCK, CITIES),
        some_of(random, BLOCK, STATES),
        pa.array(moments(person * ROUND)),
        texts(random, BLOCK, 60),
    ]
    return pa.record_batch(columns, schema=PERSON_SCHEMA)


def _auctions(number: int, seed: int) -> pa.RecordBatch:
    random = np.random.Generator(np.random.PCG64([seed, number, _AUCTION_STREAM]))
    auction = np.arange(number * BLOCK, (number + 1) * BLOCK, dtype=np.int64)
    turn, within = auction // AUCTIONS, auction % AUCTIONS
    time = moments(turn * ROUND + PERSONS + within)
    initial = prices(random, BLOCK)
    cold = choose(random, turn + AHEAD, ACTIVE_SELLERS, cold=1.0)
    hot = turn // HOT_FOR * HOT_FOR
    columns = [
        pa.array(auction + FIRST_ID),
        texts(random, BLOCK, 20),
        texts(random, BLOCK, 100),
        pa.array(initial),
        pa.array(initial + prices(random, BLOCK)),
        pa.array(time),
        pa.array(time + 1 + random.integers(0, OPEN_FOR_MS, BLOCK)),
        pa.array(np.where(random.random(BLOCK) < COLD_SELLER, cold, hot) + FIRST_ID),
        pa.array(FIRST_CATEGORY + random.integers(0, CATEGORIES, BLOCK)),
        texts(random, BLOCK, 100),
    ]
    return pa.record_batch(columns, schema=AUCTION_SCHEMA)
