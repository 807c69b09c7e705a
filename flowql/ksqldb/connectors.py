"""CREATE and DROP CONNECTOR: FlowQL runs none, so their configuration is kept for a Kafka Connect that does."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from flowql.compiler.dialect.tokens import Tok
from flowql.ksqldb.scripts import ScriptStatement


@dataclass(frozen=True, slots=True)
class Connector:
    """kind: source or sink. config: what Kafka Connect takes. dropped: the statement was DROP."""

    name: str
    kind: str = ""
    config: dict[str, str] = field(default_factory=dict)
    dropped: bool = False

    @property
    def file_name(self) -> str:
        return re.sub(r"\W+", "_", self.name) + ".json"

    def to_json(self) -> str:
        """The body of Kafka Connect's POST /connectors."""
        return json.dumps({"name": self.name, "config": self.config}, indent=2) + "\n"

    def command(self, file: str) -> str:
        return f"curl -X POST -H 'Content-Type: application/json' -d @{file} CONNECT/connectors"


def connector_of(piece: ScriptStatement) -> Connector | None:
    """The connector a statement is about, None when it is about something else."""
    words = [t.upper for t in piece.tokens[:3]]
    if words[:2] == ["DROP", "CONNECTOR"]:
        return Connector(_name(piece.tokens[2:]), dropped=True)
    if words[:1] == ["CREATE"] and words[1:2] in (["SOURCE"], ["SINK"]) and words[2:] == ["CONNECTOR"]:
        return Connector(_name(piece.tokens[3:]), words[1].lower(), _config(piece.tokens[3:]))
    return None


def _name(tokens: Sequence[Tok]) -> str:
    named = [t for t in tokens if t.upper not in ("IF", "NOT", "EXISTS")]
    if not named:
        return ""
    return named[0].upper or named[0].text


def _config(tokens: Sequence[Tok]) -> dict[str, str]:
    """`name = value` pairs of the parentheses; names keep their case."""
    return {
        tokens[i - 1].text: tokens[i + 1].text for i, t in enumerate(tokens) if t.text == "=" and i + 1 < len(tokens)
    }
