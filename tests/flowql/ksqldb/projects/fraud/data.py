"""Payments of some days: most in order, some late, some much too late, on cards that change hands and are cancelled."""

from __future__ import annotations

from random import Random
from typing import Any

BASE = 1_750_000_000_001  # odd, and so is every time: none falls on the edge of a window
CITIES = {
    "Lisbon": ("pt", 38.72, -9.14), "Oslo": ("no", 59.91, 10.75), "Boston": ("us", 42.36, -71.06), "Lima": ("pe", -12.05, -77.04),
}  # fmt: skip
Record = dict[str, Any]


def records(chance: Random) -> dict[str, list[Record]]:
    """Records of every source, in the order in which they are written."""
    cards = [f"card-{n:02}" for n in range(36)]
    people = [f"p{n}" for n in range(10)]
    return {
        "bank.customers": _customers(chance, people),
        "bank.cards": _cards(chance, cards, people),
        "bank.payments": _payments(chance, [*cards, "unknown"]),
        **_authorised(chance, cards),
    }


def _spot(chance: Random) -> Record:
    city = chance.choice(list(CITIES))
    country, lat, lon = CITIES[city]
    return {"CITY": city, "COUNTRY": country, "LAT": lat, "LON": lon}


def _customers(chance: Random, people: list[str]) -> list[Record]:
    found = [_record(p, BASE - 2_000_000 + 2 * n, {"NAME": p.upper(), "TIER": "basic"}) for n, p in enumerate(people)]
    for n in range(20):
        who = chance.choice(people)
        value = (
            None if chance.random() < 0.2 else {"NAME": who, "TIER": chance.choice(["basic", "gold", "black", None])}
        )
        found.append(_record(who, BASE + n * 240_002, value))
    return found


def _cards(chance: Random, cards: list[str], people: list[str]) -> list[Record]:
    def card() -> Record:
        limits = {"single": chance.randrange(50, 400)} if chance.random() < 0.8 else {"day": 1000}
        home = _spot(chance) if chance.random() < 0.9 else None
        return {"CUSTOMER": chance.choice([*people, "nobody", None]), "LIMITS": limits, "HOME": home}

    found = [_record(c, BASE - 1_000_000 + 2 * n, card()) for n, c in enumerate(cards)]
    for n in range(60):
        value = None if chance.random() < 0.25 else card()
        found.append(_record(chance.choice(cards), BASE + n * 90_000 + 2 * chance.randrange(20_000), value))
    return found


def _payments(chance: Random, cards: list[str]) -> list[Record]:
    found, now = [], BASE
    for n in range(900):
        now += 2 * chance.randrange(4_000)
        late = chance.choice([0, 0, 0, 0, 30_000, 50_000, 900_000]) if n > 100 else 0
        hot = cards[:4] if chance.random() < 0.5 else cards
        value = {
            "ID": n,
            "AMOUNT": f"{chance.randrange(100, 60_000) / 100:.2f}",
            "MERCHANT": chance.choice(["Café Ä", "shop", None]),
            "SPOT": _spot(chance) if chance.random() < 0.95 else None,
            "SIGNS": chance.choice([["risk:no-pin"], ["info:contactless"], [], None, ["risk:a", "info:b", "risk:c"]]),
            "PAID_AT": now - late,
        }
        found.append(_record(chance.choice(hot), now, value))
    return found


def _authorised(chance: Random, cards: list[str]) -> dict[str, list[Record]]:
    asked, fetched, now = [], [], BASE
    for n in range(250):
        now += 2 * chance.randrange(15_000)
        at = now - 2 * chance.randrange(20_000)
        asked.append(_record(f"a{n}", at, {"CARD": chance.choice(cards), "AMOUNT": "10.00"}))
        for _ in range(chance.choice([0, 1, 1, 2])):
            value = {"AMOUNT": f"{chance.randrange(1000) / 100:.2f}", "BANK": chance.choice(["north", "south"])}
            fetched.append(_record(f"a{n}", at + 2 * chance.randrange(420_000) - 100_000, value))
    fetched.sort(key=lambda r: r["timestamp"] + chance.randrange(60_000))  # late by a minute at most: within the grace
    return {"bank.authorisations": asked, "bank.settlements": fetched}


def _record(key: str | None, timestamp: int, value: Record | None) -> Record:
    return {"key": key, "timestamp": timestamp, "value": value}
