"""`flowql test`: what passes, what fails, and in which words."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flowql.cli.app import main

PROJECT = """
CREATE STREAM ORDERS (ID INT KEY, AMOUNT INT, AT BIGINT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON',
  KEY_FORMAT='KAFKA', TIMESTAMP='AT', PARTITIONS=1);
CREATE TABLE USERS (ID INT PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON',
  KEY_FORMAT='KAFKA', PARTITIONS=1);
CREATE TABLE TOTALS AS SELECT ID, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY ID;
CREATE TABLE PER_HOUR AS SELECT ID, COUNT(*) AS N FROM ORDERS
  WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES) GROUP BY ID;
CREATE STREAM NAMED AS SELECT O.ID, U.NAME, O.AMOUNT FROM ORDERS O LEFT JOIN USERS U ON O.ID = U.ID;
"""
ORDER = "{ID: 1, AMOUNT: 5, AT: 0}"


class Suite:
    """A project in a folder, and what its tests say."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        (folder / "tests").mkdir()
        (folder / "flowql.yaml").write_text("name: shop\nsql: queries.sql\n")
        (folder / "queries.sql").write_text(PROJECT)

    def write(self, name: str, text: str) -> Path:
        file = self.folder / "tests" / name
        file.write_text(textwrap.dedent(text))
        return file

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["test", "-p", str(self.folder), *arguments])
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    def given(self, rows: str, expect: str, *more: str) -> str:
        lines = [f"given:\n  ORDERS: [{rows}]", f"expect:\n  {expect}", *more]
        self.write("one.yaml", "\n".join(lines))
        return self.run("--seed", "7")[1]


@pytest.fixture
def suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Suite:
    return Suite(tmp_path, capsys)


def test_rows_of_tables_and_streams_as_sets(suite: Suite) -> None:
    suite.write(
        "totals.yaml",
        """
        name: totals and names
        given:
          ORDERS:
            - {id: 1, AMOUNT: 5, AT: 3}
            - {ID: 2, AMOUNT: 7, AT: 3}
            - {ID: 1, AMOUNT: 6, AT: 4}
          USERS:
            - {ID: 1, NAME: ann}
            - {ID: 2, NAME: bob}
            - {ID: 2, TOMBSTONE: true, ROWTIME: 2}
        expect:
          TOTALS: [{ID: 2, TOTAL: 7}, {ID: 1, N: 2, TOTAL: 11}]
          NAMED: [{O_ID: 1, NAME: ann, AMOUNT: 6}, {O_ID: 2, NAME: null}, {O_ID: 1, NAME: ann, AMOUNT: 5, ROWTIME: 3}]
        """,
    )
    code, out, _ = suite.run()
    assert out.startswith("1 passed, 0 failed"), out
    assert code == 0


def test_records_in_order(suite: Suite) -> None:
    rows = "{ID: 1, AMOUNT: 5, AT: 0}, {ID: 1, AMOUNT: 6, AT: 1}"
    exact = "TOTALS: {order: exact, rows: [{ID: 1, N: 1, ROWTIME: 0}, {ID: 1, N: 2, ROWTIME: 1}]}"
    assert suite.given(rows, exact).startswith("1 passed")
    swapped = "TOTALS: {order: exact, rows: [{ID: 1, N: 2}, {ID: 1, N: 1}]}"
    out = suite.given(rows, swapped)
    assert "TOTALS: record 1 is another" in out
    assert "N: 2 expected, 1 found" in out
    out = suite.given(rows, "TOTALS: {order: exact, rows: [{ID: 1, N: 1}]}")
    assert "TOTALS: 1 records expected, 2 found" in out


