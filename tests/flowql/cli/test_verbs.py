"""What verbs print and exit with, against golden files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.compiler.plan import codec
from tests.flowql.cli.program import Program

Golden = Callable[[str, str], None]

BROKEN = {
    "flowql.yaml": """\
name: broken
sql: [orders.sql, missing.sql]
queries:
  - into: LARGE
    from: ORDERS
    select: [CUSTOMER, AMOUNT]
    where: AMOUNT > 'much'
  - sql: |
      CREATE STREAM TYPO AS
        SELECT CUSTOMER, AMONT
        FROM ORDERS;
targets:
  default: {engine: runtime, thread: 2}
""",
    "orders.sql": """\
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT DOUBLE)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT CUSTOMER, COUNT(*) AS N FORM ORDERS GROUP BY CUSTOMER;
""",
}


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def broken() -> None:
    for name, text in BROKEN.items():
        Path(name).write_text(text)


@pytest.fixture
def shop(flowql: Program) -> None:
    assert flowql("init", "shop", "--template", "ksqldb").code == 0


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("form", ["table", "json"])
def test_validate_shows_every_mistake_at_once(flowql: Program, golden: Golden, form: str) -> None:
    golden(f"cli/validate_broken_{form}.txt", str(flowql("validate", "-o", form)))


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("validate", ["validate"]),
        ("validate_json", ["validate", "-o", "json"]),
        ("explain", ["explain"]),
        ("explain_query", ["explain", "large_orders"]),
        ("explain_verbose", ["explain", "--verbose"]),
        ("explain_query_verbose", ["explain", "large_orders", "-v"]),
        ("explain_query_json", ["explain", "-s", "CSAS_LARGE_ORDERS", "-o", "json"]),
        ("explain_unknown", ["explain", "LARGE_ORDER"]),
        ("explain_code", ["explain", "fq2103"]),
        ("topic_ls_empty_json", ["topic", "ls", "-o", "json"]),
    ],
)
def test_output_is_as_agreed(flowql: Program, golden: Golden, name: str, arguments: list[str]) -> None:
    golden(f"cli/{name}.txt", str(flowql(*arguments, "-p", "shop")))


@pytest.mark.usefixtures("shop")
def test_explain_as_json_and_compile_are_the_plan(flowql: Program) -> None:
    explained, planned = flowql("explain", "-p", "shop", "-o", "json"), flowql("compile", "-p", "shop")
    assert (explained.code, explained.err, planned.err) == (0, "", "")
    assert json.loads(explained.out) == json.loads(planned.out)
    assert [q.id for q in codec.loads(planned.out).queries] == ["CSAS_LARGE_ORDERS", "CTAS_SPENT_PER_HOUR"]


@pytest.mark.usefixtures("shop")
def test_shared_options_may_stand_before_the_verb(flowql: Program) -> None:
    assert flowql("-p", "shop", "-o", "json", "validate").out == flowql("validate", "-p", "shop", "-o", "json").out
    assert flowql("-p", "nowhere", "validate", "-p", "shop").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["validate"], 1, "error[FQ3002]"),
        (["validate", "-p", "shop/nowhere"], 1, "error[FQ3002]: shop/nowhere does not exist"),
        (["validate", "-p", "shop", "-t", "prod"], 1, "error[FQ3009]"),
        (["explain", "FQ9999"], 1, "error[FQ5003]"),
        (["validate", "--bogus"], 2, "--bogus"),
        (["bogus"], 2, "bogus"),
        (["validate", "--var", "x"], 2, "NAME=VALUE"),
        (["validate", "-p", "shop", "-o", "arrow"], 2, "arrow"),
        (["validate", "-o", "xml"], 2, "xml"),
        (["init", "shop"], 1, "error[FQ5004]"),
        (["topic", "consume", "nothing", "-p", "shop"], 1, "error[FQ4002]"),
        (["topic", "consume", "orders", "--from", "soon", "-p", "shop"], 2, "--from"),
        (["topic", "import", "orders", "nothing.csv", "-p", "shop"], 2, "nothing.csv"),
        (["--help"], 0, ""),
        (["--version"], 0, ""),
    ],
)
@pytest.mark.usefixtures("shop")
def test_exit_codes(flowql: Program, arguments: list[str], code: int, says: str) -> None:
    done = flowql(*arguments)
    assert done.code == code, done
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("shop")
def test_a_bug_of_ours_says_so(flowql: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowql.cli.validate.read_project", lambda *a, **k: 1 // 0)
    monkeypatch.delenv("FLOWQL_DEBUG", raising=False)
    done = flowql("validate", "-p", "shop")
    assert (done.code, done.out) == (1, "")
    assert "error[FQ5000]: internal error: ZeroDivisionError" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("FLOWQL_DEBUG", "1")
    assert "Traceback" in flowql("validate", "-p", "shop").err


@pytest.mark.usefixtures("shop")
def test_the_sentences_of_init_begin_rightly(flowql: Program) -> None:
    readme = Path("shop/README.md").read_text()
    assert "flowql topic import orders orders.jsonl --key CUSTOMER --timestamp AT" in readme
    done = flowql(
        "topic", "import", "orders", "shop/orders.jsonl", "--key", "CUSTOMER", "--timestamp", "AT", "-p", "shop"
    )
    assert (done.code, done.out) == (0, "")
    consumed = flowql("topic", "consume", "ORDERS", "-p", "shop")
    assert len(consumed.out.splitlines()) == len(Path("shop/orders.jsonl").read_text().splitlines())
