"""The public requests: what they answer, in which form, and how they say what is wrong."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from flowql.cli.render import json_value
from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.query.answer import Answer
from flowql.query.errors import INVALID, QueryError
from flowql.query.parameters import with_parameters
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.server import row_text
from flowql.server.app import ENTRIES
from flowql.server.host import Host
from flowql.server.openapi import document, public
from flowql.server.row_forms import CSV, LINES
from flowql.server.row_text import EXACT_MAX, csv_head, csv_rows, json_objects
from flowql.server.streaming import ARROW
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

SQL = """
CREATE STREAM S (K STRING KEY, V INT, D DECIMAL(9, 2), T TIMESTAMP, B BYTES, A ARRAY<BIGINT>) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL FROM S GROUP BY K;
"""
TOKEN = "t" * 16

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 64 << 20))
    made.start()
    made.service.deploy(plan_of(SQL))
    yield made
    made.close()


@pytest.fixture(scope="module")
def ask(host: Host) -> Iterator[Ask]:
    """A request to the port for programs on other machines."""
    with (
        gateway_of(host, ApiSettings(1, TOKEN)) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{port_of(gateway)}", trust_env=False, timeout=60) as client,
    ):

        def asked(method: str, path: str, **given: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {TOKEN}", **given.pop("headers", {})}
            return client.request(method, path, headers=headers, **given)

        yield asked
        assert host.engine.fatal is None


def query(ask: Ask, sql: str, *parameters: Any, accept: str | None = None) -> httpx.Response:
    headers = {} if accept is None else {"Accept": accept}
    return ask("POST", "/v1/query", json={"sql": sql, "parameters": list(parameters)}, headers=headers)


def test_an_answer_in_each_form(ask: Ask) -> None:
    sql = "SELECT range AS n, CAST(range AS DECIMAL(9, 2)) AS d, 'a,\"' || range AS s FROM range(2)"
    said = query(ask, sql)
    assert (said.status_code, said.headers["content-type"]) == (200, "application/json")
    document = said.json()
    assert document["columns"] == [
        {"name": "n", "type": "BIGINT"},
        {"name": "d", "type": "DECIMAL(9, 2)"},
        {"name": "s", "type": "STRING"},
    ]
    rows = [{"n": 0, "d": "0.00", "s": 'a,"0'}, {"n": 1, "d": "1.00", "s": 'a,"1'}]
    assert document["rows"] == rows
    assert document["commit"] > 0
    assert [json.loads(line) for line in query(ask, sql, accept=LINES).text.splitlines()] == rows
    assert list(csv.DictReader(io.StringIO(query(ask, sql, accept=CSV).text))) == [
        {n: str(v) for n, v in r.items()} for r in rows
    ]
    assert pa.ipc.open_stream(query(ask, sql, accept=ARROW).content).read_all().num_rows == 2


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "application/json"), ("", "application/json"), ("text/html, application/*;q=0.5", "application/json"),
        ("application/json;q=0.1, text/csv", CSV), ("text/csv;q=0, */*", "application/json"), ("TEXT/CSV; charset=utf-8", CSV),
        ("text/html", None), ("application/json;q=no", None), ("text/csv;q=0", None),
    ],
)  # fmt: skip
def test_the_form_is_negotiated(ask: Ask, accept: str, form: str | None) -> None:
    said = query(ask, "SELECT 1 AS x", accept=accept)
    if form is None:
        assert (said.status_code, said.json()["error"]["code"]) == (406, "FQ5307")
    else:
        assert said.headers["content-type"].partition(";")[0] == form


def test_an_answer_without_rows_is_whole(ask: Ask) -> None:
    sql = "SELECT range AS n FROM range(0)"
    assert query(ask, sql).json()["rows"] == []
    assert query(ask, sql, accept=LINES).text == ""
    assert query(ask, sql, accept=CSV).text == "n\n"


def test_a_long_answer_is_whole_in_each_form(ask: Ask) -> None:
    sql = "SELECT range AS n FROM range(100000)"
    want = list(range(100_000))
    assert [r["n"] for r in query(ask, sql).json()["rows"]] == want
    assert [json.loads(line)["n"] for line in query(ask, sql, accept=LINES).text.splitlines()] == want
    assert [int(n) for n in query(ask, sql, accept=CSV).text.splitlines()[1:]] == want


@pytest.mark.parametrize("accept", ["application/json", LINES, CSV])
def test_an_answer_that_fails_on_its_way_breaks_off(ask: Ask, accept: str) -> None:
    """No client may take the beginning for all of it."""
    sql = "SELECT CAST(CASE WHEN i = 150000 THEN 'x' ELSE '1' END AS INT) AS v FROM range(200000) t(i)"
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        query(ask, sql, accept=accept)


def test_an_answer_that_fails_before_it_is_sent_has_a_status(ask: Ask) -> None:
    for accept in ("application/json", LINES, CSV, ARROW):
        said = query(ask, "SELECT CAST('x' || range AS INT) AS v FROM range(3000)", accept=accept)
        assert (said.status_code, said.json()["error"]["code"]) == (400, INVALID), accept


def test_an_error_has_its_place(ask: Ask) -> None:
    error = query(ask, "SELECT *\n  FROM NOBODY").json()["error"]
    assert (error["code"], error["position"]) == ("FQ5103", {"line": 2, "column": 8})
    assert "NOBODY" in error["message"]
    error = query(ask, "SELECT $1 AS x, $2 AS y FROM NOBODY", "it's long", "and longer").json()["error"]
    assert error["position"] == {"line": 1, "column": 30}


def test_parameters_are_values_and_never_sql(ask: Ask) -> None:
    values: list[Any] = ["it's; DROP TABLE a --", "\\'", -5, 1.5, True, None, "$1", "", "\n"]
    sql = "SELECT " + ", ".join(f"${n + 1} AS v{n}" for n in range(len(values)))
    (row,) = query(ask, sql, *values).json()["rows"]
    assert [float(v) if n == 3 else v for n, v in enumerate(row.values())] == values
    for wrong, given in (
        ("SELECT $1", []),
        ("SELECT $2", [1]),
        ("SELECT 1", [1]),
        ("SELECT $1", [[1]]),
        ("SELECT $1", ["\0"]),
    ):
        said = query(ask, wrong, *given)
        assert (said.status_code, said.json()["error"]["code"]) == (400, INVALID), wrong


@pytest.mark.parametrize(
    "text",
    ["'$1'", '"$1"', "`$1`", "-- $1", "/* $1 */", "$$ $1 $$", "$t$ $1 $$ $t$", "a$1", "E'\\' $1'", "'it''s $1'"],
)
def test_quoted_text_and_comments_hold_no_parameters(text: str) -> None:
    assert with_parameters(text, []).sql == text
    assert with_parameters(f"$1 + {text}", [7]).sql == f"7 + {text}"


@pytest.mark.parametrize("values", [1, "x", [None] * 1_001])
def test_parameters_of_another_shape_are_malformed(ask: Ask, values: Any) -> None:
    said = ask("POST", "/v1/query", json={"sql": "SELECT $1", "parameters": values})
    assert (said.status_code, said.json()["error"]["code"]) == (400, "FQ5307")


def test_unknown_parameters_of_a_path_are_refused(ask: Ask) -> None:
    for path in ("/v1/status?details=1", "/v1/status?detail=maybe", "/v1/status?detail=1&detail=1", "/health?x=1"):
        said = ask("GET", path)
        assert (said.status_code, said.json()["error"]["code"]) == (400, "FQ5307"), path
    assert ask("GET", "/v1/status?detail").status_code == 200


def test_the_document_of_requests_is_valid_and_served(ask: Ask) -> None:
    served = ask("GET", "/v1/openapi.json").json()
    assert served == document(ENTRIES)
    assert {(m.upper(), p) for p, by_method in served["paths"].items() for m in by_method} == {
        (e.method, e.path) for e in public(ENTRIES)
    }
    for by_method in served["paths"].values():
        for operation in by_method.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                Draft202012Validator.check_schema(media["schema"])
    error = query(ask, "SELECT").json()
    Draft202012Validator(served["components"]["schemas"]["Error"]).validate(error)


def table() -> pa.Table:
    """Values of every type, with NULL in each column."""
    n, big = None, 1 << 62
    return pa.table(
        {
            "b": pa.array([True, n, False, n]),
            "i": pa.array([1, n, -1, 0], pa.int32()),
            "l": pa.array([EXACT_MAX, n, -EXACT_MAX, 0]),
            "d": pa.array([1.5, n, 1e300, -0.0]),
            "e": pa.array(["1.50", n, "-0.01", "0.00"]).cast(pa.decimal128(38, 2)),
            "s": pa.array(['é"\\\n\x01\u2028', n, "", "plain"]),
            "x": pa.array([b"\x00\xff", n, b"", b"abcd"]),
            "t": pa.array([0, n, 1_001, -1], pa.timestamp("ms")),
            "u": pa.array([0, n, 1, 1_000], pa.timestamp("us", "UTC")),
            "f": pa.array([253_402_300_800_000, n, -62_135_596_800_001, 0], pa.timestamp("ms")),
            "c": pa.array([0, n, 1_001, 86_399_999], pa.time32("ms")),
            "y": pa.array([0, n, -1, 20_000], pa.date32()),
            "a": pa.array([[1, n], n, [], [2]]),
            "aa": pa.array([[["x", n], []], n, [n], []]),
            "r": pa.array([{"p": 1.0, "q": n}, n, {"p": n, "q": "z"}, {"p": 0.5, "q": ""}]),
            "m": pa.array([[("k", 1), ('"', n)], n, [("z", 2)], [("é", big >> 10)]], pa.map_(pa.string(), pa.int64())),
            "g": pa.array(["x", n, "y", "x"]).dictionary_encode(),
            "z": pa.nulls(4),
        }
    )


@pytest.mark.parametrize("few", [0, row_text.FEW_ROWS])
@pytest.mark.parametrize(("start", "length"), [(0, 4), (1, 2), (3, 1), (0, 0)])
def test_rows_in_json_and_csv_are_those_of_the_command_line(
    start: int, length: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flowql.query.far_times import values_or_texts

    monkeypatch.setattr(row_text, "FEW_ROWS", few)
    (batch,) = table().combine_chunks().to_batches()
    batch = batch.slice(start, length)
    columns = {n: [json_value(v) for v in values_or_texts(batch.column(n))] for n in batch.schema.names}
    want = [{n: columns[n][i] for n in columns} for i in range(length)]
    assert json.loads(b"[" + json_objects(batch, ",") + b"]") == want
    shown = list(csv.DictReader(io.StringIO((csv_head(batch.schema.names) + csv_rows(batch)).decode(), newline="")))
    for row, given in zip(shown, want, strict=True):
        assert {n: v for n, v in row.items() if given[n] is None} == {n: "" for n in given if given[n] is None}
        assert [row[n] for n in ("e", "s", "x", "t", "g") if given[n] is not None] == [
            given[n] for n in ("e", "s", "x", "t", "g") if given[n] is not None
        ]


@pytest.mark.parametrize("few", [0, row_text.FEW_ROWS])
def test_numbers_that_json_or_its_readers_do_not_have_are_strings(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_text, "FEW_ROWS", few)
    whole = pa.array([EXACT_MAX + 1, -EXACT_MAX - 1, (1 << 63) - 1, EXACT_MAX])
    odd = pa.array([float("nan"), float("inf"), float("-inf"), 1.0])
    batch = pa.RecordBatch.from_arrays([whole, odd], names=["w", "o"])
    rows = json.loads(b"[" + json_objects(batch, ",") + b"]")
    assert [r["w"] for r in rows] == ["9007199254740992", "-9007199254740992", "9223372036854775807", EXACT_MAX]
    assert [r["o"] for r in rows] == ["NaN", "Infinity", "-Infinity", 1.0]
    assert csv_rows(batch).decode().splitlines()[0] == "9007199254740992,NaN"


def test_an_error_with_the_first_rows_is_raised_not_sent(host: Host, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first piece of a short answer was on its way when the second one failed."""
    schema = pa.schema({"v": pa.int64()})

    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([1])], schema=schema)
        raise QueryError("it fails", code=INVALID)

    monkeypatch.setattr(host.service, "query", lambda *_, **__: Answer(schema, failing()))  # type: ignore[arg-type]
    for accept in ("application/json", LINES, CSV):
        said = query(ask, "SELECT 1", accept=accept)
        assert (said.status_code, said.json()["error"]["message"]) == (400, "it fails"), accept


