"""A warehouse's day: articles that change price, category and supplier or are dropped, movements, orders and shipments."""

from __future__ import annotations

from random import Random
from typing import Any

BASE = 1_750_000_000_001
Record = dict[str, Any]


def records(chance: Random) -> dict[str, list[Record]]:
    """Records of every source, in the order in which they are written."""
    skus = [f"sku-{n:02}" for n in range(30)]
    return {
        "inv.suppliers": _suppliers(chance),
        "inv.products": _products(chance, skus),
        "inv.movements": _movements(chance, skus),
        **_orders(chance, skus),
    }


def _suppliers(chance: Random) -> list[Record]:
    found = []
    for n in range(25):
        value = {"NAME": f"supplier {chance.randrange(99)}", "COUNTRY": chance.choice(["pt", "no", None])}
        found.append(_record(chance.randrange(6), BASE + n * 100_002, value if chance.random() < 0.85 else None))
    return found


def _products(chance: Random, skus: list[str]) -> list[Record]:
    found = []
    for n in range(120):
        value = {
            "NAME": chance.choice(["bolt", "Mutter", None]),
            "CATEGORY": chance.choice(["tools", "toys", "food", None]),
            "PRICE": f"{chance.randrange(10_000) / 100:.2f}",
            "SUPPLIER": chance.choice([0, 1, 2, 3, 4, 5, 99, None]),
        }
        found.append(_record(chance.choice(skus), BASE + n * 60_002, value if chance.random() < 0.9 else None))
    return found


def _movements(chance: Random, skus: list[str]) -> list[Record]:
    found = []
    for _ in range(600):
        lot = {"BATCH": f"lot {chance.randrange(50)}", "BEST_BEFORE": chance.randrange(20_000, 20_400)}
        value = {
            "WAREHOUSE": chance.choice([1, 2, 3, None]),
            "QTY": chance.randrange(-9, 12) if chance.random() < 0.95 else None,
            "LOT": lot if chance.random() < 0.8 else None,
        }
        found.append(_record(chance.choice([*skus, None]), BASE + 2 * chance.randrange(3_600_000), value))
    return found


def _orders(chance: Random, skus: list[str]) -> dict[str, list[Record]]:
    orders, shipments, now = [], [], BASE
    for n in range(200):
        now += 2 * chance.randrange(120_000)
        lines = [{"SKU": chance.choice([*skus, None]), "QTY": chance.randrange(4)} for _ in range(chance.randrange(4))]
        value = {"CUSTOMER": f"c{chance.randrange(20)}", "LINES": lines if chance.random() < 0.95 else None}
        orders.append(_record(n, now - 2 * chance.randrange(100_000), value))
        if chance.random() < 0.8:
            number = n if chance.random() < 0.9 else 1_000 + n
            parcel = {"CARRIER": chance.choice(["post", "van", "boat"]), "WEIGHT": chance.randrange(4_000) / 8}
            shipments.append(_record(number, now + 2 * chance.randrange(5_000_000), parcel))
    shipments.sort(key=lambda r: r["timestamp"] + chance.randrange(200_000))
    return {"inv.orders": orders, "inv.shipments": shipments}


def _record(key: object, timestamp: int, value: Record | None) -> Record:
    return {"key": key, "timestamp": timestamp, "value": value}
