"""Every mistake has a code, a place and the names of the things involved."""

import pytest

from flowql.compiler.diagnostics.diagnostic import UnsupportedError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import Session
from tests.compiler.sql import mistakes, refused

SELECTS = [
    ("SELECT id, unknown FROM orders", "FQ2002", ["UNKNOWN", "SELECT"]),
    ("SELECT id, custmer FROM orders", "FQ2002", ["CUSTMER", "CUSTOMER"]),
    ("SELECT id, x.amount FROM orders", "FQ2001", ["X", "ORDERS"]),
    ("SELECT id, amount FROM oders", "FQ2001", ["ODERS", "ORDERS"]),
    ("SELECT id, y.* FROM orders", "FQ2001", ["Y"]),
    ("SELECT id, amount FROM orders WHERE amount", "FQ2007", ["WHERE", "AMOUNT", "DOUBLE"]),
    ("SELECT id, amount FROM orders WHERE customer > 3", "FQ2005", ["CUSTOMER", "STRING", "INT"]),
    ("SELECT id, amount FROM orders WHERE amount = NULL", "FQ2005", ["NULL", "IS NULL"]),
    ("SELECT id, amount FROM orders WHERE id IN (1, 'x')", "FQ2005", ["x"]),
    ("SELECT id, SUBSTRNG(customer, 1) AS s FROM orders", "FQ2006", ["SUBSTRNG", "SUBSTRING"]),
    ("SELECT id, ABS(customer) AS s FROM orders", "FQ2005", ["ABS", "STRING"]),
    ("SELECT id, CAST(items AS INT) AS s FROM orders", "FQ2005", ["ARRAY<INT>", "INT"]),
    ("SELECT id, customer->name AS s FROM orders", "FQ2005", ["CUSTOMER", "STRUCT"]),
    ("SELECT id, TRANSFORM(items, (x, y) => x) AS s FROM orders", "FQ2005", ["TRANSFORM"]),
    ("SELECT id, NULL AS n FROM orders", "FQ2005", ["N", "NULL"]),
    ("SELECT id, ROWTIME FROM orders", "FQ2008", ["ROWTIME"]),
    ("SELECT id, amount AS ROWOFFSET FROM orders", "FQ2008", ["ROWOFFSET"]),
    ("SELECT id, amount, customer AS amount FROM orders", "FQ2004", ["AMOUNT"]),
    ("SELECT amount FROM orders", "FQ2022", ["ID", "OUTPUT"]),
    ("SELECT id, id AS again, amount FROM orders", "FQ2023", ["ID", "AGAIN"]),
    ("SELECT id FROM orders", "FQ2024", []),
    ("SELECT id, amount FROM orders PARTITION BY customer", "FQ2022", ["CUSTOMER"]),
    ("SELECT id, COUNT(*) AS n FROM orders", "FQ2020", ["COUNT", "GROUP BY", "ID"]),
    ("SELECT id, amount FROM orders WHERE SUM(amount) > 1", "FQ2020", ["WHERE", "SUM"]),
    ("SELECT id, amount FROM orders EMIT FINAL", "FQ2025", ["EMIT FINAL"]),
    ("SELECT c.page, o.amount FROM orders o JOIN clicks c ON o.id = c.id", "FQ2103", ["WITHIN"]),
    ("SELECT c.page, o.amount FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", "FQ2022", ["O.ID", "C.ID"]),
    ("SELECT o.id, id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.id", "FQ2003", ["O.ID", "C.ID"]),
    ("SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = c.page", "FQ2030", ["O.ID", "C.PAGE"]),
    ("SELECT o.id, page FROM orders o JOIN clicks c WITHIN 1 HOUR ON o.id = 1", "FQ2030", ["1", "O.ID"]),
    ("SELECT name, amount FROM customers JOIN orders ON name = customer", "FQ2031", ["CUSTOMERS", "ORDERS"]),
    ("SELECT id, city FROM orders JOIN customers ON customer = city", "FQ2030", ["ORDERS.CUSTOMER", "CUSTOMERS.CITY"]),
    ("SELECT name, city FROM customers", "FQ2025", ["TABLE", "OUTPUT"]),
]


@pytest.mark.parametrize(("select", "code", "names"), SELECTS, ids=[s[0] for s in SELECTS])
def test_streams(select, code, names):
    refused(f"CREATE STREAM output AS {select};", code, *names)


