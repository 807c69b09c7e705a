"""Each operator of streams in Python gives the plan that SQL gives: the same operators, names, stores and hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from flowql import HoppingWindow, SessionWindow, StreamsBuilder, TumblingWindow, col, fn, lit, when
from tests.compiler.streams.plans import compiled, parts_of, plan_of

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
Build = Callable[[StreamsBuilder], object]
CASES: dict[str, tuple[Build, str]] = {
    "filter": (
        lambda s: s.stream("ORDERS").filter(col("price") > 10).to("BIG"),
        "CREATE STREAM BIG AS SELECT * FROM ORDERS WHERE PRICE > 10;",
    ),
    "filters_in_a_row": (
        lambda s: s.stream("orders").filter(col("price") > 10).filter(col("quantity").is_in(1, 2)).to("big"),
        "CREATE STREAM BIG AS SELECT * FROM ORDERS WHERE PRICE > 10 AND QUANTITY IN (1, 2);",
    ),
    "map_values": (
        lambda s: s.stream("ORDERS").map_values("customer", total=col("price") * col("quantity")).to("T"),
        "CREATE STREAM T AS SELECT ID, CUSTOMER, PRICE * QUANTITY AS TOTAL FROM ORDERS;",
    ),
    "filter_and_map_values_are_one_query": (
        lambda s: (
            s.stream("ORDERS")
            .filter(col("price") > 10)
            .map_values("customer", "price", "quantity")
            .filter(col("customer") != 3)
            .map_values(total=col("price") * col("quantity"))
            .to("T")
        ),
        "CREATE STREAM T AS SELECT ID, PRICE * QUANTITY AS TOTAL FROM ORDERS WHERE PRICE > 10 AND CUSTOMER <> 3;",
    ),
    "with_columns": (
        lambda s: s.stream("SHIPMENTS").with_columns(state=fn.UCASE(col("state")), n=lit(1)).to("T"),
        "CREATE STREAM T AS SELECT SID, ORDER_ID, UCASE(STATE) AS STATE, 1 AS N FROM SHIPMENTS;",
    ),
    "a_copy_of_the_key": (
        lambda s: s.stream("SHIPMENTS").map_values(copy=col("sid")).to("T"),
        "CREATE STREAM T AS SELECT SID, AS_VALUE(SID) AS COPY FROM SHIPMENTS;",
    ),
    "flat_map_values": (
        lambda s: s.stream("ORDERS").flat_map_values(tag=col("tags")).to("T"),
        "CREATE STREAM T AS SELECT ID, EXPLODE(TAGS) AS TAG FROM ORDERS;",
    ),
    "map": (
        lambda s: s.stream("ORDERS").map(key="customer", total=col("price") * 2).to("T"),
        "CREATE STREAM T AS SELECT CUSTOMER, PRICE * 2 AS TOTAL FROM ORDERS PARTITION BY CUSTOMER;",
    ),
    "map_to_a_computed_key": (
        lambda s: s.stream("ORDERS").map("price", key={"city": col("ship").field("city")}).to("T"),
        "CREATE STREAM T AS SELECT SHIP->CITY AS CITY, PRICE FROM ORDERS PARTITION BY SHIP->CITY;",
    ),
    "select_key": (
        lambda s: s.stream("SHIPMENTS").select_key("order_id").to("T"),
        "CREATE STREAM T AS SELECT ORDER_ID, SID, STATE FROM SHIPMENTS PARTITION BY ORDER_ID;",
    ),
    "select_two_keys": (
        lambda s: s.stream("SHIPMENTS").select_key("order_id", "state").to("T", key_format="JSON"),
        "CREATE STREAM T WITH (KEY_FORMAT = 'JSON') AS SELECT ORDER_ID, STATE, SID FROM SHIPMENTS PARTITION BY ORDER_ID, STATE;",
    ),
    "merge": (
        lambda s: s.stream("SHIPMENTS").merge(s.stream("SHIPMENTS").filter(col("state") == "new")).to("T"),
        "CREATE STREAM T AS SELECT * FROM SHIPMENTS; INSERT INTO T SELECT * FROM SHIPMENTS WHERE STATE = 'new';",
    ),
    "to_what_exists": (
        lambda s: (
            s.stream("ORDERS").map_values("state", order_id=col("customer")).select_key(sid=col("id"))
            and s.stream("ORDERS")
            .map(key={"sid": col("id")}, state=col("state"), order_id=col("customer"))
            .to("SHIPMENTS")
        ),
        "INSERT INTO SHIPMENTS SELECT ID AS SID, CUSTOMER AS ORDER_ID, STATE FROM ORDERS PARTITION BY ID;",
    ),
    "through": (
        lambda s: s.stream("ORDERS").filter(col("price") > 1).through("A", partitions=3).map_values("price").to("B"),
        "CREATE STREAM A WITH (PARTITIONS = 3) AS SELECT * FROM ORDERS WHERE PRICE > 1;"
        "CREATE STREAM B AS SELECT ID, PRICE FROM A;",
    ),
    "repartition": (
        lambda s: s.stream("SHIPMENTS").repartition(5).filter(col("state") == "new").to("B"),
        "CREATE STREAM S_REPARTITION_1 WITH (PARTITIONS = 5) AS SELECT * FROM SHIPMENTS;"
        "CREATE STREAM B AS SELECT * FROM S_REPARTITION_1 WHERE STATE = 'new';",
    ),
    "branch": (
        lambda s: [
            b.to(n)
            for b, n in zip(s.stream("SHIPMENTS").branch(col("order_id") > 10, col("state") == "x"), "AB", strict=True)
        ],
        "CREATE STREAM A AS SELECT * FROM SHIPMENTS WHERE ORDER_ID > 10;"
        "CREATE STREAM B AS SELECT * FROM SHIPMENTS WHERE ORDER_ID > 10 IS DISTINCT FROM TRUE AND STATE = 'x';".replace(
            "ORDER_ID > 10 IS", "(ORDER_ID > 10) IS"
        ),
    ),
    "count": (
        lambda s: s.stream("ORDERS").group_by("customer").count().to("T"),
        "CREATE TABLE T AS SELECT CUSTOMER, COUNT(*) AS COUNT FROM ORDERS GROUP BY CUSTOMER;",
    ),
    "group_by_key": (
        lambda s: (
            s.stream("ORDERS").filter(col("price") > 1).group_by_key().aggregate(most=fn.MAX(col("price"))).to("T")
        ),
        "CREATE TABLE T AS SELECT ID, MAX(PRICE) AS MOST FROM ORDERS WHERE PRICE > 1 GROUP BY ID;",
    ),
    "group_by_an_expression": (
        lambda s: s.stream("ORDERS").group_by(city=col("ship").field("city")).aggregate(n=fn.COUNT()).to("T"),
        "CREATE TABLE T AS SELECT SHIP->CITY AS CITY, COUNT(*) AS N FROM ORDERS GROUP BY SHIP->CITY;",
    ),
    "a_new_key_is_the_group": (
        lambda s: s.stream("ORDERS").select_key("customer").group_by_key().aggregate(n=fn.COUNT()).to("T"),
        "CREATE TABLE T AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS GROUP BY CUSTOMER;",
    ),
    "having": (
        lambda s: (
            s.stream("ORDERS")
            .group_by("customer")
            .aggregate(n=fn.COUNT(), total=fn.SUM(col("price")))
            .filter(col("n") > 3)
            .map_values(mean=col("total") / col("n"))
            .to("T")
        ),
        "CREATE TABLE T AS SELECT CUSTOMER, SUM(PRICE) / COUNT(*) AS MEAN FROM ORDERS GROUP BY CUSTOMER HAVING COUNT(*) > 3;",
    ),
    "tumbling": (
        lambda s: (
            s.stream("ORDERS")
            .group_by("customer")
            .window(TumblingWindow(HOUR, grace=MINUTE))
            .aggregate(start=col("WINDOWSTART"), n=fn.COUNT())
            .to("T")
        ),
        "CREATE TABLE T AS SELECT CUSTOMER, WINDOWSTART AS START, COUNT(*) AS N FROM ORDERS"
        " WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE) GROUP BY CUSTOMER;",
    ),
    "hopping": (
        lambda s: (
            s.stream("ORDERS").group_by_key().window(HoppingWindow(HOUR, MINUTE, retention=HOUR * 24)).count().to("T")
        ),
        "CREATE TABLE T AS SELECT ID, COUNT(*) AS COUNT FROM ORDERS"
        " WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE, RETENTION 24 HOURS) GROUP BY ID;",
    ),
    "suppress": (
        lambda s: s.stream("ORDERS").group_by_key().window(SessionWindow(MINUTE)).count("N").suppress().to("T"),
        "CREATE TABLE T AS SELECT ID, COUNT(*) AS N FROM ORDERS WINDOW SESSION (1 MINUTE) GROUP BY ID EMIT FINAL;",
    ),
    "stream_table_join": (
        lambda s: s.stream("SHIPMENTS").join(s.table("LIMITS"), on="order_id").to("T"),
        "CREATE STREAM T AS SELECT SHIPMENTS.ORDER_ID AS ORDER_ID, SHIPMENTS.SID AS SID, SHIPMENTS.STATE AS STATE,"
        " LIMITS.CREDIT AS CREDIT FROM SHIPMENTS JOIN LIMITS ON SHIPMENTS.ORDER_ID = LIMITS.LID;",
    ),
    "stream_table_left_join_by_key": (
        lambda s: s.stream("SHIPMENTS").left_join(s.table("LIMITS")).map_values("credit").to("T"),
        "CREATE STREAM T AS SELECT SHIPMENTS.SID AS SID, LIMITS.CREDIT AS CREDIT"
        " FROM SHIPMENTS LEFT JOIN LIMITS ON SHIPMENTS.SID = LIMITS.LID;",
    ),
    "a_condition_behind_a_join": (
        lambda s: s.stream("SHIPMENTS").join(s.table("LIMITS")).filter(col("credit") > 5).map_values("credit").to("T"),
        "CREATE STREAM T AS SELECT SHIPMENTS.SID AS SID, LIMITS.CREDIT AS CREDIT"
        " FROM SHIPMENTS JOIN LIMITS ON SHIPMENTS.SID = LIMITS.LID WHERE LIMITS.CREDIT > 5;",
    ),
    "table_join": (
        lambda s: s.table("CUSTOMERS").join(s.table("LIMITS")).to("T"),
        "CREATE TABLE T AS SELECT CUSTOMERS.CID AS CID, CUSTOMERS.NAME AS NAME, CUSTOMERS.CITY AS CITY,"
        " CUSTOMERS.PARENT AS PARENT, LIMITS.CREDIT AS CREDIT FROM CUSTOMERS JOIN LIMITS ON CUSTOMERS.CID = LIMITS.LID;",
    ),
    "table_outer_join": (
        lambda s: s.table("CUSTOMERS").map_values("name").outer_join(s.table("LIMITS")).to("T"),
        "CREATE TABLE T AS SELECT ROWKEY AS CID, CUSTOMERS.NAME AS NAME, LIMITS.CREDIT AS CREDIT"
        " FROM CUSTOMERS FULL JOIN LIMITS ON CUSTOMERS.CID = LIMITS.LID;",
    ),
    "foreign_key_join": (
        lambda s: s.table("CUSTOMERS").left_join(s.table("LIMITS"), on="parent").to("T"),
        "CREATE TABLE T AS SELECT CUSTOMERS.CID AS CID, CUSTOMERS.NAME AS NAME, CUSTOMERS.CITY AS CITY,"
        " CUSTOMERS.PARENT AS PARENT, LIMITS.CREDIT AS CREDIT FROM CUSTOMERS LEFT JOIN LIMITS ON CUSTOMERS.PARENT = LIMITS.LID;",
    ),
    "windowed_join": (
        lambda s: (
            s.stream("ORDERS")
            .map_values("state")
            .join(s.stream("SHIPMENTS"), on=("id", "order_id"), within=(MINUTE, HOUR), grace=MINUTE)
            .to("T")
        ),
        "CREATE STREAM T AS SELECT ORDERS.ID AS ID, ORDERS.STATE AS STATE, SHIPMENTS.SID AS SID, SHIPMENTS.STATE AS STATE_RIGHT"
        " FROM ORDERS JOIN SHIPMENTS WITHIN (1 MINUTE, 1 HOUR) GRACE PERIOD 1 MINUTE"
        " ON ORDERS.ID = SHIPMENTS.ORDER_ID;",
    ),
    "windows_of_both_sides": (
        lambda s: (
            s.stream("ORDERS")
            .map_values("price")
            .window(HOUR)
            .left_join(s.stream("SHIPMENTS").window(MINUTE))
            .map_values("price", "state")
            .to("T")
        ),
        "CREATE STREAM T AS SELECT ORDERS.ID AS ID, ORDERS.PRICE AS PRICE, SHIPMENTS.STATE AS STATE"
        " FROM ORDERS LEFT JOIN SHIPMENTS WITHIN (1 MINUTE, 1 HOUR) ON ORDERS.ID = SHIPMENTS.SID;",
    ),
    "windowed_outer_join": (
        lambda s: (
            s.stream("ORDERS")
            .map_values("price")
            .outer_join(s.stream("SHIPMENTS"), within=HOUR)
            .map_values("price", "state")
            .to("T")
        ),
        "CREATE STREAM T AS SELECT ROWKEY AS ID, ORDERS.PRICE AS PRICE, SHIPMENTS.STATE AS STATE"
        " FROM ORDERS FULL JOIN SHIPMENTS WITHIN 1 HOUR ON ORDERS.ID = SHIPMENTS.SID;",
    ),
    "join_prior": (
        lambda s: (
            s.stream("ORDERS")
            .map_values("price")
            .window(HOUR)
            .join_prior(s.stream("SHIPMENTS").window(MINUTE))
            .map_values("price", "state")
            .to("T")
        ),
        "CREATE STREAM T AS SELECT ORDERS.ID AS ID, ORDERS.PRICE AS PRICE, SHIPMENTS.STATE AS STATE"
        " FROM ORDERS JOIN SHIPMENTS WITHIN (1 MINUTE, 0 SECONDS)"
        " ON ORDERS.ID = SHIPMENTS.SID AND SHIPMENTS.ROWTIME < ORDERS.ROWTIME;",
    ),
    "table_filter_and_group": (
        lambda s: s.table("CUSTOMERS").filter(col("name").is_not_null()).group_by("city").count("N").to("T"),
        "CREATE TABLE T AS SELECT CITY, COUNT(*) AS N FROM CUSTOMERS WHERE NAME IS NOT NULL GROUP BY CITY;",
    ),
    "to_table": (
        lambda s: s.stream("SHIPMENTS").to_table("LATEST").filter(col("state") == "done").to("T"),
        "CREATE TABLE LATEST (SID BIGINT PRIMARY KEY, ORDER_ID BIGINT, STATE STRING)"
        " WITH (KAFKA_TOPIC = 'shipments', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 2);"
        "CREATE TABLE T AS SELECT * FROM LATEST WHERE STATE = 'done';",
    ),
    "to_stream": (
        lambda s: s.table("LIMITS").to_stream("CHANGES").filter(col("credit") > 1).to("T"),
        "CREATE STREAM CHANGES (LID BIGINT KEY, CREDIT DOUBLE)"
        " WITH (KAFKA_TOPIC = 'limits', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', PARTITIONS = 2);"
        "CREATE STREAM T AS SELECT * FROM CHANGES WHERE CREDIT > 1;",
    ),
    "case": (
        lambda s: s.stream("ORDERS").map_values(size=when(col("price") > 9, "big").otherwise("small")).to("T"),
        "CREATE STREAM T AS SELECT ID, CASE WHEN PRICE > 9 THEN 'big' ELSE 'small' END AS SIZE FROM ORDERS;",
    ),
    "rowtime": (
        lambda s: (
            s.stream("ORDERS").filter(col("rowtime") > 5).map_values(at=col("ROWTIME"), p=col("ROWPARTITION")).to("T")
        ),
        "CREATE STREAM T AS SELECT ID, ROWTIME AS AT, ROWPARTITION AS P FROM ORDERS WHERE ROWTIME > 5;",
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_plan_is_that_of_sql(name: str) -> None:
    build, sql = CASES[name]
    builder = StreamsBuilder("S")
    build(builder)
    assert parts_of(plan_of("", builder)) == parts_of(plan_of(sql))


@dataclass
class Sale:
    amount: float
    tags: list[str]
    at: int | None


def test_declarations_are_those_of_sql() -> None:
    s = StreamsBuilder("S")
    sales = s.stream("SALES", topic="sales", key={"id": int}, value=Sale, partitions=4, timestamp="at")
    sales.filter(col("amount") > 1).to("LARGE", priority="high")
    s.table("RATES", topic="rates", key={"day": str}, value={"rate": float}, key_format="JSON").to("COPY")
    sql = """
    CREATE STREAM SALES (ID BIGINT KEY, AMOUNT DOUBLE, TAGS ARRAY<STRING>, AT BIGINT)
      WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 4, VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
    CREATE TABLE RATES (DAY STRING PRIMARY KEY, RATE DOUBLE) WITH (KAFKA_TOPIC = 'rates', VALUE_FORMAT = 'JSON', KEY_FORMAT = 'JSON');
    CREATE STREAM LARGE WITH (PRIORITY = 'high') AS SELECT * FROM SALES WHERE AMOUNT > 1;
    CREATE TABLE COPY AS SELECT * FROM RATES;
    """
    assert parts_of(plan_of("", s)) == parts_of(plan_of(sql))


def test_sql_and_python_read_each_other_in_any_order() -> None:
    s = StreamsBuilder("S")
    s.stream("CHEAP").map_values("price").to("PRICES")
    s.stream("ORDERS").filter(col("price") < 5).to("LOW")
    plan = plan_of(
        "CREATE STREAM CHEAP AS SELECT * FROM LOW WHERE PRICE < 2; CREATE STREAM Q AS SELECT * FROM PRICES;", s
    )
    assert [q.sink for q in plan.queries] == ["LOW", "CHEAP", "PRICES", "Q"]


def test_steps_without_state_are_part_of_each_query_that_reads_them() -> None:
    s = StreamsBuilder("S")
    dear = s.stream("ORDERS").filter(col("price") > 10).map_values("price", "customer")
    dear.map_values("price").to("A")
    dear.group_by("customer").count().to("B")
    assert [q.sink for q in plan_of("", s).queries] == ["A", "B"]


def test_rows_of_a_step_with_state_are_written_once_for_several_readers() -> None:
    s = StreamsBuilder("S")
    counts = s.stream("ORDERS").group_by("customer").count("N")
    counts.filter(col("n") > 5).to("MANY")
    s.stream("SHIPMENTS").join(counts.filter(col("n") > 1), on="order_id").to("J")
    plan = plan_of("", s)
    assert [q.sink for q in plan.queries] == ["S_COUNT_1", "MANY", "J"]
    assert "GROUP BY" not in plan.queries[1].sql + plan.queries[2].sql


def test_what_is_written_by_name_is_read_by_that() -> None:
    s = StreamsBuilder("S")
    counts = s.stream("ORDERS").group_by("customer").count("N")
    counts.filter(col("n") > 5).to("MANY")
    counts.to("COUNTS")
    plan = plan_of("", s)
    assert [q.sql for q in plan.queries][1] == "CREATE TABLE MANY AS SELECT * FROM COUNTS WHERE (N > 5) EMIT CHANGES"


def test_merged_streams_are_written_before_they_are_grouped() -> None:
    s = StreamsBuilder("S")
    both = s.stream("SHIPMENTS").merge(s.stream("SHIPMENTS").filter(col("state") == "x"))
    both.filter(col("order_id") > 1).group_by("state").count("N").to("T")
    plan = plan_of("", s)
    assert [(q.id, q.sink) for q in plan.queries] == [
        ("CSAS_S_FILTER_2", "S_FILTER_2"),
        ("INSERT_S_FILTER_2_1", "S_FILTER_2"),
        ("CTAS_T", "T"),
    ]


def test_options_are_those_of_the_builder_unless_an_output_has_its_own() -> None:
    s = StreamsBuilder("S", priority="critical", latency_target_ms=50, on_change="forward")
    s.stream("ORDERS").to("A")
    s.stream("ORDERS").to("B", priority="batch", on_change="rebuild")
    plan = plan_of("", s)
    found = [(q.priority, q.latency_target_ms, q.on_change) for q in plan.queries]
    assert found == [("critical", 50, "forward"), ("batch", 50, "rebuild")]


def test_an_unchanged_stream_keeps_its_operators_and_an_edited_function_changes_the_query() -> None:
    s = StreamsBuilder("S")
    s.stream("ORDERS").filter(lambda value: value["PRICE"] > 1).to("A")
    s.stream("ORDERS").filter(col("price") > 1).to("B")
    before = plan_of("", s)
    again = compiled("", s, previous=before).plan
    assert again == before
    t = StreamsBuilder("S", version="2")
    t.stream("ORDERS").filter(lambda value: value["PRICE"] > 1).to("A")
    t.stream("ORDERS").filter(col("price") > 1).to("B")
    edited = compiled("", t, previous=before).plan
    changed = [a.definition != b.definition for a, b in zip(before.queries, edited.queries, strict=True)]
    assert changed == [True, False]


def test_an_existing_stream_has_other_rows_than_the_step_that_is_written_to_it() -> None:
    s = StreamsBuilder("S")
    joined = s.stream("SHIPMENTS").join(s.table("LIMITS")).map_values("order_id", state=lit("joined"))
    both = s.stream("SHIPMENTS").join(s.table("LIMITS"))
    both.to("ORDERS_OF_ALL")
    s.stream("SHIPMENTS").left_join(s.table("LIMITS")).to("ORDERS_OF_ALL")
    both.filter(col("credit") > 1).to("A")
    joined.to("SHIPMENTS")
    plan = plan_of("", s)
    assert [(q.id, "FROM S_JOIN_2" in q.sql) for q in plan.queries] == [
        ("CSAS_S_JOIN_2", False),
        ("CSAS_ORDERS_OF_ALL", True),
        ("INSERT_ORDERS_OF_ALL_1", False),
        ("CSAS_A", True),
        ("INSERT_SHIPMENTS_1", False),
    ]


def test_windowed_tables_are_read_with_their_bounds() -> None:
    s = StreamsBuilder("S")
    hourly = s.stream("ORDERS").group_by("customer").window(TumblingWindow(HOUR)).count("N").through("HOURLY")
    hourly.filter(col("WINDOWSTART") > 0).map_values("n", start=col("WINDOWSTART")).to("T")
    sql = """
    CREATE TABLE HOURLY AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CUSTOMER;
    CREATE TABLE T AS SELECT CUSTOMER, N, WINDOWSTART AS START FROM HOURLY WHERE WINDOWSTART > 0;
    """
    assert parts_of(plan_of("", s)) == parts_of(plan_of(sql))


STANDARD = "CREATE TABLE orders (id BIGINT, price DOUBLE PRECISION) APPEND ONLY WITH (KAFKA_TOPIC = 'o', VALUE_FORMAT = 'JSON');"


def test_a_project_of_standard_sql_folds_to_small_letters() -> None:
    s = StreamsBuilder("S")
    dear, others = s.stream("ORDERS").branch(col("Price") > 1, lit(True))
    dear.map_values(total=col("price").cast("numeric(10, 2)"), mean=fn.round(col("price"))).to("big")
    others.map_values(lambda value: {"Double": value["price"] * 2}, value={"Double": float}).to("small")
    plan = plan_of(
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM big WHERE total > 1;", s, sources=STANDARD, dialect="standard"
    )
    assert {x.name: x.schema.names for x in plan.sources if x.name in ("big", "small", "w")} == {
        "big": ("total", "mean"),
        "small": ("double",),
        "w": ("total", "mean"),
    }


def test_relations_of_standard_sql_are_refused() -> None:
    s = StreamsBuilder("S")
    s.table("own").to("copy")
    made = compiled("", s, sources="CREATE TABLE own (id INT PRIMARY KEY, a TEXT);", dialect="standard")
    assert [(d.code, d.unsupported) for d in made.diagnostics] == [("FQ2090", True)]
    assert "CREATE MATERIALIZED VIEW ... FROM own" in made.diagnostics[0].help


def test_a_project_changes_from_sql_to_python_without_a_rebuild() -> None:
    before = plan_of("CREATE STREAM GROSS AS SELECT ID, PRICE * 1.19e0 AS GROSS FROM ORDERS WHERE PRICE >= 100;")
    s = StreamsBuilder("S")
    s.stream("ORDERS").filter(col("price") >= 100).map_values(gross=col("price") * 1.19).to("GROSS")
    assert compiled("", s, previous=before).plan.queries == before.queries
