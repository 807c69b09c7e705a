"""The part of a target that is about Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item, texts
from flowql.config.shape import Choice, Constant, Key, MapOf, Record, Text, Whole
from flowql.kafka.place import BROKER_DIR, last_bootstrap
from runtime.log.kafka.settings import RESERVED, KafkaSettings

KAFKA = Record(
    "kafka",
    {
        "bootstrap": Key(
            Text("host:port"), "Where brokers are; without it the one of `flowql kafka up` in this project."
        ),
        "app_id": Key(
            Text("an id"),
            "Consumer group, transactional id and first part of internal topics; else the project's name.",
        ),
        "replication": Key(Whole(1, 100), "Copies of topics that are made; else what the brokers say."),
        "instances": Key(
            Choice(("one", "many")),
            "`many` instances share the work, each with a data directory of its own; of `one`, the newest takes over.",
        ),
        "options": Key(
            MapOf(Constant(), "an option"), "Of librdkafka, for all clients: security.protocol, sasl.username, ..."
        ),
    },
)


def kafka_settings(given: Mapping[str, Item], root: Path) -> tuple[KafkaSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say."""
    values = {k: given[k].value for k in ("bootstrap", "replication") if k in given}
    bootstrap = values.get("bootstrap") or last_bootstrap(root / BROKER_DIR) or ""
    options: Mapping[str, Item] = given["options"].value if "options" in given else {}
    shared = "instances" in given and given["instances"].value == "many"
    settings = KafkaSettings(bootstrap, texts(options), values.get("replication"), shared)
    found = []
    for name, item in options.items():
        if name in RESERVED:
            title = f"{name} is not the user's to set"
            found.append(Diagnostic("FQ5506", title, item.key, "FlowQL decides it", help="remove it from `options`"))
    return settings, found