TABLES = [
    ("SELECT customer, COUNT(*) AS n, amount FROM orders GROUP BY customer", "FQ2021", ["AMOUNT"]),
    ("SELECT COUNT(*) AS n FROM orders GROUP BY customer", "FQ2022", ["CUSTOMER", "OUTPUT"]),
    ("SELECT customer, customer AS c, COUNT(*) AS n FROM orders GROUP BY customer", "FQ2023", ["CUSTOMER", "C"]),
    ("SELECT customer, amount AS n FROM orders GROUP BY customer", "FQ2020", ["GROUP BY"]),
    ("SELECT customer, SUM(COUNT(*)) AS n FROM orders GROUP BY customer", "FQ2020", ["SUM", "COUNT"]),
    ("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer, orders.customer", "FQ2004", ["ORDERS.CUSTOMER"]),
    ("SELECT customer, COUNT(*) AS n FROM orders GROUP BY SUM(amount)", "FQ2020", ["GROUP BY", "SUM"]),
    ("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer HAVING id > 1", "FQ2021", ["HAVING", "ID"]),
    ("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer EMIT FINAL", "FQ2025", ["EMIT FINAL"]),
    (
        "SELECT customer, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY customer, WINDOWSTART",
        "FQ2020",
        ["WINDOWSTART"],
    ),
    ("SELECT city, LATEST_BY_OFFSET(age) AS n FROM customers GROUP BY city", "FQ2020", ["LATEST_BY_OFFSET"]),
    ("SELECT customer, COUNT(*) AS n FROM orders", "FQ2020", ["COUNT", "CUSTOMER"]),
    ("SELECT id, amount FROM orders", "FQ2025", ["STREAM", "OUTPUT"]),
    ("SELECT c.name, country FROM customers c JOIN cities t ON c.name = t.country", "FQ2030", ["C.NAME", "T.COUNTRY"]),
    ("SELECT c.name, country FROM customers c RIGHT JOIN cities t ON c.city = t.name", "FQ2031", ["RIGHT"]),
]


@pytest.mark.parametrize(("select", "code", "names"), TABLES, ids=[s[0] for s in TABLES])
def test_tables(select, code, names):
    refused(f"CREATE TABLE output AS {select};", code, *names)


