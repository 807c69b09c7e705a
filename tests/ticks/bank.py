"""Views over transfers between accounts: a state that shows a part of a transaction can be told from any other."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import Plan, stores_of
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import Clock, VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.memory import MemoryPhysical

Row = tuple[Any, ...]
VIEWS = """
CREATE TABLE own (id INT PRIMARY KEY, src INT, dst INT, amt INT) WITH (PARTITIONS = {partitions});
CREATE VIEW credits AS SELECT dst AS acc, sum(amt) AS v FROM own GROUP BY dst;
CREATE VIEW debits  AS SELECT src AS acc, sum(amt) AS v FROM own GROUP BY src;
CREATE VIEW balance AS SELECT c.acc, COALESCE(c.v,0) - COALESCE(d.v,0) AS bal FROM credits c JOIN debits d ON c.acc = d.acc;
CREATE VIEW total   AS SELECT sum(bal) AS t FROM balance;
"""
ACCOUNTS, TRANSFERS = 10, 40


def bank_plan(partitions: int, more: str = "") -> Plan:
    compiled = compile_project([SourceText("bank.sql", VIEWS.format(partitions=partitions) + more)], dialect="standard")
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


class Bank:
    """An instance that a driver steps in a random order. Each transaction of the producer takes each account as often as it gives to it."""

    def __init__(self, seed: int, partitions: int = 2, more: str = "", **config: Any) -> None:
        self.random = random.Random(seed)
        self.plan, self.partitions = bank_plan(partitions, more), partitions
        self.log, self.physical = self.new_log(), MemoryPhysical()
        self.clock: Clock = VirtualClock(1_000_000)
        self.config = InstanceConfig(threads=2, **config)
        self.written = 0
        self.sums = [0]  # of all amounts, after each transaction
        self._open()
        self._deploy()
        self.producer = self.log.producer("feed")

    def new_log(self) -> Log:
        return MemoryLog()

    def _deploy(self) -> None:
        self.instance.deploy(self.plan)

    def _open(self) -> None:
        self.instance = Instance(self.log, self.physical, self.clock, self.config)
        self.driver = Driver(self.instance, seed=self.random.randrange(1 << 30), tick=self._pass_time)

    def _pass_time(self) -> None:
        assert isinstance(self.clock, VirtualClock)
        self.clock.advance(1)

    def restart(self) -> None:
        """What is not committed is lost."""
        self.instance.close()
        self._open()
        self.instance.resume()

    def transact(self) -> None:
        """One transaction: a ring of transfers of one amount, so that every account is paid what it pays."""
        amount, accounts = (
            self.random.randrange(1, 100),
            self.random.sample(range(ACCOUNTS), self.random.randrange(2, ACCOUNTS)),
        )
        pairs = list(zip(accounts, [*accounts[1:], accounts[0]], strict=True))
        self.sums.append(self.sums[-1] + amount * len(pairs) * (TRANSFERS // len(pairs)))
        by_partition: dict[int, list[Mapping[str, Any]]] = {}
        for src, dst in pairs * (TRANSFERS // len(pairs)):
            self.written += 1
            key = str(self.written).encode()
            value = json.dumps({"src": src, "dst": dst, "amt": amount}).encode()
            record = {"timestamp": self.clock.wall_ms(), "key": key, "value": value, "headers": None}
            by_partition.setdefault(partition_for(key, self.partitions), []).append(record)
        self.write(by_partition)

    def write_history(self, rows: int, accounts: int) -> None:
        """Transactions of 40 rows between many accounts, which are read at once."""
        by_partition: dict[int, list[Mapping[str, Any]]] = {}
        for _ in range(rows // TRANSFERS):
            ring, amount = self.random.sample(range(accounts), TRANSFERS), self.random.randrange(1, 100)
            for src, dst in zip(ring, [*ring[1:], ring[0]], strict=True):
                self.written += 1
                key, value = str(self.written).encode(), json.dumps({"src": src, "dst": dst, "amt": amount}).encode()
                record = {"timestamp": self.clock.wall_ms(), "key": key, "value": value, "headers": None}
                by_partition.setdefault(partition_for(key, self.partitions), []).append(record)
            self.sums.append(self.sums[-1] + amount * TRANSFERS)
        self.write(by_partition)

    def write(self, by_partition: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
        self.producer.begin()
        for p, records in by_partition.items():
            self.producer.send(TopicPartition("own", p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        self.producer.commit()

    def write_seen(self, number: int) -> None:
        """A row of `seen`, as of now."""
        key = str(number).encode()
        value = json.dumps({"at": self.clock.wall_ms()}).encode()
        record = {"timestamp": self.clock.wall_ms(), "key": key, "value": value, "headers": None}
        self.producer.begin()
        tp = TopicPartition("seen", partition_for(key, 2))
        self.producer.send(tp, pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))
        self.producer.commit()

    def look(self, *views: str) -> int | None:
        """How many transactions some of the bank's views show; None if an answer says that they are not of one moment, or shows nothing."""
        rows, reason = self.rows(*views)
        if reason:
            return None
        paid = {v: sum(r[-1] for r in rows[v]) for v in ("credits", "debits") if v in rows}
        assert len(set(paid.values())) < 2, f"credits and debits differ: {paid}"
        seen = next(iter(paid.values()), 0)
        assert seen in self.sums, f"no prefix of the transactions has a sum of {seen}"
        assert all(r[-1] == 0 for v in ("balance", "total") if v in rows for r in rows[v]), f"not in balance: {rows}"
        return self.sums.index(seen) if paid else None

    def rows(self, *views: str) -> tuple[dict[str, list[Row]], str]:
        """Rows of views as one answer shows them, and what it says of them."""
        with self._taken(views) as (snapshot, reason):
            stores = {plain(s.name, q.generation): s.name for q, s in stores_of(self.instance.plan)}
            known = {s.name for s in snapshot.stores()}
            return {v: [r for _, r in snapshot.scan(stores[v])] if stores[v] in known else [] for v in views}, reason

    @contextmanager
    def _taken(self, views: Sequence[str]) -> Iterator[Any]:
        queries = [q.id for q in self.instance.plan.queries if q.sink in views]
        taken = self.instance.snapshot_of(queries)
        try:
            yield taken.snapshot, taken.reason
        finally:
            taken.snapshot.close()

    def pause(self, *queries: str) -> None:
        self.instance.deploy(replace(self.instance.deployed.plan, paused=queries))
