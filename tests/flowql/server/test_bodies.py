"""Bodies of requests: whatever is wrong with one is a 400 that names it, and none becomes larger than its limit says."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.server.app import ENTRIES
from flowql.server.arrow_bodies import ROWS_MAX, read_rows
from flowql.server.bodies import Malformed
from flowql.server.failures import MALFORMED
from flowql.server.frames import arrow_stream
from flowql.server.host import Host
from flowql.server.streaming import ARROW
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
"""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/query": {"sql": "SELECT $1 AS x", "parameters": [1], "engine": None},
    "/v1/execute": {"statements": "INSERT INTO S (K, V) VALUES ('a', 1);", "variables": {"x": "y"}},
    "/v1/returning": {"statements": "DELETE FROM S RETURNING V;", "variables": {}},
    "/v1/subscribe": {"sql": "A", "start": "earliest", "limit": 1},
    "/v1/deployments": {"plan": "{}", "selected": None, "prune": False, "refresh": [], "backfills": [], "about": {"how": "x", "files": []}},
    "/v1/plan": {"plan": "{}", "selected": ["CTAS_A"], "prune": True, "refresh": ["CTAS_A"], "forward": False},
    "/v1/priority": {"query": "A", "priority": "high", "weight": 2, "latency_target_ms": None},
    "/v1/pause": {"queries": ["A"], "paused": False},
    "/v1/promote": {"query": "A"},
    "/v1/abandon": {"query": None},
    "/v1/diff": {"result": "A"},
    "/v1/dead-letters/append": {"records": []},
    "/v1/dead-letters/replay": {"records": []},
}  # fmt: skip
REQUIRED = {
    "/v1/query": ["sql"], "/v1/execute": ["statements"], "/v1/returning": ["statements"],
    "/v1/subscribe": ["sql"], "/v1/deployments": ["plan"], "/v1/plan": ["plan"], "/v1/priority": ["query", "priority"],
    "/v1/pause": ["queries", "paused"], "/v1/promote": ["query"], "/v1/abandon": ["query"], "/v1/diff": ["result"],
    "/v1/dead-letters/append": ["records"], "/v1/dead-letters/replay": ["records"],
}  # fmt: skip
WRONG: list[Any] = [None, True, 3, -1, 2.5, 1e400, "x", "\ud800", [], [1], [["a"]], {}, {"a": 1}, {"\ud800": "x"}]

