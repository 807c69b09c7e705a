"""The part of a target that is about an instance on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item
from flowql.config.shape import Key, Secret, Text

_REFERENCE = "{env: FLOWQL_TOKEN}"
KEYS = {
    "url": Key(
        Text("a URL"), "Address of an instance on another machine with `api`, as https://shop.example.com:8321."
    ),
    "token": Key(Secret("a token"), f"With `url`: a token of its `api`, best as {_REFERENCE}."),
    "certificate": Key(
        Text("a file"),
        "With `url`: certificates to trust for https (PEM), relative to this file; default: the system's.",
    ),
}


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Where the instance is. token: may be a reference. certificate: absolute; empty for those that the system trusts."""

    url: str
    token: str = field(repr=False)
    certificate: str = ""


def remote_settings(name: str, given: Mapping[str, Item], root: Path) -> tuple[RemoteSettings | None, list[Diagnostic]]:
    """The settings, None without `url`, and what is wrong. name: of the target. given: all its keys. root: of relative files."""
    found = []
    if "url" not in given:
        for key in [k for k in ("token", "certificate") if k in given]:
            title = f"`{key}` is for targets with `url`, and target `{name}` has none"
            found.append(
                Diagnostic(
                    "FQ3003", title, given[key].key, "no meaning here", help="add  url: https://shop.example.com:8321"
                )
            )
        return None, found
    for key in given:
        if key not in (*KEYS, *SHARED):
            title = f"`{key}` is set where the instance of target `{name}` runs, which is at its `url`"
            found.append(Diagnostic("FQ3003", title, given[key].key, "no meaning here", help="remove it"))
    if "token" not in given:
        help_ = f"add  token: {_REFERENCE}"
        found.append(Diagnostic("FQ3006", f"`token` is missing in target `{name}`", given["url"].key, help=help_))
    values = {key: given[key].value for key in KEYS if key in given}
    if "certificate" in values:
        values["certificate"] = str((root / Path(values["certificate"]).expanduser()).resolve())
    return RemoteSettings(**{"token": "", **values}), found


SHARED = ("vars", "prefix")  # keys that concern what is compiled here