def test_a_wrong_expectation_says_which_column(suite: Suite) -> None:
    out = suite.given(ORDER, "TOTALS: [{ID: 1, N: 2, TOTAL: 5}]")
    assert "TOTALS: 1 row expected, 1 found, 1 row missing" in out
    assert "N: 2 expected, 1 found" in out
    assert "TOTAL: 5" not in out
    out = suite.given(ORDER, "TOTALS: [{ID: 1, TOTL: 5}]")
    assert "TOTL: 5 expected, there is no such column; did you mean `TOTAL`?" in out
    out = suite.given(ORDER, "TOTLS: [{ID: 1}]")
    assert "there is no result `TOTLS`; did you mean `TOTALS`?" in out


def test_a_wrong_grace_is_named(suite: Suite) -> None:
    rows = "{ID: 1, AMOUNT: 5, AT: 0}, {ID: 1, AMOUNT: 5, AT: 7200000}, {ID: 1, AMOUNT: 5, AT: 1}"
    expect = "PER_HOUR: [{ID: 1, WINDOWSTART: 0, N: 2}, {ID: 1, WINDOWSTART: 7200000, N: 1}]"
    out = suite.given(rows, expect)
    assert "N: 2 expected, 1 found" in out
    assert "hint: CTAS_PER_HOUR dropped 1 late row" in out
    assert "GRACE PERIOD" in out


def test_an_order_dependence_is_named(suite: Suite) -> None:
    users = "  USERS: [{ID: 1, NAME: ann}]\n"
    text = f"given:\n  ORDERS: [{{ID: 1, AMOUNT: 5, AT: 10}}]\n{users}expect:\n  NAMED: [{{O_ID: 1, NAME: ann}}]\n"
    suite.write("one.yaml", text)
    assert suite.run()[1].startswith("1 passed")
    suite.write("one.yaml", text + "arrival: any\n")
    code, out, _ = suite.run()
    assert code == 1
    assert "NAME: ann expected, null found" in out
    assert "the result depends on how rows arrive" in out


def test_a_bad_record_is_named(suite: Suite) -> None:
    out = suite.given("{ID: 1, RAW: '{nonsense'}", "TOTALS: [{ID: 1}]")
    assert "hint: CTAS_TOTALS could not process orders[0] (FQ4020): not JSON" in out


def test_rows_that_cannot_be_written(suite: Suite) -> None:
    out = suite.given("{ID: 1, AMUONT: 5}", "TOTALS: []")
    assert "FQ5071" in out
    assert "ORDERS has no column `AMUONT`; did you mean `AMOUNT`?" in out


def test_mistakes_in_a_test_file_are_shown_at_their_place(suite: Suite) -> None:
    suite.write("bad.yaml", "name: x\ngivn:\n  ORDERS: []\nexpect:\n  TOTALS: {order: sorted, rows: []}\n")
    code, out, err = suite.run()
    assert code == 1
    assert not out
    assert "unknown key `givn`" in err
    assert "did you mean `given`?" in err
    assert "`order` must be any or exact" in err
    assert "bad.yaml:2:1" in err


@pytest.mark.parametrize(
    ("expected", "passes"),
    [
        ("FQ2002", True),
        ("{code: FQ2002, line: 2, column: 33}", True),
        ("{code: FQ2002, text: nope}", True),
        ("FQ2001", False),
        ("{code: FQ2002, line: 9}", False),
        ("{code: FQ2002, text: something else}", False),
    ],
)
def test_expected_mistakes(suite: Suite, expected: str, passes: bool) -> None:
    suite.write(
        "one.yaml",
        f"name: no such column\nwhen: CREATE STREAM X AS SELECT NOPE FROM ORDERS;\nexpect_error: {expected}\n",
    )
    code, out, _ = suite.run()
    assert (code == 0) is passes, out
    if not passes:
        assert "FQ2002" in out.split("found is")[1]


def test_a_mistake_that_is_not_made(suite: Suite) -> None:
    suite.write("one.yaml", "when: CREATE STREAM X AS SELECT ID, AMOUNT FROM ORDERS;\nexpect_error: FQ2002\n")
    assert "FQ2002 is expected, and the statements are accepted" in suite.run()[1]


