"""A month of records of which one in a hundred is bad, in ten ways: imported, repaired, replayed, with a kill, and compared with DuckDB.

    python -m tests.bad_month [--records 5000000 --seed 1]

Half of the records are lines of a file, of which `flowql topic import --on-error dead-letter` cannot read some; they are exported,
corrected and imported. The other half is written to the topic by a program that knows no types; the records that the queries cannot
read are repaired by `flowql dlq replay --where --set`, way by way. The instance is killed (SIGKILL) in the middle of a rebuild. In
the end the tables are those that DuckDB makes of the records as they should have been.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv

from flowql.cli import main
from flowql.config.storage import log_at
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.murmur2 import partitions as partitions_of
from flowql.server.client import Client
from flowql.server.running import connect

DAY = 86_400_000
START = 1_767_225_600_000  # 2026-01-01
PARTITIONS = 4
CHUNK = 100_000
BAD_SHARE = 0.01
SETTLE_S = 3_600.0
PROJECT = "name: month\nsql: month.sql\ntargets: {default: {threads: 2, memory: 512 MB}}\n"
SQL = f"""
CREATE STREAM PAYMENTS (ACCOUNT STRING KEY, ID BIGINT, AMOUNT BIGINT, QTY INT, AT BIGINT)
  WITH (KAFKA_TOPIC = 'payments', PARTITIONS = {PARTITIONS}, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
CREATE TABLE TOTALS AS SELECT ACCOUNT, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL, MAX(ID) AS LAST FROM PAYMENTS GROUP BY ACCOUNT;
CREATE TABLE DAYS AS SELECT ACCOUNT, COUNT(*) AS N, SUM(QTY) AS QTY FROM PAYMENTS
  WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 40 DAYS) GROUP BY ACCOUNT;
