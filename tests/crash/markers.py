"""A broker that dies between the preparation of a commit and its markers (KAFKA-20734): a transaction is whole or is not there.

`python -m tests.crash.markers --rounds 100` (its own broker, of one node). Each round commits a record in each of 29 partitions and kills the broker
some milliseconds after the commit was asked for. Brokers 4.3.0 lose parts now and then; a part that is lost has to be told at the next start (FQ4086).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.kafka.broker import Broker
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import Producer, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from tests.kafka_broker import QUICK
from tests.runtime.log.records import batch

APP, TOPIC, PARTITIONS = "markers", "markers-out", 29
FROM, TO = 0.5, 1.2  # the kill comes in this part of the time that a commit takes
TPS = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]


def commit(bootstrap: str, n: int, broker: Broker, rnd: random.Random) -> None:
    """One transaction, in which the broker is killed and started again, behind another one that shows how long a commit takes."""
    with closing(KafkaLog(Connection(bootstrap), APP)) as log, closing(log.producer(APP)) as producer:
        for _ in range(2):
            _begin(producer, -1)
            began = time.monotonic()
            producer.commit()
            took_s = time.monotonic() - began
        _begin(producer, n)
        killer = threading.Thread(target=_killed, args=(broker, rnd.uniform(FROM, TO) * took_s))
        killer.start()
        try:
            producer.commit()
        except LogError as error:
            print(f"  {type(error).__name__}", end="", flush=True)
        finally:
            killer.join()


def _begin(producer: Producer, n: int) -> None:
    producer.begin()
    for tp in TPS:
        producer.send(tp, batch([str(n).encode()]))


def _killed(broker: Broker, delay_s: float) -> None:
    time.sleep(delay_s)
    broker.kill()
    broker.start(java_options=QUICK)


def found_at_start(bootstrap: str) -> tuple[int, set[int]]:
    """How many transactions were committed, and the partitions that are told to lack a part of the last one."""
    limit = time.monotonic() + 120.0
    while True:
        try:
            with closing(KafkaLog(Connection(bootstrap), APP)) as log:
                log.hold(APP)
                torn = {e.partition[1] for e in log.torn_commits() if e.partition is not None}
                return log.last_sequence(APP), torn
        except LogError:
            if time.monotonic() > limit:
                raise


def read(bootstrap: str) -> dict[int, Counter[int]]:
    """The partitions in which readers of committed records see each transaction."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    with closing(Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})) as client:
        client.assign([KafkaPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        reading = set(range(PARTITIONS))
        while reading:
            for message in client.consume(500, 1.0):
                if message.error() is not None:
                    reading.discard(message.partition())
                else:
                    seen[int(message.value())][message.partition()] += 1
    return seen


def run(broker: Broker, rounds: int, seed: int) -> list[str]:
    rnd, wrong = random.Random(seed), []
    bootstrap = broker.start(java_options=QUICK).bootstrap
    with closing(KafkaLog(Connection(bootstrap), APP)) as log:
        log.create_topic(TOPIC, PARTITIONS)
    committed, told = dict[int, bool](), dict[int, set[int]]()
    before = 0
    for n in range(rounds):
        commit(bootstrap, n, broker, rnd)
        after, told[n] = found_at_start(bootstrap)
        committed[n], before = after == before + 3, after
        print(" +" if committed[n] else " -", end="", flush=True)
    seen = read(bootstrap)
    for n in range(rounds):
        there = set(seen.get(n, ()))
        if missing := set(range(PARTITIONS)) - there if committed[n] else there:
            how = "told" if missing <= told[n] else "WITHOUT A WORD"
            wrong.append(f"transaction {n} ({committed[n]=}): {sorted(missing)} are wrong, {how}")
        if any(times > 1 for times in seen.get(n, Counter()).values()):
            wrong.append(f"transaction {n} is there twice")
    print(f"\n{sum(committed.values())} of {rounds} transactions were committed")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.markers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        broker = Broker(Path(scratch) / "broker")
        try:
            wrong = run(broker, given.rounds, given.seed)
        finally:
            broker.kill()
    print("\n".join(wrong) or "each is whole or is not there")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
