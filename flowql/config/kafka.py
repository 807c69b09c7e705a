"""The part of a target that is about Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item, texts
from flowql.config.shape import Choice, Key, MapOf, Record, Secret, Text, Whole
from flowql.kafka.bootstrap import BROKER_DIR, last_bootstrap
from flowql.runtime.log.kafka.settings import RESERVED, KafkaSettings

KAFKA = Record(
    "kafka",
    {
        "bootstrap": Key(
            Text("host:port"), "Addresses of brokers; default: the broker of `flowql kafka up` in this project."
        ),
        "app_id": Key(
            Text("an id"),
            "Consumer group, transactional id and prefix of internal topics; default: the project's name.",
        ),
        "replication": Key(Whole(1, 100), "Replication factor of new topics; default: that of the brokers."),
        "instances": Key(
            Choice(("one", "many")),
            "With `many`, instances share the work, each with its own data directory; with `one`, a new instance takes over from the running one.",
        ),
        "standbys": Key(
            Whole(0, 10),
            "With `instances: many`: how many other instances keep a copy of each task's state, so that they can take it over at once; default: 0.",
        ),
        "options": Key(
            MapOf(Secret("a string, number or boolean", constant=True), "an option"),
            "Options of librdkafka for all clients: security.protocol, sasl.username, ...",
        ),
    },
)


def kafka_settings(given: Mapping[str, Item], root: Path) -> tuple[KafkaSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say."""
    values = {k: given[k].value for k in ("bootstrap", "replication") if k in given}
    bootstrap = values.get("bootstrap") or last_bootstrap(root / BROKER_DIR) or ""
    options: Mapping[str, Item] = given["options"].value if "options" in given else {}
    shared = "instances" in given and given["instances"].value == "many"
    standbys = int(given["standbys"].value) if "standbys" in given and shared else 0
    settings = KafkaSettings(bootstrap, texts(options), values.get("replication"), shared, standbys)
    found = []
    for name, item in options.items():
        if name in RESERVED:
            title = f"{name} is not the user's to set"
            found.append(Diagnostic("FQ5506", title, item.key, "FlowQL decides it", help="remove it from `options`"))
    return settings, found
