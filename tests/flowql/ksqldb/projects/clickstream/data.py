"""Clicks of some hours: a little out of order, some an hour late, some without a visitor or an address."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

BASE = 1_750_000_000_001  # odd, and so is every time: none falls on the edge of a window
PATHS = ["/", "/Shoes", "/shoes/red", "/hats", "/cart", "/gone", "/Blog/1", "/unknown"]
Record = dict[str, Any]


def records(chance: Random) -> dict[str, list[Record]]:
    """Records of every source, in the order in which they are written."""
    visitors = [f"v{n}" for n in range(25)]
    return {
        "web.pages": _pages(),
        "web.clicks": _clicks(chance, visitors),
        "web.purchases": _purchases(chance, visitors),
    }


def _pages() -> list[Record]:
    """All before the first click. One is deleted, one moves to another section."""
    rows: list[tuple[str, Record | None]] = [
        ("/", {"TITLE": "Home", "SECTION": "start"}),
        ("/shoes", {"TITLE": "Shoes", "SECTION": "shop"}),
        ("/shoes/red", {"TITLE": "Red, and more", "SECTION": "shop"}),
        ("/hats", {"TITLE": "Hats", "SECTION": "start"}),
        ("/gone", {"TITLE": "Gone", "SECTION": "shop"}),
        ("/blog/1", {"TITLE": None, "SECTION": "blog"}),
        ("/cart", {"TITLE": "Cart", "SECTION": None}),
        ("/hats", {"TITLE": "Hats", "SECTION": "shop"}),
        ("/gone", None),
    ]
    return [_record(path, BASE - 100_000 + 2 * n, value) for n, (path, value) in enumerate(rows)]


def _clicks(chance: Random, visitors: list[str]) -> list[Record]:
    found, now = [], BASE
    for n in range(700):
        now += 2 * chance.randrange(20_000)
        visitor = chance.choice([*visitors, None]) if chance.random() < 0.97 or n < 50 else f"late-{n}"
        late = 7_200_000 if visitor and visitor.startswith("late") else chance.choice([0, 0, 0, 0, 60_000, 230_000])
        query = chance.choice(["", "", "?utm=spring%20sale", "?x=1&utm=mail", "?utm=ads"])
        value = {
            "URL": f"http://shop.example{chance.choice(PATHS)}{query}" if chance.random() < 0.95 else None,
            "AGENT": chance.choice(["Firefox", "SearchBot/2", None]),
            "DEVICE": chance.choice(
                [None, {"KIND": "phone", "LANGS": ["EN-us", "fr"]}, {"KIND": "desk", "LANGS": ["de", None]}]
            ),
            "CLICKED": datetime.fromtimestamp((now - late) / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "TOOK_MS": chance.choice([None, chance.randrange(2_000)]),
        }
        found.append(_record(visitor, now, value))
    return found


def _purchases(chance: Random, visitors: list[str]) -> list[Record]:
    found, now = [], BASE + 600_000
    for _ in range(60):
        now += 2 * chance.randrange(200_000)
        items = {sku: chance.randrange(1, 5) for sku in chance.sample(["a", "b", "c"], chance.randrange(1, 4))}
        found.append(_record(chance.choice(visitors), now, {"TOTAL": chance.randrange(10_000) / 4, "ITEMS": items}))
    return found


def _record(key: str | None, timestamp: int, value: Record | None) -> Record:
    return {"key": key, "timestamp": timestamp, "value": value}
