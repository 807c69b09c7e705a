"""Targets whose log is Kafka, as `flowql.yaml` says them."""

import json

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from flowql.config.load import load_project
from flowql.config.storage import check_engine, open_log
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError, ProjectError
from flowql.runtime.log.kafka.connection import LOGGER, Connection
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.log.memory import MemoryLog


def load(folder, target, environment=None):
    (folder / "flowql.yaml").write_text(f"name: demo\ntargets:\n  main: {target}\n")
    return load_project(folder, environment=environment or {})


def test_where_kafka_is_and_how_to_talk_to_it(tmp_path):
    options = "{security.protocol: SASL_SSL, sasl.password: '${SECRET}', message.max.bytes: 5000000, sasl.oauthbearer.x: true}"
    project = load(
        tmp_path,
        f"{{log: kafka, kafka: {{bootstrap: 'a:1,b:2', app_id: mine, replication: 3, options: {options}}}}}",
        {"SECRET": "s3"},
    )
    settings = settings_of(project)
    assert settings.application_id == "mine"
    assert settings.kafka == KafkaSettings(
        "a:1,b:2",
        {
            "security.protocol": "SASL_SSL",
            "sasl.password": "s3",
            "message.max.bytes": "5000000",
            "sasl.oauthbearer.x": "true",
        },
        3,
    )
    assert Settings.loads(settings.dumps()) == settings
    assert "s3" not in repr(settings)


def test_options_reach_the_clients_they_are_for_and_never_beat_what_flowql_decides():
    options = {"message.max.bytes": "5", "fetch.wait.max.ms": "7", "sasl.username": "u", "isolation.level": "x"}
    connection = Connection.to(KafkaSettings("a:1", options))
    consumer, producer, admin = connection.consumer("c", "g", 100), connection.producer("t"), connection.admin("a")
    assert [c.get("message.max.bytes") for c in (consumer, producer, admin)] == [None, "5", None]
    assert [c.get("fetch.wait.max.ms") for c in (consumer, producer, admin)] == ["7", None, None]
    assert [c["sasl.username"] for c in (consumer, producer, admin)] == ["u"] * 3
    assert consumer["isolation.level"] == "read_committed"


OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "flowql",
    "sasl.oauthbearer.client.secret": "s3",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.scope": "kafka",
}


def test_tokens_of_an_identity_provider_are_a_matter_of_options(tmp_path):
    """The client library gets them by itself: no code of a user's own is needed, for none of the clients."""
    said = json.dumps(OIDC)
    settings = settings_of(
        load(tmp_path, f"{{log: kafka, kafka: {{bootstrap: '127.0.0.1:1', options: {said}}}}}")
    ).kafka
    assert settings is not None
    connection = Connection.to(settings)
    main, restore = connection.consumer("m", "g", 100), connection.consumer("r", "g", 20)
    clients = (
        (Consumer, main),
        (Consumer, restore),
        (Producer, connection.producer("t")),
        (Producer, connection.plain_producer("t")),
        (AdminClient, connection.admin("a")),
    )
    for make, config in clients:
        assert {k: config[k] for k in OIDC} == OIDC
        made = make(config, logger=LOGGER)
        if make is Consumer:
            made.close()


def test_what_flowql_decides_is_refused(tmp_path):
    with pytest.raises(ProjectError) as raised:
        load(tmp_path, "{log: kafka, kafka: {options: {isolation.level: read_uncommitted}}}")
    assert [d.code for d in raised.value.diagnostics] == ["FQ5506"]


def test_many_instances_commit_exactly_once(tmp_path):
    with pytest.raises(ProjectError) as raised:
        load(tmp_path, "{log: kafka, guarantee: at_least_once, kafka: {bootstrap: 'a:1', instances: many}}")
    assert [d.code for d in raised.value.diagnostics] == ["FQ5507"]


def test_a_producer_without_transactions_keeps_its_order():
    config = Connection.to(KafkaSettings("a:1")).plain_producer("p")
    assert config["enable.idempotence"]
    assert not [name for name in config if name.startswith("transaction")]


def test_kafka_has_no_meaning_with_the_embedded_log(tmp_path):
    with pytest.raises(ProjectError) as raised:
        load(tmp_path, "{log: embedded, kafka: {bootstrap: 'a:1'}}")
    assert [d.code for d in raised.value.diagnostics] == ["FQ3003"]


def test_without_an_address_it_is_the_broker_of_the_project(tmp_path):
    project = load(tmp_path, "{log: kafka}")
    with pytest.raises(CommandError) as raised:
        open_log(project)
    assert raised.value.code == "FQ5505"
    (tmp_path / ".flowql" / "broker").mkdir(parents=True)
    known = {"pid": 1, "port": 1234, "controller_port": 2, "started": 0.0}
    (tmp_path / ".flowql" / "broker" / "broker.json").write_text(json.dumps(known))
    found = settings_of(load(tmp_path, "{log: kafka}")).kafka
    assert found is not None
    assert found.bootstrap == "127.0.0.1:1234"
    assert settings_of(load(tmp_path, "{log: kafka}")).application_id == "demo"


def test_spark_runs_on_kafka_as_the_runtime_does(tmp_path):
    settings = settings_of(load(tmp_path, "{engine: spark, log: kafka, kafka: {bootstrap: 'a:1', app_id: mine}}"))
    assert (settings.engine, settings.kafka, settings.application_id) == ("spark", KafkaSettings("a:1"), "mine")


def test_an_application_on_kafka_is_of_one_engine():
    log = MemoryLog()
    check_engine(log, "mine", "mine-plan", "another engine")
    log.create_topic("mine-plan", 1)
    with pytest.raises(CommandError, match="application mine belongs to another engine") as raised:
        check_engine(log, "mine", "mine-plan", "another engine")
    assert raised.value.code == "FQ5508"