SOURCES = [
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t');", "FQ2014", ["VALUE_FORMAT"]),
    ("CREATE STREAM s (a INT) WITH (value_format='JSON');", "FQ2014", ["KAFKA_TOPIC"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_fromat='JSON');", "FQ2010", ["VALUE_FROMAT", "KEY_FORMAT or VALUE_FORMAT"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='JSN');", "FQ2012", ["JSN", "JSON"]),
    ("CREATE STREAM s (a INT, b INT) WITH (kafka_topic='t', value_format='KAFKA');", "FQ2013", ["KAFKA", "A", "B"]),
    ("CREATE STREAM s (a ARRAY<INT>) WITH (kafka_topic='t', value_format='DELIMITED');", "FQ2013", ["ARRAY", "A"]),
    ("CREATE STREAM s (k MAP<STRING, INT> KEY, a INT) WITH (kafka_topic='t', format='JSON');", "FQ2013", ["K", "MAP"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='JSON', value_delimiter=';');", "FQ2011", ["JSON"]),
    ("CREATE TABLE o AS SELECT id, COUNT(*) AS n FROM orders WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 1 MILLISECOND) GROUP BY id;", "FQ2011", ["86,400,000", "10,000"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', format='JSON', key_format='JSON');", "FQ2011", ["KEY_FORMAT"]),
    ("CREATE TABLE s (a INT) WITH (kafka_topic='t', value_format='JSON');", "FQ2022", ["PRIMARY KEY"]),
    ("CREATE STREAM s (a INT, a INT) WITH (kafka_topic='t', value_format='JSON');", "FQ2004", ["A"]),
    ("CREATE STREAM s (rowtime INT) WITH (kafka_topic='t', value_format='JSON');", "FQ2008", ["ROWTIME"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='JSON', timestamp='b');", "FQ2002", ["B"]),
    ("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='JSON', timestamp='a');", "FQ2005", ["A", "INT"]),
    ("CREATE STREAM s (a INT, b INT) WITH (kafka_topic='t', value_format='JSON', wrap_single_value=true);", "FQ2011", ["WRAP_SINGLE_VALUE"]),
    ("CREATE STREAM s (a money) WITH (kafka_topic='t', value_format='JSON');", "FQ2001", ["MONEY"]),
    ("CREATE STREAM s (a INT HEADERS) WITH (kafka_topic='t', value_format='JSON');", "FQ2005", ["HEADERS", "INT"]),
    ("CREATE STREAM o WITH (priority='urgent') AS SELECT * FROM orders;", "FQ2011", ["URGENT", "CRITICAL"]),
    ("CREATE STREAM o WITH (latency_target='soon') AS SELECT * FROM orders;", "FQ2011", ["LATENCY_TARGET"]),
    ("INSERT INTO orders (id, colour) VALUES (1, 'x');", "FQ2002", ["COLOUR", "ORDERS"]),
    ("INSERT INTO orders (id, amount) VALUES (1);", "FQ2040", ["ORDERS"]),
    ("INSERT INTO orders (id, amount) VALUES ('x', 1.0);", "FQ2005", ["ID"]),
    ("INSERT INTO orders SELECT * FROM clicks;", "FQ2040", ["ORDERS", "PAGE"]),
    ("INSERT INTO customers SELECT id, customer FROM orders;", "FQ2040", ["CUSTOMERS", "TABLE"]),
    ("DROP STREAM nothing;", "FQ2001", ["NOTHING"]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "code", "names"), SOURCES, ids=[s[0] for s in SOURCES])
def test_statements(sql, code, names):
    refused(sql, code, *names)


def test_the_span_is_that_of_the_guilty_name():
    found = refused(
        "CREATE STREAM output AS SELECT id,\n  custmer FROM orders;",
        "FQ2002",
        prelude="CREATE STREAM orders (id INT KEY, customer STRING) WITH (kafka_topic='o', value_format='JSON');\n",
    )
    assert (found.span.line, found.span.column, found.span.length) == (3, 3, 7)


def test_all_mistakes_of_a_project_come_together():
    found = mistakes(
        "CREATE STREAM a AS SELECT nope FROM orders; CREATE STREAM b AS SELECT id FROM nowhere; CREATE STREAM c AS SELECT *, 1 / FROM orders;"
    )
    assert [d.code[:3] for d in found] == ["FQ1", "FQ2", "FQ2"]


def test_a_mistake_is_not_repeated_by_what_depends_on_it():
    found = mistakes("CREATE STREAM a AS SELECT nope FROM orders; CREATE STREAM b AS SELECT * FROM a;")
    assert [d.code for d in found] == ["FQ2002"]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE STREAM s AS SELECT DISTINCT customer FROM orders;",
    ],
)
def test_what_is_not_built_is_its_own_class(sql):
    session = Session()
    session.execute(
        SourceText(
            "a",
            "CREATE STREAM orders (id INT KEY, customer STRING) WITH (kafka_topic='o', value_format='JSON'); CREATE STREAM clicks (id INT KEY, customer STRING, page STRING) WITH (kafka_topic='c', value_format='JSON');",
        )
    )
    with pytest.raises(UnsupportedError) as caught:
        session.execute(SourceText("b", sql))
    assert caught.value.diagnostics[0].unsupported


def test_a_number_in_quotes_beside_a_number_is_told_to_stand_without_them():
    """It said that an explicit CAST might be needed."""
    find = "CREATE STREAM s AS SELECT id, customer FROM orders WHERE amount {};"
    assert refused(find.format("> '20.5'"), "FQ2005").help == "write the number without quotes: 20.5"
    assert refused(find.format("> 'much'"), "FQ2005").help == "you might need an explicit CAST"
    assert refused(find.format("> customer"), "FQ2005").help == "you might need an explicit CAST"


def test_a_case_without_else_is_shown_without_one():
    """It was shown with its last value as ELSE."""
    case = "CREATE TABLE t AS SELECT customer, CASE WHEN id > 1 THEN 'a' END AS c, COUNT(*) AS n FROM orders GROUP BY customer;"
    assert refused(case, "FQ2021").title.endswith("(CASE WHEN (ID > 1) THEN 'a' END)")