CREATE STREAM LARGE AS SELECT ACCOUNT, ID, AMOUNT FROM PAYMENTS WHERE AMOUNT >= 99000;
"""

# Of records in the topic: what becomes of a good value. Each way has a turn for one bad record in as many as there are ways.
Spoil = Callable[[bytes, "Payment"], bytes]


@dataclass(frozen=True, slots=True)
class Payment:
    id: int
    amount: int
    qty: int
    at: int


def _with(name: str, new: Callable[[Payment], str]) -> Spoil:
    def spoil(value: bytes, p: Payment) -> bytes:
        before = f'"{name}":{getattr(p, name.lower())}'
        return value.decode().replace(before, f'"{name}":{new(p)}').encode()

    return spoil


WAYS: dict[str, Spoil] = {
    "currency": _with("AMOUNT", lambda p: f'"{p.amount} EUR"'),
    "thousands": _with("AMOUNT", lambda p: f'"{p.amount:,}.-"'),
    "nested": _with("AMOUNT", lambda p: f'{{"cents":{p.amount}}}'),
    "scaled": _with("QTY", lambda p: f'"{p.qty * 10**10}"'),
    "sentinel": _with("AT", lambda p: "9223372036854775807"),
    "iso": _with("AT", lambda p: f'"{np.datetime64(p.at, "ms")}Z"'),
    "cut": lambda value, p: value[:-1],
    "quoted": lambda value, p: b'"' + value.replace(b'"', b'\\"') + b'"',
}
# Lines of the file.
LINES: dict[str, Callable[[list[str]], list[str]]] = {
    "digits": lambda cells: [*cells[:2], f"{cells[2]}x", *cells[3:]],
    "short": lambda cells: cells[:-1],
}
REPLAYS: tuple[tuple[str, ...], ...] = (
    (
        "--where",
        "value LIKE '%EUR\"%' OR value LIKE '%.-\"%'",
        "--set",
        "AMOUNT = regexp_replace(AMOUNT, '[^0-9]', '', 'g')::BIGINT",
    ),
    ("--where", "value LIKE '{%' AND value NOT LIKE '%}'", "--set", "VALUE = value || '}'"),
    ("--where", "value LIKE '\"%'", "--set", "VALUE = json_extract_string(value, '$')"),
    (
        "--where",
        "value LIKE '%9223372036854775807%' OR value LIKE '%\"AT\":\"%'",
        "--set",
        "AT = CASE WHEN \"AT\" LIKE '9%' THEN epoch_ms(rowtime) ELSE epoch_ms(replace(\"AT\", 'Z', '')::TIMESTAMP) END",
    ),
    ("--where", "value LIKE '%cents%'", "--set", "AMOUNT = json_extract(AMOUNT, '$.cents')::BIGINT"),
    ("--set", "QTY = QTY::BIGINT // 10000000000"),
)
KILLED_AT = 3  # the replay whose rebuild meets the kill


@dataclass(frozen=True, slots=True)
class Data:
    """The month as it should have been, by time. n: how many; the first half are lines of the file."""

    accounts: list[str]
    amounts: list[int]
    qtys: list[int]
    times: list[int]

    @property
    def n(self) -> int:
        return len(self.accounts)

    @classmethod
    def of(cls, records: int, seed: int) -> Data:
        rng = np.random.default_rng(seed)
        accounts = rng.integers(0, max(10, records // 50), records)
        times = START + np.arange(records, dtype=np.int64) * (30 * DAY) // records
        return cls(
            [f"acc-{a}" for a in accounts],
            rng.integers(1, 100_000, records).tolist(),
            rng.integers(1, 9, records).tolist(),
            times.tolist(),
        )

    def table(self) -> pa.Table:
        columns = {
            "ACCOUNT": self.accounts,
            "ID": range(self.n),
            "AMOUNT": self.amounts,
            "QTY": self.qtys,
            "AT": self.times,
        }
        return pa.table(columns)

    def payment(self, n: int) -> Payment:
        return Payment(n, self.amounts[n], self.qtys[n], self.times[n])

    def cells(self, n: int) -> list[str]:
        return [self.accounts[n], str(n), str(self.amounts[n]), str(self.qtys[n]), str(self.times[n])]

    def value(self, n: int) -> bytes:
        return b'{"ID":%d,"AMOUNT":%d,"QTY":%d,"AT":%d}' % (n, self.amounts[n], self.qtys[n], self.times[n])


@dataclass(slots=True)
class Month:
    """folder: of the project. said: a line per step."""

    folder: Path
    data: Data
    rng: random.Random
    say: Callable[[str], None] = print
    took: dict[str, float] = field(default_factory=dict)
    bad_lines: dict[int, list[str]] = field(default_factory=dict)
    bad_values: int = 0

    def run(self) -> list[str]:
        """What is wrong in the end, as sentences."""
        (self.folder / "flowql.yaml").write_text(PROJECT)
        (self.folder / "month.sql").write_text(SQL)
        self._step("deploy", lambda: self.flowql("deploy"))
        try:
            self._step("import", self._import)
            self._step("raw records", self._write_raw)
            self._step("caught up", self._settle)
            self._step("lines repaired", self._repair_lines)
            for n, replay in enumerate(REPLAYS):
                self._step(f"replay {n + 1}", lambda n=n, replay=replay: self._replay(n, replay))
            return self._step("compare", self._wrong)
        finally:
            self.flowql("stop")

    def _step(self, name: str, do: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = do()
        self.took[name] = time.monotonic() - began
        self.say(f"{name}: {self.took[name]:.1f} s{'' if not isinstance(result, str) else f', {result}'}")
        return result

    def flowql(self, *arguments: str) -> str:
        """What a command prints; it must succeed."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([*arguments, "--project", str(self.folder)])
            except SystemExit as ended:
                code = ended.code
        assert not code, f"flowql {' '.join(arguments)}: {out.getvalue()}{err.getvalue()}"
        return out.getvalue() + err.getvalue()

    @property
    def data_dir(self) -> Path:
        return self.folder / ".flowql" / "default"

    def client(self) -> Client:
        found = connect(self.data_dir)
        assert found is not None, "no instance runs"
        return found

    # -- records come

    def _import(self) -> str:
        path, ways = self.folder / "payments.csv", list(LINES.values())
        with path.open("w") as file:
            file.write("ACCOUNT,ID,AMOUNT,QTY,AT\n")
            for n in range(self.data.n // 2):
                cells = self.data.cells(n)
                if self.rng.random() < BAD_SHARE * len(LINES) / 5:
                    self.bad_lines[n] = cells
                    cells = ways[n % len(ways)](cells)
                file.write(",".join(cells) + "\n")
        self.flowql("topic", "import", "payments", str(path), "--timestamp", "AT", "--on-error", "dead-letter")
        return f"{len(self.bad_lines):,} lines of {self.data.n // 2:,} are bad"

    def _write_raw(self) -> str:
        log = log_at(self.data_dir / "log", None, "month")
        producer, ways = log.producer("month-feed"), list(WAYS.values())
        try:
            for start in range(self.data.n // 2, self.data.n, CHUNK):
                chosen = range(start, min(self.data.n, start + CHUNK))
                values = [self._spoilt(n, ways) for n in chosen]
                keys = [self.data.accounts[n].encode() for n in chosen]
                columns = [[self.data.times[n] for n in chosen], keys, values, [None] * len(values)]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
                records = pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)
                partition = partitions_of(records.column("key"), PARTITIONS, np.zeros(len(values), np.int64))
                producer.begin()
                for p in range(PARTITIONS):
                    producer.send(TopicPartition("payments", p), records.take(pa.array(np.flatnonzero(partition == p))))
                producer.commit()
        finally:
            producer.close()
            log.close()
        return f"{self.bad_values:,} of {self.data.n - self.data.n // 2:,} are bad"

    def _spoilt(self, n: int, ways: list[Spoil]) -> bytes:
        value = self.data.value(n)
        if self.rng.random() >= BAD_SHARE * len(WAYS) / 5:
            return value
        self.bad_values += 1
        return ways[self.bad_values % len(ways)](value, self.data.payment(n))

    def _settle(self) -> str:
        """Wait until everything is read and rebuilt."""
        limit = time.monotonic() + SETTLE_S
        while time.monotonic() < limit:
            queries = self.client().status()["queries"]
            if all(q["lag"] == 0 and not q.get("building") and q["state"] == "running" for q in queries):
                time.sleep(0.3)  # what is processed is committed within 100 ms
                return f"{sum(q['dead_letters'] for q in queries):,} dead letters"
            time.sleep(0.05)
        raise AssertionError(f"not at rest after {SETTLE_S:.0f} s")

    # -- records are repaired

    def _repair_lines(self) -> str:
        """Lines that were no records: they are exported, corrected and imported."""
        path, right = self.folder / "bad.parquet", self.folder / "corrected.csv"
        self.flowql("dlq", "export", "--where", "list_contains(queries, 'topic import')", "-o", str(path))
        texts = duckdb.sql(f"SELECT value FROM read_parquet('{path}')").fetchall()
        with right.open("w") as file:
            file.write("ACCOUNT,ID,AMOUNT,QTY,AT\n")
            for (text,) in texts:  # who corrects them looks them up elsewhere, by their id
                file.write(",".join(self.bad_lines[int(text.split(",")[1])]) + "\n")
        self.flowql("topic", "import", "payments", str(right), "--timestamp", "AT")
        return f"{len(texts):,} lines"

    def _replay(self, n: int, replay: tuple[str, ...]) -> str:
        topic = "topic = 'payments' AND \"offset\" IS NOT NULL"
        where = f"({replay[1]}) AND {topic}" if replay[0] == "--where" else topic
        given = replay[2:] if replay[0] == "--where" else replay
        killed = n + 1 == KILLED_AT
        said = self.flowql("dlq", "replay", "--where", where, *given, *(["--no-wait"] if killed else []))
        if killed:
            pid = self.client().status()["instance"]["pid"]
            os.kill(pid, signal.SIGKILL)
            _await_end(pid)
            self.flowql("deploy")
        self._settle()
        return next(line for line in said.splitlines() if "to be rebuilt" in line) + (" (killed)" if killed else "")

    # -- tables are as they should be

    def _wrong(self) -> list[str]:
        left = self.flowql("dlq", "ls", "--where", '"offset" IS NOT NULL', "-o", "json")
        wrong = [] if left.startswith("[]") else [f"dead letters are left: {left[:300]}"]
        with duckdb.connect() as oracle:
            oracle.register("payments", self.data.table())
            for name, (ours, theirs) in _QUERIES.items():
                expected = oracle.sql(theirs).to_arrow_table()
                found = self.client().query(ours)
                rows = _differences(found, expected)
                wrong += [f"{name}: {rows:,} rows differ of {expected.num_rows:,}"] if rows else []
        return wrong


_QUERIES = {
    "TOTALS": (
        "SELECT ACCOUNT, N, TOTAL, LAST FROM TOTALS",
        "SELECT ACCOUNT, COUNT(*), SUM(AMOUNT)::BIGINT, MAX(ID) FROM payments GROUP BY 1",
    ),
    "DAYS": (
        "SELECT ACCOUNT, WINDOWSTART, N, QTY FROM DAYS",
        f'SELECT ACCOUNT, "AT" - "AT" % {DAY}, COUNT(*), SUM(QTY)::BIGINT FROM payments GROUP BY 1, 2',
    ),
    "LARGE": (
        "SELECT ACCOUNT, ID, AMOUNT FROM LARGE",
        "SELECT ACCOUNT, ID, AMOUNT FROM payments WHERE AMOUNT >= 99000",
    ),
}


def _differences(found: pa.Table, expected: pa.Table) -> int:
    """How many rows are in one of them only, counted as often as they are there."""
    with duckdb.connect() as db:
        db.register("found", found.rename_columns([f"c{n}" for n in range(found.num_columns)]))
        db.register("expected", expected.rename_columns([f"c{n}" for n in range(expected.num_columns)]))
        sql = "SELECT COUNT(*) FROM ((FROM found EXCEPT ALL FROM expected) UNION ALL (FROM expected EXCEPT ALL FROM found))"
        ((count,),) = db.sql(sql).fetchall()
        return int(count)


def _await_end(pid: int) -> None:
    for _ in range(1_000):
        try:
            os.kill(pid, 0)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def lived(folder: Path, records: int, seed: int, say: Callable[[str], None] = print) -> list[str]:
    """What is wrong after a month of so many records."""
    return Month(folder, Data.of(records, seed), random.Random(seed), say).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        wrong = lived(Path(name), options.records, options.seed, lambda line: print(line, flush=True))
        print(
            f"{options.records:,} records, {time.monotonic() - began:.0f} s:", *(wrong or ["as it should be"]), sep="\n"
        )
        sys.exit(bool(wrong))
