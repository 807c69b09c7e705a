"""Lineage: what is made of what, and pictures of it that people can read."""

import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.lineage import columns, graph, page, svg
from flowql.lineage.svg import lay_out
from tests.flowql.cli.conftest import flowql
from tests.flowql.query.harness import plan_of

__all__ = ["flowql"]

PROJECT = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ITEM STRING, AMOUNT DOUBLE, TAX DOUBLE) WITH (KAFKA_TOPIC='o', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE TABLE PEOPLE (ID STRING PRIMARY KEY, NAME STRING, CITY STRING) WITH (KAFKA_TOPIC='p', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM NAMED WITH (PRIORITY='high') AS
  SELECT O.CUSTOMER AS CUSTOMER, UCASE(P.NAME) AS NAME, P.CITY AS CITY, O.AMOUNT + O.TAX AS PAID
  FROM ORDERS O JOIN PEOPLE P ON O.CUSTOMER = P.ID WHERE O.ITEM <> 'none' EMIT CHANGES;
CREATE TABLE BY_CITY WITH (PRIORITY='batch') AS
  SELECT CITY, COUNT(*) AS N, SUM(PAID) AS PAID, LATEST_BY_OFFSET(NAME) AS LAST_ONE
  FROM NAMED WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY CITY EMIT CHANGES;
"""


def compiled(text=PROJECT):
    return plan_of(text)


def test_relations_and_queries():
    found = graph.of_plan(compiled())
    assert [(r.name, r.kind, r.declared) for r in found.relations] == [
        ("ORDERS", "stream", True),
        ("PEOPLE", "table", True),
        ("NAMED", "stream", False),
        ("BY_CITY", "table", False),
    ]
    named, by_city = found.flows
    assert (set(named.reads), named.writes, named.priority) == ({"ORDERS", "PEOPLE"}, "NAMED", "high")
    assert by_city.does[-1] == "aggregate, tumbling 1 h"
    assert found.upstream(["BY_CITY"]) == {"BY_CITY", "NAMED", "ORDERS", "PEOPLE"}
    assert found.downstream(["PEOPLE"]) == {"PEOPLE", "NAMED", "BY_CITY"}
    assert [r.name for r in found.around(["PEOPLE"]).relations] == ["ORDERS", "PEOPLE", "NAMED", "BY_CITY"], (
        "both sides"
    )


def test_a_column_comes_from_those_its_values_are_made_of():
    found = columns.of_plan(compiled()).comes_from
    assert found["NAMED", "NAME"] == {("PEOPLE", "NAME")}
    assert found["NAMED", "PAID"] == {("ORDERS", "AMOUNT"), ("ORDERS", "TAX")}
    assert found["NAMED", "CUSTOMER"] == {("ORDERS", "CUSTOMER"), ("PEOPLE", "ID")}, "both sides of the join's key"
    assert found["BY_CITY", "PAID"] == {("NAMED", "PAID")}
    assert found["BY_CITY", "N"] == frozenset(), "a count is made of no values"
    assert not any(("ORDERS", "ITEM") in origins for origins in found.values()), "a filter decides, it gives no values"
    assert set(columns.of_plan(compiled()).upstream(("BY_CITY", "LAST_ONE"))) == {
        ("BY_CITY", "LAST_ONE"),
        ("NAMED", "NAME"),
        ("PEOPLE", "NAME"),
    }
    assert set(columns.of_plan(compiled()).downstream(("ORDERS", "TAX"))) == {
        ("ORDERS", "TAX"),
        ("NAMED", "PAID"),
        ("BY_CITY", "PAID"),
    }


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60))
def test_boxes_never_touch_and_lines_go_right(n, pairs):
    names = [f"n{i}" for i in range(n)]
    edges = list(dict.fromkeys((f"n{a}", f"n{b}") for a, b in pairs if a < b < n))
    layout = lay_out(names, edges)
    taken = {}
    for name in names:
        taken.setdefault(layout.layer[name], []).append(layout.height[name])
    for a, b in edges:
        assert layout.layer[a] < layout.layer[b]
        assert len(layout.bends[a, b]) == layout.layer[b] - layout.layer[a] - 1
        for i, bend in enumerate(layout.bends[a, b], layout.layer[a] + 1):
            taken[i].append(bend)
    for heights in taken.values():
        assert all(after - before > 1 - 1e-6 for before, after in pairwise(sorted(heights)))
        assert min(heights) > -1e-6
        assert max(heights) <= layout.rows - 1 + 1e-6


def test_a_circle_of_inserts_is_drawn():
    layout = lay_out(["a", "b"], [("a", "b"), ("b", "a"), ("a", "a")])
    assert layout.layer == {"a": 0, "b": 1}
    assert layout.bends["b", "a"] == ()


def large(queries):
    """A project of so many queries over six topics, in chains and joins."""
    text = [
        f"CREATE STREAM SOURCE_{i} (ID STRING KEY, V BIGINT) WITH (KAFKA_TOPIC='s{i}', PARTITIONS=1, VALUE_FORMAT='JSON');"
        for i in range(6)
    ]
    for i in range(queries):
        below = f"SOURCE_{i % 6}" if i % 3 == 0 else f"STEP_{i - i % 3}"
        priority = ["critical", "high", "normal", "batch"][i % 4]
        text.append(
            f"CREATE STREAM STEP_{i} WITH (PRIORITY='{priority}') AS SELECT ID, V + {i} AS V FROM {below} EMIT CHANGES;"
        )
    return "\n".join(text)


def test_a_picture_of_fifty_queries_is_well_formed_and_no_box_lies_on_another():
    found = graph.of_plan(compiled(large(50)))
    root = ET.fromstring(svg.draw(found))
    boxes = [e for e in root.iter() if "box" in (e.get("class") or "").split()]
    assert {b.get("data-name") for b in boxes} == {r.name for r in found.relations}
    places = [tuple(map(float, b.get("transform")[len("translate(") : -1].split())) for b in boxes]
    for i, (x, y) in enumerate(places):
        for other_x, other_y in places[i + 1 :]:
            assert abs(x - other_x) >= svg.BOX_W or abs(y - other_y) >= svg.BOX_H
    width, height = (float(root.get(side)) for side in ("width", "height"))
    assert all(0 <= x <= width - svg.BOX_W and 0 <= y <= height - svg.BOX_H for x, y in places)
    assert len([e for e in root.iter() if "flow" in (e.get("class") or "").split()]) == 50


def test_names_that_look_like_markup_stay_names():
    plan = compiled(
        "CREATE STREAM `<b>&\"x` (ID STRING KEY, `</script>` STRING) WITH (KAFKA_TOPIC='t', PARTITIONS=1, VALUE_FORMAT='JSON');"
    )
    found, places = graph.of_plan(plan), columns.of_plan(plan)
    assert '<b>&"x' in {e.get("data-name") for e in ET.fromstring(svg.draw(found)).iter()}
    written = page.write("<p>", found, places)
    assert written.count("</script>") == 1
    assert "<title>&lt;p&gt;: lineage" in written
    assert '"&lt;b>&amp;&quot;x' in graph.mermaid(found)


def test_the_page_names_every_column_and_query():
    plan = compiled()
    written = page.write("shop", graph.of_plan(plan), columns.of_plan(plan), picked=("BY_CITY", "PAID"))
    data = json.loads(written.split("const DATA = ", 1)[1].split(";\n", 1)[0])
    assert data["relations"]["NAMED"]["queries"][0]["priority"] == "high"
    assert data["before"]['["BY_CITY","PAID"]'] == ['["NAMED","PAID"]']
    assert '["BY_CITY","PAID"]' in data["after"]['["NAMED","PAID"]']
    assert data["picked"] == ["BY_CITY", "PAID"]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [p.sql]\n")
    (tmp_path / "p.sql").write_text(PROJECT)
    return ("-p", str(tmp_path))


def test_the_verb(flowql, project, tmp_path):
    shown = flowql("lineage", *project)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[1].split()[:3] == ["NAMED", "ORDERS,", "PEOPLE"]
    tree = flowql("lineage", *project, "--column", "by_city.paid").out
    assert tree.splitlines() == [
        "BY_CITY.PAID",
        "└─ NAMED.PAID",
        "   ├─ ORDERS.AMOUNT",
        "   └─ ORDERS.TAX",
    ]
    data = json.loads(flowql("-o", "json", "lineage", *project, "PEOPLE").out)
    assert [q["writes"] for q in data["queries"]] == ["NAMED", "BY_CITY"]
    assert flowql("lineage", *project, "-o", "mermaid").out.startswith("flowchart LR\n")
    assert flowql("lineage", *project, "-o", "html", "-f", str(tmp_path / "l.html")).code == 0
    assert "<svg" in (tmp_path / "l.html").read_text()


def test_a_name_that_is_not_there(flowql, project):
    for arguments, said in [
        (("PEPOLE",), "did you mean `PEOPLE`"),
        (("-c", "NAMED.PAYED"), "did you mean `PAID`"),
        (("-c", "PAID"), "RELATION.COLUMN"),
    ]:
        shown = flowql("lineage", *project, *arguments)
        assert shown.code in (1, 2)
        assert said in shown.err


STANDARD = """
CREATE TABLE orders (customer TEXT, item TEXT, amount NUMERIC(10, 2), at TIMESTAMPTZ, WATERMARK FOR at AS at)
  WITH (kafka_topic = 'orders', partitions = 1, value_format = 'JSON');
CREATE MATERIALIZED VIEW tumbled AS SELECT customer, window_start, SUM(amount) AS spent, COUNT(*) AS n
  FROM TUMBLE(orders, at, INTERVAL '1 hour') GROUP BY customer, window_start;
CREATE MATERIALIZED VIEW hopped AS SELECT customer, window_start, SUM(amount) AS spent
  FROM HOP(orders, at, INTERVAL '30 minutes', INTERVAL '1 hour') GROUP BY customer, window_start;
CREATE MATERIALIZED VIEW cumulated AS SELECT customer, window_start, SUM(amount) AS spent
  FROM CUMULATE(orders, at, INTERVAL '30 minutes', INTERVAL '1 hour') GROUP BY customer, window_start;
CREATE MATERIALIZED VIEW sessions AS SELECT customer, window_start, SUM(amount) AS spent
  FROM SESSION(TABLE orders PARTITION BY customer, DESCRIPTOR(at), INTERVAL '1' HOUR) GROUP BY customer, window_start;
CREATE MATERIALIZED VIEW running AS SELECT customer, SUM(amount) OVER (PARTITION BY item ORDER BY at) AS spent FROM orders;
CREATE MATERIALIZED VIEW words AS SELECT customer AS word FROM orders UNION SELECT item FROM orders;
CREATE MATERIALIZED VIEW buyers AS SELECT customer AS word FROM orders EXCEPT SELECT item FROM orders;
CREATE MATERIALIZED VIEW greatest AS SELECT customer, MAX(spent) AS spent FROM tumbled GROUP BY customer;
"""


@pytest.mark.parametrize(
    ("column", "made_of"),
    [
        *((f"{view}.spent", {"orders.amount"}) for view in ("tumbled", "hopped", "cumulated", "sessions", "running")),
        *((f"{view}.customer", {"orders.customer"}) for view in ("tumbled", "hopped", "cumulated", "sessions")),
        *((f"{view}.window_start", {"orders.at"}) for view in ("tumbled", "hopped", "cumulated", "sessions")),
        ("tumbled.n", set()),
        ("words.word", {"orders.customer", "orders.item"}),
        ("buyers.word", {"orders.customer"}),
        ("greatest.spent", {"tumbled.spent", "orders.amount"}),
    ],
)
def test_columns_of_standard_views_come_through_windows_groups_and_sets(flowql, tmp_path, column, made_of):
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [p.sql]\ndialect: standard\n")
    (tmp_path / "p.sql").write_text(STANDARD)
    found = json.loads(flowql("lineage", "-p", str(tmp_path), "-c", column, "-o", "json").out)
    assert {".".join(place) for place in found["made_of"]} == made_of


def test_hidden_keys_are_no_columns_of_a_view(flowql, tmp_path):
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [p.sql]\ndialect: standard\n")
    (tmp_path / "p.sql").write_text(STANDARD)
    shown = flowql("lineage", "-p", str(tmp_path), "-c", "orders.at").out.splitlines()
    assert shown == [
        "orders.at",
        "",
        "goes into",
        *(
            f"{b} {v}.window_start"
            for b, v in zip(["├─", "├─", "├─", "└─"], ["cumulated", "hopped", "sessions", "tumbled"], strict=True)
        ),
    ]


def test_the_table_says_what_standard_views_do(flowql, tmp_path):
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [p.sql]\ndialect: standard\n")
    more = """
    CREATE TABLE items (name TEXT PRIMARY KEY, price INT);
    CREATE VIEW priced AS SELECT o.customer, i.price FROM orders o LEFT JOIN items i ON o.item = i.name;
    CREATE VIEW dearest AS SELECT name FROM items ORDER BY price DESC LIMIT 3;
    CREATE VIEW closed AS SELECT window_start, COUNT(*) AS n FROM TUMBLE(orders, at, INTERVAL '1 hour') GROUP BY window_start EMIT ON WINDOW CLOSE;
    CREATE VIEW recent AS SELECT customer FROM orders WHERE at > NOW() - INTERVAL '1' DAY;
    """
    (tmp_path / "p.sql").write_text(STANDARD + more)
    data = json.loads(flowql("-o", "json", "lineage", "-p", str(tmp_path)).out)
    found = {q["writes"]: q["does"] for q in data["queries"]}
    wanted = {
        "tumbled": ["repartition", "aggregate"],
        "running": ["window functions"],
        "words": ["distinct"],
        "buyers": ["except"],
        "priced": ["left join"],
        "dearest": ["top rows"],
        "closed": ["repartition", "aggregate, closed windows"],
        "recent": ["filter by the clock"],
    }
    assert {n: [d for d in found[n] if d != "filter"] for n in wanted} == wanted