def written(ask: Ask, path: str, content: Any, kind: str = "application/json") -> httpx.Response:
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return ask("POST", path, content=content, headers={"Content-Type": kind})


def test_rows_of_json_are_read_as_their_columns(ask: Ask) -> None:
    rows = [
        {
            "k": "json",
            "v": 1,
            "d": "1.50",
            "t": "2026-01-02T03:04:05.678Z",
            "b": "AP8=",
            "a": [1, None, "9007199254740993"],
        },
        {"k": "json", "v": None, "d": 12345.67, "t": 1000, "a": []},
    ]
    assert written(ask, "/v1/streams/s/rows", rows).json()["rows"] == 2
    lines = b"\n".join(json.dumps(r).encode() for r in rows)
    for kind in (LINES, "", "application/x-www-form-urlencoded"):
        assert written(ask, "/v1/streams/S/rows", lines, kind).json()["rows"] == 2
    assert written(ask, "/v1/streams/S/rows", []).json() == {"rows": 0, "tick": ""}
    found = query(ask, "SELECT V, D, T, B, A FROM S WHERE K = 'json' ORDER BY V").json()["rows"]
    first = {"V": 1, "D": "1.50", "T": "2026-01-02T03:04:05.678Z", "B": "AP8=", "A": [1, None, "9007199254740993"]}
    second = {"V": None, "D": "12345.67", "T": "1970-01-01T00:00:01.000Z", "B": None, "A": []}
    assert found == [first] * 4 + [second] * 4


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b"", "FQ5307", "is empty"), (b"[", "FQ5307", "not JSON"), (b"3", "FQ5307", "a row is a JSON object"), (b'[{"K": "x"}, 3]', "FQ5307", "a row is"),
        (b'{"K": "x", "V": NaN}', "FQ5307", "NaN is not JSON"), (b'{"K": "\\ud800"}', "FQ5307", "surrogate"), (b"\xff", "FQ5307", "not JSON"),
        (b"[" * 100_000, "FQ5307", "not JSON"), (b'{"NOPE": 1}', "FQ5011", "has no column NOPE"), (b'{"K": "x", "k": "y"}', "FQ5011", "one column"),
        (b'{"K": "x", "V": 2147483648}', "FQ5011", "column V of S is INT"), (b'{"K": "x", "V": 1.5}', "FQ5011", "column V of S is INT"),
        (b'{"K": "x", "D": 1e400}', "FQ5011", "column D of S is DECIMAL"), (b'{"K": "x", "T": "yesterday"}', "FQ5011", "column T of S is TIMESTAMP"),
        (b'{"K": "x", "B": "*"}', "FQ5011", "column B of S is BYTES"), (b'{"K": "x", "A": {"x": 1}}', "FQ5011", "column A of S is ARRAY"),
    ],
)  # fmt: skip
def test_rows_that_are_none_are_refused_and_nothing_is_written(ask: Ask, body: bytes, code: str, says: str) -> None:
    before = query(ask, "SELECT COUNT(*) AS N FROM S").json()["rows"]
    said = written(ask, "/v1/streams/S/rows", body)
    assert (said.status_code, said.json()["error"]["code"]) == (400, code), said.text
    assert says in said.json()["error"]["message"]
    assert query(ask, "SELECT COUNT(*) AS N FROM S").json()["rows"] == before


