"""Members of a group that follow ticks: the bank of `tests.ticks` on the simulated cluster, and what its topics hold at each line of a reader."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import Plan, stores_of
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from tests.sim import project
from tests.sim.checks import APP, judge_states
from tests.sim.cluster import SimulatedCluster
from tests.sim.faults import CALM, Faults
from tests.sim.groups import Violation
from tests.ticks.bank import bank_plan
from tests.ticks.lines import Results, moments_at_lines, sums_at_lines

ACCOUNTS, TRANSFERS, START_MS = 6, 8, 1_700_000_000_000
PARTITIONS = 3
VIEWS = ("credits", "debits", "balance", "total")
LOOK_MS = 50


def transactions(count: int, rng: random.Random) -> list[list[project.Part]]:
    """Each takes every account as often as it gives to it. All rows of one are in one partition: others are atomic in each partition alone."""
    parts, written = list[list[project.Part]](), 0
    for n in range(count):
        amount, accounts = rng.randrange(1, 100), rng.sample(range(ACCOUNTS), rng.randrange(2, ACCOUNTS))
        records, p = list[dict[str, Any]](), rng.randrange(PARTITIONS)
        for src, dst in zip(accounts, [*accounts[1:], accounts[0]], strict=True):
            while partition_for(str(written).encode(), PARTITIONS) != p:
                written += 1
            value = json.dumps({"src": src, "dst": dst, "amt": amount}).encode()
            record = {"timestamp": START_MS + n, "key": str(written).encode(), "value": value, "headers": None}
            records.append(record)
            written += 1
        parts.append([(TopicPartition("own", p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))])
    return parts


NOW_VIEWS = """
CREATE TABLE seen (id INT PRIMARY KEY, at TIMESTAMP) WITH (PARTITIONS = 2);
CREATE VIEW young AS SELECT id FROM seen WHERE at > NOW() - INTERVAL '0.4' SECOND;
CREATE VIEW recent AS SELECT id, at FROM seen WHERE at > NOW() - INTERVAL '0.4' SECOND;
CREATE VIEW apart AS SELECT y.id AS y, r.id AS r FROM young y FULL JOIN recent r ON y.id = r.id
  WHERE y.id IS NULL OR r.id IS NULL;