def test_statements_of_a_test(suite: Suite) -> None:
    suite.write(
        "one.yaml",
        """
        when: CREATE TABLE DOUBLED AS SELECT ID, SUM(AMOUNT) * 2 AS D FROM ORDERS GROUP BY ID;
        given: {ORDERS: [{ID: 1, AMOUNT: 5, AT: 0}]}
        expect: {DOUBLED: [{ID: 1, D: 10}]}
        """,
    )
    assert suite.run()[1].startswith("1 passed")


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_no_pattern_holds_a_test_up(suite: Suite, dialect: str) -> None:
    """Python's `re` compares this record for ever."""
    (suite.folder / "flowql.yaml").write_text(f"name: shop\ndialect: {dialect}\nsql: queries.sql\n")
    call = r"v ~ '^([a-z]+\.?)+@'" if dialect == "standard" else r"REGEXP_LIKE(v, '^([a-z]+\.?)+@')"
    view = f"CREATE {'MATERIALIZED VIEW' if dialect == 'standard' else 'STREAM'} found AS SELECT v, {call} AS x FROM s"
    source = "CREATE STREAM s (v VARCHAR) WITH (kafka_topic = 's', partitions = 1, value_format = 'JSON');"
    (suite.folder / "queries.sql").write_text(f"{source}\n{view};\n")
    s, v, x, found = (n if dialect == "standard" else n.upper() for n in ("s", "v", "x", "found"))
    row = f"{v}: '{'a' * 40}!'"
    suite.write("one.yaml", f"given: {{{s}: [{{{row}}}]}}\nexpect: {{{found}: [{{{row}, {x}: false}}]}}\n")
    assert suite.run()[1].startswith("1 passed"), suite.run()


def test_state_of_a_store(suite: Suite) -> None:
    text = "given: {ORDERS: [{ID: 1, AMOUNT: 5, AT: 0}]}\nexpect_state: {TOTALS: [{ID: 1, N: %d}]}\n"
    suite.write("one.yaml", text % 1)
    assert suite.run()[1].startswith("1 passed")
    suite.write("one.yaml", text % 2)
    assert "N: 2 expected, 1 found" in suite.run()[1]


def test_sql_form(suite: Suite) -> None:
    suite.write(
        "one.sql",
        """
        --@test: totals
        INSERT INTO ORDERS (ID, AMOUNT, AT) VALUES (1, 5, 0), (1, -7, 1);
        ASSERT VALUES TOTALS (ID, TOTAL) VALUES (1, 5);
        ASSERT VALUES TOTALS (ID, TOTAL) VALUES (1, -2);
        --@test: a deleted row
        INSERT INTO USERS (ID, NAME, ROWTIME) VALUES (1, 'ann', 5);
        CREATE TABLE ANNS AS SELECT ID, NAME FROM USERS WHERE NAME = 'ann';
        INSERT INTO USERS (ID, NAME, ROWTIME) VALUES (1, 'bob', 6);
        ASSERT VALUES ANNS (ID, NAME, ROWTIME) VALUES (1, 'ann', 5);
        ASSERT NULL VALUES ANNS (ID) VALUES (1);
        --@test: a mistake
        --@expect_error: FQ2001 nowhere
        CREATE STREAM Y AS SELECT * FROM NOWHERE;
        --@test: wrong
        INSERT INTO ORDERS VALUES (1, 5, 0);
        ASSERT VALUES TOTALS VALUES (1, 1, 6);
        """,
    )
    _, out, err = suite.run("-o", "json")
    document = json.loads(out)
    assert [t["passed"] for t in document["tests"]] == [True, True, True, False], (out, err)
    assert "TOTAL: 6 expected, 5 found" in str(document["tests"][3]["findings"])


