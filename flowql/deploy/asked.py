"""What is asked of a deployment, beside the project itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flowql.compiler.plan.deployed import DEPLOY, About


@dataclass(frozen=True, slots=True)
class Asked:
    """Travels as JSON to the instance.

    selected: ids of queries it is about; None for all. prune: remove queries that the project no longer has. refresh: ids of queries
    to rebuild although nothing changed. rebuild: throw away what queries kept that no longer fits (Spark). accept_history: rebuild although the beginning of
    an input is gone. forward: changed queries it is about go on with their new text; nothing is rebuilt. dry_run: change nothing.
    about: for the history. shadow: what is rebuilt waits until it is promoted. backfills: folders with the computed history of queries
    that are rebuilt (`flowql backfill`), one for each.
    """

    selected: tuple[str, ...] | None = None
    prune: bool = False
    refresh: tuple[str, ...] = ()
    rebuild: bool = False
    accept_history: bool = False
    forward: bool = False
    dry_run: bool = False
    about: About = DEPLOY
    shadow: bool = False
    backfills: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Asked:
        """What it does not know is left out: an older or newer program may ask."""
        known = {f: data[f] for f in cls.__slots__ if f in data}
        known |= {f: tuple(v) for f, v in known.items() if isinstance(v, list)}
        about = known.get("about", {"how": "deploy", "files": []})
        known["about"] = About(about["how"], tuple((name, digest) for name, digest in about["files"]))
        return cls(**known)


NOTHING_ELSE = Asked()
