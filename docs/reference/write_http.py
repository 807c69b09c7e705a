"""The page of HTTP requests, and the OpenAPI document, from the entries of the server."""

from __future__ import annotations

import json

from flowql.server.app import ENTRIES
from flowql.server.entries import Entry
from flowql.server.openapi import document, fields_shown, public

HEAD = """# HTTP requests

A target with `api` answers these requests. [HTTP](/docs/guide/http.md) explains how to use them. `GET /v1/openapi.json` returns them as an
[OpenAPI document](openapi.json). Requests under `/v1` stay compatible, except `details` of errors. New parameters, fields and requests may be added.

Optional parameters, and optional fields of a JSON body, are in brackets. *Role* is what a token needs; [with `results`](/docs/guide/http.md#give-rights) it also depends on the scope: a result, the relations of a SQL statement, or the whole target.

| Request | Role | Scope | Parameters and body | Purpose |
|---|---|---|---|---|
"""


def pages() -> dict[str, str]:
    rows = "\n".join(map(_row, public(ENTRIES)))
    made = json.dumps(document(ENTRIES), indent=1) + "\n"
    return {"http.md": f"{HEAD}{rows}\n", "openapi.json": made}


def _row(entry: Entry) -> str:
    given = [f"`?{p.name}`" if p.required else f"`[?{p.name}]`" for p in entry.parameters if p.where == "query"]
    given += [f"`[{p.name}]` header" for p in entry.parameters if p.where == "header"]
    given += ["`[?COLUMN=VALUE]`"] if entry.any_column else []
    given += ["as `POST /v1/deployments`"] if entry.path == "/v1/plan" and entry.body else []
    given += [f"`{name}`" for name in fields_shown(entry.body)] if entry.path != "/v1/plan" else []
    given += [f"a body of `{media}`" for media in entry.accepts]
    role = "any" if entry.scope == "none" else entry.action + (f", {entry.also}" if entry.also is not None else "")
    return f"| `{entry.method} {entry.path}` | {role} | {entry.scope} | {', '.join(given)} | {entry.about} |"
