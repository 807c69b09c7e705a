"""A registry over HTTP, and the real client against it: what a project reads, what it registers, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from flowql.cli import main
from flowql.compiler.plan.logical import SchemaRef
from flowql.runtime.errors import RegistryUnavailable
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.serde.registry import USER_INFO, ConfluentRegistry, registry_at
from tests.schema_registry import Store, served

pytest.importorskip("authlib", reason="the extra `registry` is not installed")
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "long"}],
}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "gift", "type": ["null", "boolean"], "default": None}]}
ORDERS, TOTALS = TopicPartition("orders", 0), TopicPartition("totals", 0)
SQL = """
CREATE STREAM ORDERS WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='AVRO', PARTITIONS=1);
CREATE TABLE TOTALS WITH (KAFKA_TOPIC='totals', VALUE_FORMAT='AVRO') AS
  SELECT ITEM, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY ITEM;
"""


@contextmanager
def asked(login: str = "") -> Iterator[tuple[str, Store]]:
    """A registry; FlowQL's connection to it ends with it."""
    with served(login) as (url, store):
        yield url, store
        registry = registry_at(url)
        assert isinstance(registry, ConfluentRegistry)
        registry.close()
        registry_at.cache_clear()


def project(folder: Path, url: str) -> Path:
    (folder / "flowql.yaml").write_text(
        f"name: shop\nsql: [shop.sql]\nproperties:\n  ksql.schema.registry.url: {url}\n"
    )
    (folder / "shop.sql").write_text(SQL)
    return folder


def orders(url: str, *schemas: dict[str, object]) -> list[bytes]:
    """Records of Confluent's own serializer, which registers each schema before it writes with it."""
    where, written = SerializationContext("orders", MessageField.VALUE), []
    with SchemaRegistryClient({"url": url}) as client:
        for n, schema in enumerate(schemas, 1):
            write = AvroSerializer(client, json.dumps(schema))
            written += [write({"item": item, "amount": 10 * n, "gift": True}, where) for item in ("tea", "cup", "tea")]
    return [w for w in written if w is not None]


def append(folder: Path, values: list[bytes]) -> None:
    log = EmbeddedLog(folder / ".flowql" / "default" / "log")
    log.create_topic("orders", 1)
    producer = log.producer("import")
    producer.begin()
    rows = [{"timestamp": n, "key": None, "value": v, "headers": None} for n, v in enumerate(values)]
    producer.send(ORDERS, pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    producer.commit()
    log.close()


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return int(stopped.value.code or 0)


def totals(folder: Path, url: str) -> dict[bytes, object]:
    """The newest record of each key, read by Confluent's own deserializer."""
    log = EmbeddedLog(folder / ".flowql" / "default" / "log")
    records = log.reader(TOTALS, EARLIEST).read(100, 1 << 20)
    log.close()
    assert records is not None
    where = SerializationContext("totals", MessageField.VALUE)
    with SchemaRegistryClient({"url": url}) as client:
        read = AvroDeserializer(client)
        return {r["key"]: read(r["value"], where) for r in records.records.to_pylist()}


def test_a_project_reads_what_others_register_and_registers_what_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with asked() as (url, store):
        folder = project(tmp_path, url)
        append(folder, orders(url, ORDER, NEWER))  # the second schema has a field more
        assert run("-p", str(folder), "run", "--until-caught-up") == 0, capsys.readouterr().err
        assert list(store.subjects) == ["orders-value", "totals-value"]
        assert totals(folder, url) == {b"tea": {"N": 4, "TOTAL": 60}, b"cup": {"N": 2, "TOTAL": 30}}


def test_a_name_and_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(USER_INFO, raising=False)
    with asked("ann:secret") as (url, store):
        with pytest.raises(RegistryUnavailable, match=rf"{url}: Unauthorized.*{USER_INFO}=user:password"):
            registry_at(url).latest("t-value")
        monkeypatch.setenv(USER_INFO, "ann:secret")
        registry = ConfluentRegistry(url)
        made = registry.register(SchemaRef("AVRO", json.dumps(ORDER), 0, "t-value", registry=url))
        found = registry.latest("t-value")
        registry.close()
        assert found is not None
        assert (found.id, found.text, store.subjects) == (made, json.dumps(ORDER), {"t-value": [1]})


def test_a_schema_that_does_not_fit_is_refused_with_the_registrys_reason() -> None:
    other = {**ORDER, "fields": [{"name": "item", "type": "int"}]}
    with asked() as (url, store):
        for schema in (ORDER, other):
            ref = SchemaRef("AVRO", json.dumps(schema), 0, "t-value", registry=url)
            with pytest.raises(RegistryUnavailable, match="incompatible") if schema is other else nullcontext():
                registry_at(url).register(ref)
        assert store.subjects == {"t-value": [1]}


def test_a_registry_that_is_not_there_is_said_with_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served() as (url, _):
        pass
    assert run("-p", str(project(tmp_path, url)), "validate") == 1
    shown = capsys.readouterr().err
    assert f"error[FQ4028]: the schema registry at {url}" in shown
    assert "Connection refused" in shown
