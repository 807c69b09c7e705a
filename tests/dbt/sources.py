"""The source tables of the project: random rows, and changes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.tpc.data import AT_ONCE, literal

FIRST_DAY, DAYS = date(2023, 1, 1), 420
MIDNIGHT = datetime(2023, 1, 1)
Make = Callable[[Random, int], Any]


@dataclass(slots=True)
class Source:
    """columns: name, type and how a value is made for a row of a number. size: rows at the start. kept: rows that are there, by key."""

    name: str
    columns: Sequence[tuple[str, str, Make]]
    size: int
    keys: int = 1
    kept: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    made: int = 0
    index: str = ""

    @property
    def definition(self) -> str:
        columns = ", ".join(f"{n} {t}" for n, t, _ in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self._key)}))"

    @property
    def _key(self) -> list[str]:
        return [n for n, _, _ in self.columns[: self.keys]]

    def begin(self, rng: Random) -> Iterator[str]:
        """The statements that insert the first rows."""
        self.kept, self.made = {}, 0
        yield from self._insert(rng, self.size)

    def changes(self, rng: Random, number: int, of: int) -> Iterator[str]:
        """New rows, rows with other values, and rows that go."""
        yield from self._insert(rng, max(1, self.size // 12))
        for key in rng.sample(sorted(self.kept), min(3, len(self.kept))):
            name, _, make = rng.choice(self.columns[self.keys :])
            yield f"UPDATE {self.name} SET {name} = {_written(make(rng, rng.randrange(self.made)))} WHERE {self._where(key)}"
        for key in rng.sample(sorted(self.kept), min(2, len(self.kept))):
            del self.kept[key]
            yield f"DELETE FROM {self.name} WHERE {self._where(key)}"

    def _insert(self, rng: Random, count: int) -> Iterator[str]:
        rows = []
        for _ in range(count):
            self.made += 1
            row = tuple(make(rng, self.made) for _, _, make in self.columns)
            if row[: self.keys] not in self.kept:
                self.kept[row[: self.keys]] = row
                rows.append(f"({', '.join(map(_written, row))})")
        for at in range(0, len(rows), AT_ONCE):
            yield f"INSERT INTO {self.name} VALUES {', '.join(rows[at : at + AT_ONCE])}"

    def _where(self, key: tuple[Any, ...]) -> str:
        return " AND ".join(f"{n} = {_written(v)}" for n, v in zip(self._key, key, strict=True))


def _written(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case datetime():
            return f"'{value.isoformat(sep=' ', timespec='milliseconds')}'"
        case dict():
            return literal(json.dumps(value))
    return literal(value)


def _one(*values: Any) -> Make:
    return lambda rng, _: rng.choice(values)


def _number(first: int, last: int) -> Make:
    return lambda rng, _: rng.randint(first, last)


def _money(first: int, last: int) -> Make:
    """Cents."""
    return lambda rng, _: Decimal(rng.randint(first, last)).scaleb(-2)


def _day(rng: Random, _: int) -> date:
    return FIRST_DAY + timedelta(days=rng.randrange(DAYS))


def _moment(rng: Random, _: int) -> datetime:
    """One in three is of a few days, where rows follow each other within minutes."""
    days = rng.randrange(3) * 40 + 5 if rng.random() < 0.35 else rng.randrange(DAYS)
    hours = rng.randrange(9, 12) if rng.random() < 0.5 else rng.randrange(24)
    return MIDNIGHT + timedelta(
        days=days, hours=hours, minutes=rng.randrange(60), milliseconds=rng.randrange(4) * 15_250
    )


def _or_null(make: Make, share: float = 0.15) -> Make:
    return lambda rng, n: None if rng.random() < share else make(rng, n)


def _email(rng: Random, n: int) -> str:
    name = rng.choice(("Ann", "bob", "CAROL", "dave+news", "eve.li"))
    return rng.choice(("", " ")) + f"{name}{n % 40}@{rng.choice(('Example.com', 'shop.test', 'mail.example.org'))}"


def _attributes(rng: Random, _: int) -> dict[str, Any]:
    found: dict[str, Any] = {"plan": rng.choice(("free", "pro", None)), "score": rng.choice((1, 2.5, 40, "n/a"))}
    if rng.random() < 0.7:
        found["utm"] = {"source": rng.choice(("google", "news", "")), "campaign": rng.choice(("spring", "fall", None))}
    found["tags"] = rng.sample(("vip", "new", "risk", "b2b"), rng.randrange(4))
    return found


def _properties(rng: Random, _: int) -> dict[str, Any]:
    found: dict[str, Any] = {"device": rng.choice(("ios", "android", "web")), "ms": rng.randint(5, 900)}
    if rng.random() < 0.5:
        found["items"] = [
            {"sku": f"SKU-{rng.randrange(12):03d}", "qty": rng.randint(1, 3)} for _ in range(rng.randrange(3))
        ]
    if rng.random() < 0.4:
        found["ok"] = rng.random() < 0.7
    return found


def _details(rng: Random, _: int) -> dict[str, Any]:
    return {
        "card": {"brand": rng.choice(("visa", "amex", None)), "last4": f"{rng.randrange(9999):04d}"},
        "fee": rng.randint(0, 300) / 100,
    }


def _count(_: Random, n: int) -> int:
    return n


def sources(share: int = 1) -> list[Source]:
    """share: one row of so many is there. Some rows refer to rows that are not there."""
    customers, orders, products = 45 // share, 110 // share, 12
    of_customer, of_order, of_product = _number(1, customers + 4), _number(1, orders + 4), _number(1, products + 1)
    return [
        Source(
            "raw_customers",
            [
                ("id", "INT", _count),
                ("first_name", "TEXT", _or_null(_one("Ann", "bob", " Carol ", "DAVE", "Eve", "Zoë", "O'Neil"))),
                ("last_name", "TEXT", _one("Smith", "Li", "van Dyk", "smith", "Müller", "")),
                ("email", "TEXT", _or_null(_email)),
                ("country", "TEXT", _or_null(_one("DE", "US", "us", "FR", "GB", "XX"))),
                ("created_at", "TIMESTAMPTZ", _moment),
                ("opted_in", "BOOLEAN", _or_null(_one(True, False))),
                ("referred_by", "INT", _or_null(_number(1, 12), 0.5)),
                ("attributes", "JSONB", _or_null(_attributes)),
            ],
            customers,
        ),
        Source(
            "raw_products",
            [
                ("id", "INT", _count),
                ("sku", "TEXT", lambda _, n: f"SKU-{n % 12:03d}"),
                ("name", "TEXT", _one("Mug, blue", "Mug, red", "T-Shirt (L)", "Poster 30x40", "Sticker", "Lamp")),
                ("category", "TEXT", _or_null(_one("home", "Home ", "apparel", "print", "print"))),
                ("price_cents", "INT", _number(150, 9900)),
                ("cost", "NUMERIC(10, 2)", _or_null(_money(50, 5000))),
                ("is_active", "BOOLEAN", _one(True, True, False)),
                ("tags", "TEXT", _or_null(_one("sale,new", "new", "sale,gift,eco", "", "eco"))),
                ("launched_on", "DATE", _or_null(_day)),
            ],
            products,
        ),
        Source(
            "raw_orders",
            [
                ("id", "BIGINT", _count),
                ("customer_id", "INT", _or_null(of_customer, 0.05)),
                (
                    "status",
                    "TEXT",
                    _or_null(_one("placed", "shipped", "Completed", "completed", "returned", "cancelled"), 0.05),
                ),
                ("order_date", "DATE", _day),
                ("ordered_at", "TIMESTAMPTZ", _moment),
                ("shipped_at", "TIMESTAMPTZ", _or_null(_moment, 0.4)),
                ("coupon", "TEXT", _or_null(_one("SPRING10", "FALL-25", "spring10", "VIP"), 0.6)),
                ("shipping", "NUMERIC(8, 2)", _or_null(_money(0, 1500))),
                (
                    "note",
                    "TEXT",
                    _or_null(_one("call 555-0101", "gift: yes", "", "  leave at door ", "ref #42 / #7"), 0.4),
                ),
            ],
            orders,
        ),
        Source(
            "raw_order_items",
            [
                ("order_id", "BIGINT", of_order),
                ("line_no", "INT", _number(1, 4)),
                ("product_id", "INT", of_product),
                ("quantity", "INT", _number(0, 6)),
                ("unit_price", "NUMERIC(10, 2)", _money(150, 9900)),
                ("discount", "DOUBLE PRECISION", _or_null(_one(0.0, 0.1, 0.25, 0.5), 0.3)),
            ],
            170 // share,
            keys=2,
        ),
        Source(
            "raw_payments",
            [
                ("id", "BIGINT", _count),
                ("order_id", "BIGINT", of_order),
                ("method", "TEXT", _one("credit_card", "coupon", "bank_transfer", "gift_card")),
                ("amount_cents", "BIGINT", _number(0, 40_000)),
                ("status", "TEXT", _one("success", "success", "failed", "refunded")),
                ("paid_at", "TIMESTAMP", _or_null(_moment, 0.1)),
                ("details", "JSONB", _or_null(_details)),
            ],
            120 // share,
        ),
        Source(
            "raw_subscriptions",
            [
                ("id", "INT", _count),
                ("customer_id", "INT", of_customer),
                ("plan", "TEXT", _one("basic", "pro", "team")),
                ("mrr", "NUMERIC(10, 2)", _money(900, 20000)),
                ("started_on", "DATE", _day),
                ("cancelled_on", "DATE", _or_null(_day, 0.6)),
                ("seats", "INT", _or_null(_number(1, 30))),
                ("is_trial", "BOOLEAN", _one(False, False, True)),
            ],
            60 // share,
        ),
        Source(
            "raw_events",
            [
                ("event_id", "BIGINT", _count),
                ("user_id", "INT", _or_null(of_customer, 0.1)),
                ("event_type", "TEXT", _one("page_view", "page_view", "add_to_cart", "checkout", "signup")),
                (
                    "page",
                    "TEXT",
                    _or_null(_one("/", "/products/7?utm=x", "/cart", "/pricing", "https://shop.test/blog/a-b")),
                ),
                ("occurred_at", "TIMESTAMPTZ", _moment),
                ("properties", "JSONB", _or_null(_properties)),
            ],
            220 // share,
        ),
        Source(
            "raw_tickets",
            [
                ("id", "INT", _count),
                ("customer_id", "INT", _or_null(of_customer)),
                (
                    "subject",
                    "TEXT",
                    _or_null(_one("Refund for order 17", "[URGENT] login", "Invoice?", "re: re: login")),
                ),
                ("priority", "TEXT", _or_null(_one("low", "normal", "high", "P1"))),
                ("opened_at", "TIMESTAMP", _moment),
                ("closed_at", "TIMESTAMP", _or_null(_moment, 0.3)),
                ("satisfaction", "INT", _or_null(_number(1, 5), 0.5)),
                ("agent", "TEXT", _or_null(_one("kim", "lee", "Kim"))),
            ],
            60 // share,
        ),
    ]
