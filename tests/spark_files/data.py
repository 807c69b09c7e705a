"""Rows of two streams and two tables in Parquet files: shuffled, split over files and folders at random, some of an older schema.

Every seed has rows out of order, exact duplicates, rows that tie, removals, NULL keys and values, unicode, and times before 1970.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

STEP_MS = 500  # times are multiples: ties, and distances of exactly a gap or a bound
TEXTS = ["x", "y", "é", "Z", "zz", "😀", "", None]
SCHEMAS = {
    "A": pa.schema(
        [
            ("K", pa.int64()),
            ("V", pa.int64()),
            ("G", pa.string()),
            ("P", pa.decimal128(9, 2)),
            ("T", pa.timestamp("us")),
            ("ROWTIME", pa.int64()),
        ]
    ),
    "B": pa.schema([("K", pa.int64()), ("W", pa.int32()), ("ROWTIME", pa.timestamp("us", tz="UTC"))]),
    "D": pa.schema(
        [
            ("K", pa.int64()),
            ("NAME", pa.string()),
            ("V", pa.int64()),
            ("OP", pa.string()),
            ("ROWTIME", pa.timestamp("us")),
        ]
    ),
    "E": pa.schema([("K", pa.int64()), ("X", pa.int64()), ("SEQ", pa.int64()), ("ROWTIME", pa.int64())]),
}
_EPOCH = datetime(1970, 1, 1)
Row = dict[str, Any]


def write(folder: Path, seed: int, size: int = 120) -> None:
    """The files of a seed: `folder/A/...parquet` and so on."""
    r = random.Random(seed)
    for name, rows in rows_of(r, size).items():
        write_files(r, folder / name, SCHEMAS[name], rows)


def rows_of(r: random.Random, size: int) -> dict[str, list[Row]]:
    span, start = size // 2, r.choice([0, 0, -20, -1000, 3_000_000_000])
    keys = [*range(r.randint(2, 6)), None]

    def ms() -> int:
        return (start + r.randrange(span)) * STEP_MS

    def value() -> int | None:
        return r.choice([*range(5), None, -(2**40)])

    a = [
        {
            "K": r.choice(keys),
            "V": value(),
            "G": r.choice(TEXTS),
            "P": r.choice([None, Decimal(r.randint(-(10**6), 10**6)).scaleb(-2)]),
            "T": _EPOCH + timedelta(milliseconds=r.randint(-(10**12), 2 * 10**12)),
            "ROWTIME": ms(),
        }
        for _ in range(size)
    ]
    b = [{"K": r.choice(keys), "W": r.choice([*range(5), None]), "ROWTIME": zoned(ms())} for _ in range(size // 2)]
    d = [
        {
            "K": r.choice(keys),
            "NAME": r.choice(TEXTS),
            "V": r.choice([*range(4), None]),
            "OP": r.choice("uuud"),
            "ROWTIME": naive(ms()),
        }
        for _ in range(size // 2)
    ]
    e = [
        {"K": r.choice(keys), "X": r.choice([*range(4), None]), "SEQ": r.randrange(8), "ROWTIME": ms()}
        for _ in range(size // 6)
    ]
    found: dict[str, list[Row]] = {"A": a, "B": b, "D": d, "E": e}
    _promised(r, found)
    for rows in found.values():
        rows += r.sample(rows, len(rows) // 10)  # exact duplicates
        r.shuffle(rows)
    return found


def _promised(r: random.Random, found: dict[str, list[Row]]) -> None:
    """What no seed may lack: NULL keys, a removal behind a row of its key, ties of different values, a removal at a tie."""
    for rows in found.values():
        rows.append({**rows[0], "K": None})
    first = {**found["D"][0], "K": 0, "OP": "u", "NAME": "a", "V": 1}
    later = first["ROWTIME"] + timedelta(milliseconds=STEP_MS)
    found["D"] += [first, {**first, "NAME": "b"}, {**first, "OP": "d"}, {**first, "K": 1}]
    found["D"] += [{**first, "K": 1, "OP": "d", "ROWTIME": later}]
    last = max(row["ROWTIME"] for row in found["D"]) + timedelta(milliseconds=STEP_MS)
    found["D"] += [{**first, "K": 2, "V": v, "ROWTIME": last} for v in (0, None)]  # names a row of E at the end
    found["D"] += [{**first, "K": 3, "V": 3, "ROWTIME": last}]  # and one whose V is more than 1
    found["E"] += [{"K": 0, "X": 1, "SEQ": 100, "ROWTIME": 0}, {"K": 0, "X": 2, "SEQ": 100, "ROWTIME": -STEP_MS}]
    found["A"] += [
        {**found["A"][0], "K": 1, "ROWTIME": _ms(later)},
        {**found["A"][0], "K": 1, "ROWTIME": _ms(later) - 1},
    ]


def naive(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def zoned(ms: int) -> datetime:
    return naive(ms).replace(tzinfo=UTC)


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)


def write_files(r: random.Random, folder: Path, schema: pa.Schema, rows: Sequence[Row], prefix: str = "") -> None:
    """Some files of these rows, in folders of days."""
    cuts = sorted(r.sample(range(1, len(rows)), min(r.randint(1, 4), len(rows) - 1)))
    for i, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        part = rows[low:high]
        # Files of before the column was added; half of the rows have it, so that every query has groups of it.
        older = "G" in schema.names and r.random() < 0.5 and high <= len(rows) // 2
        if older:
            for row in part:
                row["G"] = None
        written = pa.schema([f for f in schema if not (older and f.name == "G")])
        place = folder / f"day={r.randrange(3)}"
        place.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist([{n: row[n] for n in written.names} for row in part], written)
        pq.write_table(table, place / f"{prefix}{i}.parquet", row_group_size=r.choice([7, 1000]))