"""


class BankOfMembers(SimulatedCluster):
    """Its life is that of the cluster; its queries are views over views over transfers, and with `now` views with a present moment."""

    def __init__(self, seed: int, faults: Faults | None = None, *, count: int = 16, now: bool = False) -> None:
        super().__init__(seed, faults, orders=1)
        self.input = transactions(count, self.rng)
        self.plan = bank_plan(PARTITIONS, NOW_VIEWS if now else "")
        self.has_now = now
        self.answers = set[int]()  # ticks that interactive queries were answered of
        self._look_ms = 0
        self.cut: Mapping[TopicPartition, int] = {}  # of the last answer
        self.compared = 0
        self.read_sums, self.subscribed = (
            set[int](),
            set[int](),
        )  # sums, and numbers of rows, that readers of topics got

    def first_plan(self) -> Plan:
        return self.plan

    def feed(self, number: int) -> None:
        super().feed(number)
        if self.has_now:
            key, value = str(number).encode(), json.dumps({"at": self.clock.wall_ms()}).encode()
            record = {"timestamp": self.clock.wall_ms(), "key": key, "value": value, "headers": None}
            tp = TopicPartition("seen", partition_for(key, 2))
            self.append([(tp, pa.RecordBatch.from_pylist([record], PRODUCE_SCHEMA))], f"seen {number}")

    def turn(self) -> None:
        super().turn()
        if self.now >= self._look_ms and not self.stack:
            self._look_ms = self.now + LOOK_MS
            self._look()
            self._read_to_whole_ends()

    def _look(self) -> None:
        """Asks all members for one tick, as an interactive query does. Violation if that state never was."""
        for process in self.processes[:1]:
            queries = [q.id for q in process.instance.plan.queries if q.sink in VIEWS]
            taken = process.instance.ticks.snapshot(queries, 0, lambda s: None) if queries else None
            if taken is None:
                continue
            taken.snapshot.close()
            rows = self._rows_at(queries, taken.tick) if taken.is_whole else None
            if rows is None:
                continue
            self.answers.add(taken.tick)
            paid = [sum(r[-1] for r in rows[view]) for view in ("credits", "debits")]
            self._compare_with_cut(taken.tick, taken.cut, paid[0])
            if paid[0] != paid[1] or any(r[-1] for view in ("balance", "total") for r in rows[view]):
                raise Violation(f"an answer of tick {taken.tick} shows {rows}")

    def _compare_with_cut(self, tick: int, cut: Mapping[TopicPartition, int] | None, paid: int) -> None:
        """A session that has seen an answer asks for no less than its cut: it has to be what the answer shows, and to grow with the ticks."""
        if not cut:  # of a tick before this member came
            return
        records = Results(self.outside, APP).rows("own", cut)
        if (wanted := sum(row["amt"] for row in records.values())) != paid:
            raise Violation(f"an answer of tick {tick} shows {paid}, and its cut {wanted}")
        if any(cut[tp] < end for tp, end in self.cut.items() if tp in cut):
            raise Violation(f"the cut of tick {tick} went back: {self.cut}, {cut}")
        self.cut, self.compared = cut, self.compared + 1

    def _read_to_whole_ends(self) -> None:
        """Reads results from their topics, as a transaction and a subscription do. Violation if that state never was."""
        for process in self.processes:
            ticks, results = process.instance.ticks, Results(self.outside, APP)
            whole = ticks.whole_ends() or {}
            if {tp.topic for tp in whole}.issuperset(VIEWS):
                rows = {view: list(results.rows(view, whole).values()) for view in VIEWS}
                paid = [sum(row["v"] for row in rows[view]) for view in ("credits", "debits")]
                if paid[0] != paid[1] or any(r["bal"] for r in rows["balance"]) or any(r["t"] for r in rows["total"]):
                    raise Violation(f"results up to {whole} are {rows}")
                self.read_sums.add(paid[0])
            elif whole and self.faults == CALM:
                raise Violation(f"some results have no end: {whole}")
            only = results.rows("balance", ticks.whole_ends("balance") or {}).values()
            if any(row["bal"] for row in only):
                raise Violation(f"a subscription to balance gets {list(only)}")
            self.subscribed.add(len(only))

    def _rows_at(self, queries: list[str], tick: int) -> dict[str, list[tuple[Any, ...]]] | None:
        """Rows of the views as of a tick, from all members; None if some of them have not kept it."""
        plan, rows, tasks = self.processes[0].instance.plan, {v: dict[str, Any]() for v in VIEWS}, set[str]()
        stores = {plain(s.name, q.generation): (s.name, q) for q, s in stores_of(plan)}
        for process in self.processes:
            found = process.instance.ticks.snapshot_at(queries, tick)
            if found is None:
                return None
            for view in VIEWS:
                store, query = stores[view]
                if (of := found.of(store)) is found.newest:
                    continue  # nothing of it is here
                sub = next(
                    s.number for s in query.subtopologies if any(x.name == store for o in s.operators for x in o.stores)
                )
                for task in (t for t in of.owned if t.startswith(f"{query.id}/{sub}_")):
                    with of.of_task(task) as only:
                        rows[view][task] = (
                            [r for _, r in only.scan(store)] if store in {s.name for s in only.stores()} else []
                        )
                    tasks.add(task)
            found.close()
        whole = all(len(rows[view]) == len({t for t in self._tasks_of(stores[view])}) for view in VIEWS)
        return {view: [r for of in parts.values() for r in of] for view, parts in rows.items()} if whole else None

    def _tasks_of(self, of: tuple[str, Any]) -> list[str]:
        store, query = of
        sub = next(s.number for s in query.subtopologies if any(x.name == store for o in s.operators for x in o.stores))
        planned = self.processes[0].group.planned.reads
        return [str(t) for t in planned if t.query == query.id and t.subtopology == sub]

    def judge(self) -> list[str]:
        return [*judge_ticks(self), *judge_states(self)]


def judge_ticks(world: BankOfMembers) -> list[str]:
    """Sentences about what readers of results have seen at their lines, and what results are at the end."""
    results = Results(world.outside, APP)
    wrong, sums = sums_at_lines(results)
    if world.has_now:
        more, moments = moments_at_lines(results)
        wrong += more
        if world.faults == CALM and len(moments) < 3:
            wrong.append(f"few moments: {moments}")
    values = (v for parts in world.input for _, r in parts for v in r.column("value").to_pylist())
    everything = sum(json.loads(v)["amt"] for v in values)
    if (seen := sum(r["v"] for r in results.rows("credits", results.everything("credits")).values())) != everything:
        wrong.append(f"credits are {seen}, and {everything} was put in")
    if off := [r for r in results.rows("total", results.everything("total")).values() if r["t"]]:
        wrong.append(f"the total is {off}")
    if world.faults == CALM and len(set(sums.values())) < 4:
        wrong.append(f"few ticks: {sums}")
    return wrong