def test_update_rewrites_what_failed_and_nothing_else(suite: Suite) -> None:
    file = suite.write(
        "one.yaml",
        """
        # about totals
        given:
          ORDERS:
            - {ID: 1, AMOUNT: 5, AT: 0}   # a comment
        expect:
          TOTALS:
            - {ID: 1, N: 3}
          NAMED: [{AMOUNT: 5}]   # right
        """,
    )
    before = file.read_text()
    code, _, err = suite.run("--update")
    assert code == 0
    assert "1 expectation rewritten" in err
    assert file.read_text() == before.replace("{ID: 1, N: 3}", "{ID: 1, N: 1}")
    assert suite.run()[0] == 0


def test_a_decimal_keeps_all_its_digits(suite: Suite) -> None:
    (suite.folder / "queries.sql").write_text(
        "CREATE STREAM A (K INT KEY, D DECIMAL(24, 4)) WITH (KAFKA_TOPIC='a', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE STREAM B AS SELECT K, D AS X FROM A;"
    )
    given = """
        when: |
          INSERT INTO A VALUES (1, 9007199254740993.0001);
        expect:
          B: [{K: 1, X: %s}]
        """
    file = suite.write("one.yaml", given % "'9007199254740992.0000'")
    assert "9007199254740993.0001 found" in suite.run()[1]
    assert suite.run("--update")[0] == 0
    assert "X: '9007199254740993.0001'" in file.read_text()
    code, out, err = suite.run()
    assert code == 0, out + err


def test_a_pattern_chooses_tests(suite: Suite) -> None:
    suite.write("a.yaml", "name: early bird\nexpect: {TOTALS: []}\n")
    suite.write("b.yaml", "name: late bird\nexpect: {TOTALS: []}\n")
    assert suite.run("late")[1].startswith("1 passed")
    assert suite.run("*bird")[1].startswith("2 passed")
    code, _, err = suite.run("worm")
    assert code == 1
    assert "no test fits `worm`" in err


def test_junit_report(suite: Suite) -> None:
    suite.write("a.yaml", "name: wrong\nexpect: {TOTALS: [{ID: 1}]}\n")
    report = suite.folder / "report.xml"
    assert suite.run("--junit", str(report))[0] == 1
    root = ElementTree.parse(report).getroot()
    (case,) = root.iter("testcase")
    assert case.get("name") == "wrong"
    (failure,) = case.iter("failure")
    assert failure.get("message") == "TOTALS: 1 row expected, 0 found, 1 row missing"


def test_create_writes_a_test_that_passes(suite: Suite, tmp_path: Path) -> None:
    data = tmp_path / "orders.jsonl"
    data.write_text("".join(f'{{"ID": {i % 2}, "AMOUNT": {i}, "AT": {i}}}\n' for i in range(10)))
    with pytest.raises(SystemExit):
        main(["topic", "import", "-p", str(tmp_path), "orders", str(data), "--key", "ID"])
    suite._capsys.readouterr()
    code, text, err = suite.run("--create", "TOTALS", "--from", "orders", "--rows", "4")
    assert code == 0, err
    suite.write("made.yaml", text)
    assert "TOTAL: 2" in text
    code, out, err = suite.run()
    assert code == 0, out + err
    code, _, err = suite.run("--create", "TOTALS", "--from", "users")
    assert code == 1
    assert "CTAS_TOTALS does not read topic users" in err


def test_a_decimal_is_a_value_of_a_row_and_of_a_complaint(suite: Suite) -> None:
    """Named after a literal such as 5.00: it was no JSON, neither on its way in nor in the report of a failed test."""
    with (suite.folder / "queries.sql").open("a") as file:
        file.write(
            "CREATE STREAM PAID (ID INT KEY, SUM_ DECIMAL(6, 2)) WITH (KAFKA_TOPIC='paid', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE STREAM LARGE AS SELECT ID, SUM_ FROM PAID WHERE SUM_ > 5;"
        )
    insert = "INSERT INTO PAID (ID, SUM_) VALUES (1, 7.50);"
    suite.write("paid.sql", f"--@test: right\n{insert}\nASSERT VALUES LARGE (ID, SUM_) VALUES (1, 7.50);\n")
    assert "1 passed, 0 failed" in suite.run()[1]
    suite.write("paid.sql", f"--@test: wrong\n{insert}\nASSERT VALUES LARGE (ID, SUM_) VALUES (1, 7.51);\n")
    assert "SUM_: 7.51 expected, 7.50 found" in suite.run()[1]


