"""The part of a target that is about its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item
from flowql.config.shape import Key, Record, Secret

SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")

STATE = Record(
    "state",
    {
        "remote": Key(
            Secret("a URL or a folder"),
            "A folder, or a place in an object store (`s3:`, `gs:`, `az:`), that gets checkpoints of the state; a new machine begins with them.",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class StateSettings:
    """remote: URL of the store that gets checkpoints; empty for none."""

    remote: str = ""


def state_settings(given: Mapping[str, Item], root: Path) -> tuple[StateSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say. A folder is relative to `root`."""
    if "remote" not in given:
        return StateSettings(), []
    item = given["remote"]
    scheme, colon, _ = item.value.partition("://")
    if not colon:
        return StateSettings((root / Path(item.value).expanduser()).resolve().as_uri()), []
    if scheme in SCHEMES and "@" not in item.value:
        return StateSettings(item.value.rstrip("/")), []
    title = (
        f"`remote` is not a place that FlowQL can write to: {scheme}"
        if scheme not in SCHEMES
        else "`remote` has credentials in it"
    )
    note = "credentials come from the environment or the machine's role"
    help_ = f"write a folder, or a URL that begins with one of {', '.join(SCHEMES)}; {note}"
    return StateSettings(), [Diagnostic("FQ3004", title, item.span, "not a place", help=help_)]