def test_a_webhook_keeps_what_are_columns(ask: Ask) -> None:
    event = {"id": "evt_1", "k": "hook", "v": 7, "data": {"object": [1, {"deep": True}]}}
    assert written(ask, "/v1/streams/S/events", event).json()["rows"] == 1
    assert query(ask, "SELECT K, V, D FROM S WHERE K = 'hook'").json()["rows"] == [{"K": "hook", "V": 7, "D": None}]
    said = written(ask, "/v1/streams/S/events", {"nothing": 1})
    assert (said.status_code, said.json()["error"]["code"]) == (400, "FQ5011")


def test_a_body_of_another_type_or_too_long_is_refused(ask: Ask) -> None:
    said = written(ask, "/v1/streams/S/rows", b"<row/>", "text/xml")
    assert (said.status_code, said.json()["error"]["code"]) == (415, "FQ5307")
    said = written(ask, "/v1/streams/S/rows", b" " * (9 << 20))
    assert (said.status_code, said.json()["error"]["code"]) == (413, "FQ5307")
    assert written(ask, "/v1/streams/NOBODY/rows", []).status_code == 404


def test_rows_are_looked_up_by_columns(ask: Ask) -> None:
    written(ask, "/v1/streams/S/rows", [{"K": k, "V": v} for k, v in (("it's", 1), ("it's", 2), ("", 5), ("x&y=z", 6))])
    want = {"it's": 2, "": 1, "x&y=z": 1}
    until(lambda: query(ask, "SELECT COUNT(*) AS n FROM A WHERE K = 'x&y=z'").json()["rows"] == [{"n": 1}])
    for key, n in want.items():
        (row,) = ask("GET", "/v1/tables/a/rows", params={"k": key}).json()["rows"]
        assert (row["K"], row["N"]) == (key, n)
    assert ask("GET", "/v1/tables/A/rows", params={"K": "nobody"}).json()["rows"] == []
    assert ask("GET", "/v1/tables/A/rows", params={"K": "it's", "N": "3"}).json()["rows"] == []
    assert (
        ask("GET", "/v1/tables/A/rows", params={"N": "2"}, headers={"Accept": CSV}).text.splitlines()[0] == "K,N,TOTAL"
    )
    for params, status in (({"no": "1"}, 400), ({"N": "two"}, 400), ({"N": "1; DROP"}, 400), ({"K": "\0"}, 400)):
        assert ask("GET", "/v1/tables/A/rows", params=params).status_code == status, params
    assert ask("GET", "/v1/tables/NOBODY/rows").status_code == 404
    assert ask("GET", "/v1/tables/A/rows?K=1&K=2").status_code == 400


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.parametrize("path", ["/v1/streams/S/rows", "/v1/streams/S/events"])
def test_a_request_that_is_repeated_writes_once(host: Host, ask: Ask, path: str) -> None:
    """Also by another writer, as after a restart: the key is in the transaction of the rows."""
    key = f"key of {path}"

    def sent(rows: Any, key: str = key) -> httpx.Response:
        return ask("POST", path, json=rows, headers={"Idempotency-Key": key})

    def count() -> int:
        (row,) = query(ask, "SELECT COUNT(*) AS n FROM S WHERE K = $1", path).json()["rows"]
        return int(row["n"])

    rows = [{"K": path, "V": 1}, {"K": path, "V": 2}]
    assert [sent(rows).json()["rows"] for _ in range(3)] == [2] * 3
    assert host.listening is not None
    host.listening.rows._writer.close()
    assert sent(rows).json()["rows"] == 2
    assert count() == 2
    said = sent(rows[:1])
    assert (said.status_code, said.json()["error"]["code"]) == (422, "FQ5316")
    assert sent([{"K": path, "V": "wrong"}], "other").status_code == 400
    assert sent(rows[:1], "other").json()["rows"] == 1
    assert count() == 3
    for wrong in ("", "x" * 256):
        assert sent(rows, wrong).status_code == 400


def test_dead_letters_are_listed(host: Host, ask: Ask) -> None:
    assert host.listening is not None
    log = host.listening.rows._opened()
    bad = pa.RecordBatch.from_arrays(
        [pa.array([v], f.type) for v, f in zip((0, b"bad", b"{", None), PRODUCE_SCHEMA, strict=True)],
        schema=PRODUCE_SCHEMA,
    )
    producer = log.producer("test")
    producer.begin()
    producer.send(TopicPartition("s", 0), bad)
    producer.commit()
    producer.close()
    log.close()
    until(lambda: ask("GET", "/v1/dead-letters").json()["open"] == 1)
    (letter,) = ask("GET", "/v1/dead-letters").json()["dead_letters"]
    assert (letter["topic"], letter["key"], letter["value"]) == ("s", "bad", "{")
    assert ask("GET", "/v1/dead-letters?limit=0").json() == {"dead_letters": [], "open": 1}
    assert ask("GET", "/v1/dead-letters?limit=1001").status_code == 400