def test_a_stream_that_is_inserted_into_is_a_result(suite: Suite) -> None:
    """Only what a CREATE ... AS makes was known as one."""
    with (suite.folder / "queries.sql").open("a") as file:
        file.write(
            "CREATE STREAM ALL_IDS (ID INT KEY, WHAT STRING) WITH (KAFKA_TOPIC='ids', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "INSERT INTO ALL_IDS SELECT ID, 'order' AS WHAT FROM ORDERS;"
        )
    suite.write(
        "ids.sql",
        "--@test: a\nINSERT INTO ORDERS (ID, AT) VALUES (4, 0);\nASSERT VALUES ALL_IDS (ID, WHAT) VALUES (4, 'order');\n",
    )
    assert "1 passed, 0 failed" in suite.run()[1]


def test_variables_of_a_test_in_sql(suite: Suite) -> None:
    """DEFINE was lost, as it is no statement that is left when the rows are taken out."""
    suite.write(
        "large.sql",
        "--@test: a\nDEFINE least = '5';\nCREATE STREAM LARGE AS SELECT ID, AMOUNT FROM ORDERS WHERE AMOUNT > ${least};\n"
        "INSERT INTO ORDERS (ID, AMOUNT, AT) VALUES (1, 5, 0), (2, 6, 0);\nASSERT VALUES LARGE (ID) VALUES (2);\n",
    )
    assert "1 passed, 0 failed" in suite.run()[1]


@pytest.mark.parametrize("form", ["JSON", "AVRO"])
def test_dates_and_times_are_written_as_texts(suite: Suite, form: str) -> None:
    """Records hold numbers in their place, which nobody knows by heart."""
    with (suite.folder / "queries.sql").open("a") as file:
        file.write(
            f"CREATE STREAM BORN (ID INT KEY, D DATE, L ARRAY<TIME>, S STRUCT<M TIMESTAMP>) WITH (KAFKA_TOPIC='born', VALUE_FORMAT='{form}', PARTITIONS=1);"
            "CREATE STREAM YOUNG AS SELECT ID, D, L, S->M AS M FROM BORN WHERE D > '2000-01-01';"
        )
    suite.write(
        "born.yaml",
        """
        given:
          BORN:
            - {ID: 1, D: 2001-02-03, L: ["14:30", null], S: {m: "2001-02-03T04:05:06Z"}}
            - {ID: 2, D: "1999-12-31"}
            - {ID: 3, D: 20000}
        expect:
          YOUNG:
            - {ID: 1, D: 2001-02-03, L: ["14:30", null], M: 2001-02-03T04:05:06Z}
            - {ID: 3, D: "2024-10-04"}
        """,
    )
    assert "1 passed, 0 failed" in suite.run()[1]
    suite.write("born.yaml", "given: {BORN: [{ID: 1, D: soon}]}\nexpect: {YOUNG: []}")
    assert "'soon' is not a" in suite.run()[1]


def test_columns_may_be_called_as_truth_values_of_yaml_are(suite: Suite) -> None:
    """`NO: l1` was the value of a column False."""
    with (suite.folder / "queries.sql").open("a") as file:
        file.write(
            "CREATE STREAM LOTS (ID INT KEY, NO STRING, S STRUCT<ON_ INT, Y INT>) WITH (KAFKA_TOPIC='lots', VALUE_FORMAT='JSON', PARTITIONS=1);"
            "CREATE STREAM NUMBERS AS SELECT ID, NO, S->Y AS Y FROM LOTS;"
        )
    suite.write("lots.yaml", "given: {LOTS: [{ID: 1, NO: l1, S: {Y: 5}}]}\nexpect: {NUMBERS: [{ID: 1, NO: l1, Y: 5}]}")
    assert "1 passed, 0 failed" in suite.run()[1]