Post = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    """A request to the port for programs on other machines."""
    folder: Path = tmp_path_factory.mktemp("host")
    host = Host(Settings(folder, "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    with (
        gateway_of(host, ApiSettings(1, "t" * 16)) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{port_of(gateway)}", trust_env=False, timeout=60) as client,
    ):

        def post(path: str, **given: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {'t' * 16}", **given.pop("headers", {})}
            with client.stream("POST", path, headers=headers, **given) as said:
                if path != "/v1/subscribe" or said.status_code != 200:  # a subscription has no end
                    said.read()
            return said

        yield post
    host.close()


def test_each_request_with_a_json_body_is_tested_here() -> None:
    assert set(BODIES) == {e.path for e in ENTRIES if e.body is not None}


@pytest.mark.parametrize("path", BODIES)
def test_an_unknown_field_is_named(post: Post, path: str) -> None:
    said = post(path, json={**BODIES[path], "no such": 1})
    assert (said.status_code, said.json()["error"]["code"]) == (400, MALFORMED), said.text
    assert "the field `no such` is unknown" in said.json()["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
def test_a_missing_field_is_named(post: Post, path: str) -> None:
    """`POST /execute` without variables was answered by KeyError: 'variables'."""
    for name in REQUIRED[path]:
        said = post(path, json={k: v for k, v in BODIES[path].items() if k != name})
        assert (said.status_code, said.json()["error"]["code"]) == (400, MALFORMED), said.text
        assert said.json()["error"]["message"] == f"this request cannot be read: the field `{name}` is missing"


@pytest.mark.parametrize("path", BODIES)
def test_no_value_of_a_field_is_a_failure_of_the_instance(post: Post, path: str) -> None:
    """A lone surrogate in /execute was a 500, and so was a priority that is a number."""
    for name in BODIES[path]:
        for value in WRONG:
            text = _json({**BODIES[path], name: value})
            said = post(path, content=text)
            assert said.status_code in (200, 400, 404), (name, value, said.text)
            assert said.status_code == 200 or set(said.json()["error"]) >= {"code", "message", "position", "help"}
            if "ud800" in text.decode():
                assert (said.status_code, said.json()["error"]["code"]) == (400, MALFORMED)
                assert "\\ud800" in said.json()["error"]["message"]


def arrow(post: Post, content: bytes) -> httpx.Response:
    return post("/v1/streams/s/rows", content=content, headers={"Content-Type": ARROW})


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def test_damaged_arrow_is_a_400(post: Post) -> None:
    good = arrow_stream(pa.table({"k": ["a", "b"], "v": pa.array([1, 2], pa.int32())}))
    assert arrow(post, good).json()["rows"] == 2
    seed = 5
    rng = random.Random(seed)
    for _ in range(300):
        damaged = bytearray(good[: rng.randrange(1, len(good) + 1)])
        for _ in range(rng.choice([0, 1, 1, 3, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        said = arrow(post, bytes(damaged))
        assert said.status_code in (200, 400), f"seed {seed}: {bytes(damaged)!r}: {said.text}"
        assert said.status_code == 200 or said.json()["error"]["code"] in (MALFORMED, "FQ5011"), said.text


def compressed(rows: int) -> bytes:
    out = pa.BufferOutputStream()
    table = pa.table({"k": pa.array(["x" * 1_000] * rows)})
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def dictionary(bytes_each: int, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.array(["x" * bytes_each]))


def views(bytes_each: int, rows: int) -> pa.Array:
    """Strings that are the same bytes."""
    view = struct.pack("<i4sii", bytes_each, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(b"x" * bytes_each)]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


BOMBS = {
    "compressed": lambda: compressed(100_000),
    "nulls": lambda: arrow_stream(pa.table({"v": pa.nulls(1 << 24)})),
    "values of a list": lambda: arrow_stream(
        pa.table({"v": pa.LargeListArray.from_arrays(pa.array([0, 1 << 24], pa.int64()), pa.nulls(1 << 24))})
    ),
    "a dictionary": lambda: arrow_stream(pa.table({"k": dictionary(1 << 20, 1_000)})),
    "a dictionary in a list": lambda: arrow_stream(pa.table({"k": pa.ListArray.from_arrays([0, 9], dictionary(9, 9))})),
    "views": lambda: arrow_stream(pa.table({"k": views(100_000, 1_000)})),
    "runs": lambda: arrow_stream(
        pa.table({"v": pa.RunEndEncodedArray.from_arrays(pa.array([1_000_000], pa.int32()), pa.array(["x" * 1_000]))})
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_body_is_limited_by_what_it_unpacks_to(post: Post, name: str) -> None:
    bomb = BOMBS[name]()
    assert len(bomb) < 2 << 20
    said = arrow(post, bomb)
    assert (said.status_code, said.json()["error"]["code"]) == (400, MALFORMED), said.text
    assert "most" in said.text or "more than" in said.text or "not supported" in said.text


def test_rows_within_the_limits_are_read_in_every_form() -> None:
    assert read_rows(compressed(1_000), 2 << 20).num_rows == 1_000
    for array in (
        dictionary(100, 50),
        pa.array(["a", None, "x" * 50], pa.string_view()),
        pa.nulls(9),
        pa.array([[1], []]),
    ):
        table = pa.table({"v": array})
        assert read_rows(arrow_stream(table), 1 << 20) == table
    assert read_rows(arrow_stream(pa.table({"v": pa.nulls(ROWS_MAX)})), 1 << 20).num_rows == ROWS_MAX
    with pytest.raises(Malformed, match="more than 1,000,000 bytes"):
        read_rows(compressed(1_000), 1_000_000)


def test_a_content_encoding_is_refused(post: Post) -> None:
    """Nothing here unpacks bodies; one that is packed was called bad JSON."""
    body = gzip.compress(_json(BODIES["/v1/execute"]))
    said = post("/v1/execute", content=body, headers={"Content-Encoding": "gzip"})
    assert (said.status_code, said.json()["error"]["code"]) == (415, "FQ5308")
    assert "gzip" in said.json()["error"]["message"]
    assert post("/v1/execute", json=BODIES["/v1/execute"], headers={"Content-Encoding": "identity"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/execute", "/v1/returning", "/v1/subscribe", "/v1/query"])
def test_a_text_of_a_megabyte_is_refused(post: Post, path: str) -> None:
    """It was read and compiled, for many seconds, on the interpreter that all queries share."""
    large = f"SELECT {'1+' * 400_000}1 FROM S"
    match path:
        case "/v1/query":
            said = post(path, json={"sql": large})
        case "/v1/subscribe":
            said = post(path, json={**BODIES[path], "sql": large})
        case _:
            said = post(path, json={**BODIES[path], "statements": "UPDATE S SET V = 1; " * 2_000})
    assert (said.status_code, said.json()["error"]["code"]) == (400, "FQ2065"), said.text[:300]
