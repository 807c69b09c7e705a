"""ALTER STREAM and TABLE: columns added behind those of a source."""

import pytest

from tests.compiler.sql import CUSTOMERS, ORDERS, columns, compiled, refused

BOTH = ORDERS + CUSTOMERS


def test_what_follows_sees_the_added_columns() -> None:
    text = """CREATE STREAM before AS SELECT * FROM orders;
        ALTER STREAM orders ADD COLUMN note STRING, ADD tags ARRAY<STRING>;
        CREATE STREAM after AS SELECT id, note, tags FROM orders;
        ALTER TABLE customers ADD COLUMN since DATE;"""
    sources = compiled(text, prelude=BOTH).catalog.sources
    assert columns(sources["BEFORE"].schema) == "ID INT KEY, CUSTOMER STRING, AMOUNT DOUBLE, ITEMS ARRAY<INT>"
    assert columns(sources["AFTER"].schema) == "ID INT KEY, NOTE STRING, TAGS ARRAY<STRING>"
    assert columns(sources["CUSTOMERS"].schema) == "NAME STRING KEY, CITY STRING, AGE INT, SINCE DATE"


def test_a_schema_is_written_anew() -> None:
    made = compiled(
        """CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format='AVRO'); ALTER STREAM s ADD COLUMN b INT;
        CREATE STREAM again WITH (kafka_topic='s', value_format='AVRO');""",
        prelude="",
    )
    assert columns(made.catalog.sources["AGAIN"].schema) == "A INT, B INT"


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("ALTER STREAM orders ADD COLUMN amount INT;", "FQ2004", "AMOUNT"),
        ("ALTER STREAM orders ADD COLUMN a INT, ADD COLUMN a INT;", "FQ2004", "A"),
        ("ALTER STREAM orders ADD COLUMN k INT KEY;", "FQ2025", "KEY"),
        ("ALTER STREAM orders DROP COLUMN amount;", "FQ1001", "ADD"),
        ("ALTER TABLE orders ADD COLUMN a INT;", "FQ2053", "STREAM"),
        ("ALTER STREAM nope ADD COLUMN a INT;", "FQ2001", "NOPE"),
        ("CREATE STREAM o AS SELECT * FROM orders; ALTER STREAM o ADD COLUMN a INT;", "FQ2052", "QUERIES"),
        (
            "CREATE SOURCE STREAM r (a INT) WITH (kafka_topic='r', value_format='JSON'); ALTER STREAM r ADD COLUMN b INT;",
            "FQ2052",
            "READ-ONLY",
        ),
        (
            "CREATE STREAM d (a INT) WITH (kafka_topic='d', value_format='DELIMITED'); ALTER STREAM d ADD COLUMN b ARRAY<INT>;",
            "FQ2013",
            "ARRAY",
        ),
        ("SHOW STREAMS;", "FQ2018", "SHELL"),
        ("SELECT * FROM orders EMIT CHANGES;", "FQ2018", "QUERY"),
    ],
)
def test_mistakes(sql: str, code: str, said: str) -> None:
    refused(sql, code, said, prelude=BOTH)