def test_rows_of_tables_of_ones_own_are_given_or_inserted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = Suite(tmp_path, capsys)
    (tmp_path / "flowql.yaml").write_text("name: shop\ndialect: standard\nsql: queries.sql\n")
    (tmp_path / "queries.sql").write_text(
        "CREATE TABLE users (id INT PRIMARY KEY, city TEXT);\nCREATE TABLE notes (line TEXT);\n"
        "CREATE VIEW cities AS SELECT city, COUNT(*) AS n FROM users GROUP BY city;\n"
        "CREATE VIEW lines AS SELECT line, COUNT(*) AS n FROM notes GROUP BY line;\n"
    )
    suite.write(
        "own.yaml",
        """
        given:
          users: [{id: 1, city: Oslo}, {id: 2, city: Oslo}]
          notes: [{line: a}, {line: a}]
        expect:
          cities: [{city: Oslo, n: 2}]
          lines: [{line: a, n: 2}]
        """,
    )
    suite.write(
        "own.sql",
        """
        --@test: statements of the test
        INSERT INTO users VALUES (1, 'Oslo'), (2, 'Rome');
        DELETE FROM users WHERE id = 1;
        ASSERT VALUES cities (city, n) VALUES ('Rome', 1);
        """,
    )
    code, out, err = suite.run()
    assert code == 0, out + err
    suite.write(
        "gone.sql",
        "--@test: a row that is gone\nINSERT INTO users VALUES (1, 'Oslo');\nASSERT NULL VALUES cities (city) VALUES ('Oslo');\n",
    )
    code, out, err = suite.run()
    assert code == 1
    assert "cities is a view over tables, which is compared by its rows at the end" in out + err


def test_values_of_rows_are_expressions_of_the_dialect(suite: Suite) -> None:
    """They were bound as ksqlDB's, where the types of `::` have other names."""
    (suite.folder / "flowql.yaml").write_text("name: shop\nsql: queries.sql\ndialect: standard\n")
    (suite.folder / "queries.sql").write_text(
        "CREATE STREAM born (id INT KEY, d DATE, n NUMERIC(4, 1), b BOOLEAN) WITH (KAFKA_TOPIC='born', VALUE_FORMAT='JSON', PARTITIONS=1);"
        "CREATE STREAM young AS SELECT id, d, n, b FROM born WHERE n < 0;"
    )
    suite.write(
        "born.sql",
        "--@test: a\nINSERT INTO born VALUES (4::INT, DATE '2001-02-03', -2.5, (1 IS NOT NULL) IS TRUE);\n"
        "ASSERT VALUES young (id, d, n, b) VALUES (4::INT, '2001-02-03'::DATE, NUMERIC '-2.5', CASE 1 WHEN 1 THEN TRUE END);\n",
    )
    _, out, err = suite.run()
    assert "1 passed, 0 failed" in out, out + err


def test_a_failed_test_shows_times_as_other_commands_do(suite: Suite) -> None:
    """Milliseconds were shown for what the test had written as a time."""
    (suite.folder / "flowql.yaml").write_text("name: shop\nsql: queries.sql\ndialect: standard\n")
    (suite.folder / "queries.sql").write_text(
        "CREATE TABLE orders (id INT PRIMARY KEY, at TIMESTAMP, days DATE[]);\n"
        "CREATE VIEW seen AS SELECT id, at, days FROM orders;\n"
    )
    suite.write(
        "times.yaml",
        """
        given:
          orders: [{id: 1, at: '2024-01-02T03:04:05', days: ['2024-01-02']}]
        expect:
          seen: [{id: 1, at: '2024-01-02T03:04:06'}]
        """,
    )
    code, out, err = suite.run()
    assert code == 1, err
    assert "at: 2024-01-02T03:04:06 expected, 2024-01-02T03:04:05.000 found" in out
    assert 'at=2024-01-02T03:04:05.000 days=["2024-01-02"]' in out
