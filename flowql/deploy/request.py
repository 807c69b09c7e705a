"""The options of a deployment request; the plan of the project travels beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flowql.compiler.plan.deployed import DEPLOY, About


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """Options of a deployment, sent as JSON to the instance.

    selected: ids of the queries to deploy; None: all. prune: remove queries that the project no longer has. refresh: ids of queries to rebuild
    although they did not change. rebuild: drop state of queries that no longer fits (Spark). accept_history: rebuild although the beginning of
    an input was deleted. forward: selected queries that changed continue with their new text, without a rebuild. about: for the history. shadow: rebuilt generations wait until they are promoted. backfills: one folder for each query that is rebuilt
    with a computed history (`flowql backfill`). without: ids of queries that are paused from this deployment on.
    """

    selected: tuple[str, ...] | None = None
    prune: bool = False
    refresh: tuple[str, ...] = ()
    rebuild: bool = False
    accept_history: bool = False
    forward: bool = False
    about: About = DEPLOY
    shadow: bool = False
    backfills: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> DeployRequest:
        """Ignores unknown keys: the sender may be an older or newer program."""
        known = {f: data[f] for f in cls.__slots__ if f in data}
        known |= {f: tuple(v) for f, v in known.items() if isinstance(v, list)}
        about = known.get("about", {"how": "deploy", "files": []})
        known["about"] = About(about["how"], tuple((name, digest) for name, digest in about["files"]))
        return cls(**known)


DEFAULT_REQUEST = DeployRequest()
