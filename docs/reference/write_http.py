"""The page of HTTP requests, and the OpenAPI document, from the entries of the server."""

from __future__ import annotations

import json

from flowql.server.app import ENTRIES
from flowql.server.entries import Entry
from flowql.server.openapi import document, fields_shown, public

HEAD = """# HTTP requests

A target with `api` answers these requests. [HTTP](/docs/guide/http.md) explains how to use them. `GET /v1/openapi.json` returns them as an
[OpenAPI document](openapi.json). Requests under `/v1` stay compatible; new parameters, fields and requests may be added.

Parameters of the query and fields of a JSON body that may be left out are in brackets. *Right* is what a token must permit.

| Request | Right | Parameters and body | Purpose |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    rows = "\n".join(map(_row, public(ENTRIES)))
    made = json.dumps(document(ENTRIES), indent=1) + "\n"
    return {"http.md": f"{HEAD}{rows}\n", "openapi.json": made}


def _row(entry: Entry) -> str:
    given = [f"`?{p.name}`" if p.required else f"`[?{p.name}]`" for p in entry.parameters if p.where == "query"]
    given += [f"`[{p.name}]` header" for p in entry.parameters if p.where == "header"]
    given += ["`[?COLUMN=VALUE]`"] if entry.any_column else []
    given += [f"`{name}`" for name in fields_shown(entry.body)]
    given += [f"a body of `{media}`" for media in entry.accepts]
    return f"| `{entry.method} {entry.path}` | {entry.action} | {', '.join(given)} | {entry.about} |"
