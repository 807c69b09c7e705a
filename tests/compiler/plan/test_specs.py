"""Each operator of a plan: what must hold of it, and its line in `flowql explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import flowql.compiler.plan
from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    Frame,
    GroupAggregate,
    GroupCall,
    Over,
    SetOperation,
    SortKey,
    TemporalJoin,
    TopN,
    VersionJoin,
    WindowCall,
)
from flowql.compiler.plan.explain import expr_text, schema_text, spec_text, tree_text
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.logical import (
    Aggregate,
    AggregateCall,
    Explode,
    Filter,
    Format,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    Sink,
    Spec,
    TimestampSpec,
    Union,
    Window,
)
from flowql.compiler.plan.processors import Process, ProcessorStep
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.temporal_filters import DAY_MS, Edge, TemporalFilter
from flowql.compiler.plan.topology import ExchangeSink, ExchangeSource, Plan, QueryPlan
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, STRING, decimal
from flowql.compiler.plan.verify import PlanInvariantError, verify_spec
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed, Watermark

F_L, F_A, _ = LEFT = Schema((Field("L", INT, "key"), Field("A", BIGINT), Field("AT", BIGINT)))
F_R, F_B, _ = RIGHT = Schema((Field("R", STRING, "key"), Field("B", BIGINT), Field("BT", BIGINT)))
KEYED = Schema((Field("K", STRING, "key"), Field("V", INT), Field("D", DATE), Field("P", decimal(9, 2))))
OPTIONS = Schema((Field("G", INT, "key"), Field("N", BIGINT)))
A, V = Column(BIGINT, "A"), Column(INT, "V")
TRUE = Literal(BOOLEAN, True)
IS_A = Call(BOOLEAN, "gt", (A, Literal(INT, 1)))
N = GroupCall("N", "COUNT", (), BIGINT)
BOTH = (*LEFT, *RIGHT)


def with_fields(schema: Sequence[Field], *more: Field) -> Schema:
    return Schema((*schema, *more))


def over(frame: Frame, *order: str) -> tuple[Spec, list[Schema], Schema]:
    spec = Over(("K",), tuple(SortKey(c) for c in order), (WindowCall("S", "SUM", ("V",), BIGINT, frame),))
    return spec, [KEYED], with_fields(KEYED, Field("S", BIGINT))


def joined(spec: Spec, *side: Field) -> tuple[Spec, list[Schema], Schema]:
    keys = [f for f in BOTH if f.role == "key"]
    return spec, [LEFT, RIGHT], Schema((*keys, *side, *(f for f in BOTH if f.role != "key")))


SOUND: dict[str, tuple[Spec, list[Schema], Schema]] = {
    "project": (Project((NamedExpr("K", Column(STRING, "K")),)), [KEYED], Schema((Field("K", STRING, "key"),))),
    "filter": (Filter(IS_A), [LEFT], LEFT),
    "rekey": (Rekey((NamedExpr("K", Column(STRING, "K")),), True), [KEYED], KEYED),
    "aggregate": (Aggregate((AggregateCall("N", "COUNT", (), BIGINT),)), [KEYED], OPTIONS),
    "join": (Join("stream-table", "left", "L"), [LEFT, RIGHT], Schema((Field("L", INT, "key"), F_A, F_B))),
    "async": (
        AsyncMap((AsyncCall("C", "ask", ("A",), STRING),), "key"),
        [LEFT],
        with_fields(LEFT, Field("C", STRING)),
    ),
    "groups": (GroupAggregate(("V",), (N,), (Closing("V", 5),)), [KEYED], OPTIONS),
    "no keys": (GroupAggregate((), (N,)), [KEYED], Schema((Field("N", BIGINT),))),
    "inner": joined(EquiJoin("inner", ("A",), ("B",))),
    "full": joined(EquiJoin("full", ("A",), ("B",)), Field("SIDE", INT, "key")),
    "semi": (EquiJoin("semi", ("A",), ("B",)), [LEFT, RIGHT], LEFT),
    "temporal": joined(TemporalJoin("left", ("A",), ("B",))),
    "version": joined(VersionJoin("left", ("A",), ("B",), "AT", "BT", 1)),
    "distinct": (
        SetOperation("distinct"),
        [OPTIONS],
        Schema((Field("X", BIGINT, "key"), Field("N", BIGINT))),
    ),
    "except all": (
        SetOperation("except", all=True),
        [OPTIONS, Schema((Field("H", STRING, "key"), Field("M", BIGINT)))],
        Schema((Field("X", BIGINT, "key"), Field("COPY", INT, "key"), Field("N", BIGINT))),
    ),
    "top": (TopN(("V",), (SortKey("D"),), 3, rank="RANK"), [KEYED], with_fields(KEYED, Field("RANK", BIGINT))),
    "over rows": over(Frame("rows", -1, 0), "D", "V"),
    "over days": over(Frame("range", -2, 2), "D"),
    "over decimals": over(Frame("range", Decimal("-0.5"), None), "P"),
    "over all": over(Frame("range", None, None), "D", "V"),
    "over peers": over(Frame("range", 0, 0), "K"),
    "newest": (Consolidate(), [KEYED], KEYED),
    "closed": (EmitClosed((Closing("V", 5),)), [KEYED], KEYED),
    "clock": (TemporalFilter((Edge("D", DAY_MS),), (Edge("D", DAY_MS, 5),)), [KEYED], KEYED),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_operator(name: str) -> None:
    verify_spec(*SOUND[name], "Q")


def broken(name: str, *, spec: Spec | None = None, inputs: list[Schema] | None = None, schema: Any = None) -> Any:
    was, given, gives = SOUND[name]
    return spec or was, given if inputs is None else inputs, gives if schema is None else Schema(tuple(schema))


def changed(name: str, **fields_: Any) -> Any:
    return broken(name, spec=replace(SOUND[name][0], **fields_))  # type: ignore[type-var]


BROKEN: list[tuple[Any, str]] = [
    (broken("project", schema=[Field("K", INT, "key")]), "schema and columns differ"),
    (broken("project", schema=[Field("K", STRING), Field("K", STRING)]), "there twice"),
    (broken("filter", schema=[*LEFT, Field("Z", INT)]), "its input differ"),
    (changed("filter", predicate=A), "predicate is BIGINT"),
    (changed("filter", predicate=Call(BOOLEAN, "gt", (Column(INT, "Z"), A))), "reads \\['Z'\\]"),
    (changed("filter", predicate=Call(BOOLEAN, "f", (LambdaVar(INT, "X"),))), "outside its lambda"),
    (broken("filter", inputs=[]), "0 inputs, not 1"),
    (broken("filter", inputs=[LEFT, LEFT]), "2 inputs, not 1"),
    (broken("rekey", schema=[Field("K", STRING), Field("V", INT, "key")]), "keys and schema differ"),
    (broken("aggregate", inputs=[Schema((Field("V", INT),))]), "has no key"),
    (broken("join", schema=[Field("L", INT, "key"), Field("Z", INT)]), "come from no input"),
    (broken("join", inputs=[LEFT, Schema((Field("B", BIGINT),))]), "an input has no key"),
    (broken("join", inputs=[LEFT]), "1 inputs, not 2"),
    (broken("async", schema=LEFT), "schema and calls differ"),
    (changed("async", calls=(AsyncCall("C", "ask", ("Z",), STRING),)), "reads \\['Z'\\]"),
    (changed("groups", keys=("Z",), closing=()), "reads \\['Z'\\]"),
    (changed("groups", closing=(Closing("Z", 1),)), "reads \\['Z'\\]"),
    (changed("groups", calls=(replace(N, filter="Z"),)), "reads \\['Z'\\]"),
    (changed("groups", calls=(replace(N, order=(SortKey("Z"),)),)), "reads \\['Z'\\]"),
    (changed("groups", keys=("K",)), "not its groups"),
    (changed("groups", calls=(replace(N, type=INT),)), "schema and aggregates differ"),
    (changed("inner", left_keys=("L",)), "different types"),
    (broken("inner", inputs=[LEFT, LEFT]), "in both inputs"),
    (broken("inner", schema=[F_R, F_L, F_A]), "not its row identity"),
    (broken("inner", schema=[F_L, F_R, Field("Z", INT)]), "reads \\['Z'\\]"),
    (changed("inner", kind="full"), "which side is missing"),
    (changed("full", kind="left"), "which side is missing"),
    (broken("semi", schema=[*LEFT, F_B]), "reads \\['B'\\]"),
    (broken("semi", inputs=[LEFT]), "1 inputs, not 2"),
    (changed("version", left_time="BT"), "reads \\['BT'\\]"),
    (changed("version", right_time="AT"), "reads \\['AT'\\]"),
    (broken("distinct", inputs=[OPTIONS, OPTIONS]), "2 inputs, not 1"),
    (broken("distinct", schema=[Field("X", BIGINT, "key"), Field("N", INT)]), "schema and columns differ"),
    (broken("distinct", schema=[Field("X", INT, "key"), Field("N", BIGINT)]), "not its row identity"),
    (broken("except all", inputs=[OPTIONS, KEYED]), "different columns"),
    (broken("except all", inputs=[OPTIONS]), "1 inputs, not 2"),
    (changed("except all", all=False), "not its row identity"),
    (changed("top", order=(SortKey("Z"),)), "reads \\['Z'\\]"),
    (changed("top", rank=""), "columns"),
    (changed("over rows", keys=("Z",)), "reads \\['Z'\\]"),
    (broken("over rows", schema=KEYED), "columns"),
    (over(Frame("rows", 1, 0), "D"), "behind its end"),
    (over(Frame("rows", 1, -1), "D"), "behind its end"),
    (over(Frame("rows", 0, -1), "D"), "behind its end"),
    (over(Frame("rows", Decimal(-1), 0), "D"), "whole numbers"),
    (over(Frame("range", -1.5, 0), "D"), "not a distance"),
    (over(Frame("range", -1, 0), "D", "V"), "one ordered column"),
    (over(Frame("range", -1, 0), "K"), "one ordered column"),
    (over(Frame("range", -1, 0)), "one ordered column"),
    (broken("newest", schema=LEFT), "its input differ"),
    (changed("closed", columns=(Closing("Z", 5),)), "reads \\['Z'\\]"),
    ((Union(), [], KEYED), "0 inputs"),
    (broken("project", schema=[Field("K", NULL, "key")]), "has type"),
]


@pytest.mark.parametrize(("given", "message"), BROKEN)
def test_an_operator_that_cannot_be_right(given: tuple[Spec, list[Schema], Schema], message: str) -> None:
    with pytest.raises(PlanInvariantError, match=message):
        verify_spec(*given, "Q")


@pytest.mark.parametrize(
    "frame", [Frame("rows", -2, -1), Frame("rows", 1, 2), Frame("rows", 0, 0), Frame("rows", 1, 1)]
)
def test_frames_on_one_side_of_the_row(frame: Frame) -> None:
    verify_spec(*over(frame, "D"), "Q")


BY_D, CLOSED = (SortKey("D", descending=True, nulls_first=True), SortKey("V")), (Closing("V", 5), Closing("D", 0))
JSON, COMMAS, TABS = Format("JSON"), Format("DELIMITED"), Format("DELIMITED", delimiter="\t")
CALLED = WindowCall("S", "LAG", ("V",), INT, Frame("rows", None, 3), "OK", (2, "x"), ignore_nulls=True)
LINES: list[tuple[Any, str]] = [
    (Scan("S", "s", "stream", COMMAS, JSON), "Scan stream S (topic s, DELIMITED/JSON)"),
    (
        Scan("T", "t", "table", JSON, TABS, TimestampSpec("AT")),
        "Scan table T (topic t, JSON/DELIMITED('\\t'), time from AT)",
    ),
    (Sink("T", "t", "table", JSON, TABS), "Sink table T (topic t, JSON/DELIMITED('\\t'))"),
    (Project((NamedExpr("A", A), NamedExpr("C", IS_A))), "Project A, C := (A > 1)"),
    (Project((NamedExpr("A", A),), drop_failed=True), "Project A, failed rows dropped"),
    (Filter(IS_A), "Filter (A > 1)"),
    (Explode((NamedExpr("A", A),)), "Explode A"),
    (Explode((NamedExpr("A", A),), drop_failed=True), "Explode A, failed rows dropped"),
    (Rekey((NamedExpr("A", A),), False), "Rekey A"),
    (Rekey((NamedExpr("A", A),), True), "Rekey A, null keys dropped"),
    (Aggregate((AggregateCall("S", "SUM", (A,), BIGINT),)), "Aggregate S := SUM(A)"),
    (
        Aggregate((AggregateCall("N", "COUNT", (), BIGINT),), Window("hopping", 4, 2, 7), True, True, True),
        "Aggregate hopping 4 ms every 2 ms grace 7 ms N := COUNT(*), emit final, NULL is a group, empty groups go",
    ),
    (
        Aggregate((AggregateCall("N", "COUNT", (), BIGINT),), Window("session", 4, 4)),
        "Aggregate session 4 ms N := COUNT(*)",
    ),
    (Join("stream-table", "left", "L", 1, 2, 3), "Join left stream-table on key L"),
    (Join("stream-stream", "inner", "L", 1, 2), "Join inner stream-stream on key L within -1 ms +2 ms"),
    (Join("stream-stream", "inner", "L", 1, 2, 3), "Join inner stream-stream on key L within -1 ms +2 ms grace 3 ms"),
    (Materialise(), "Materialise"),
    (Union(), "Union"),
    (AsyncMap((AsyncCall("C", "ask", ("A", "B"), STRING),), "input"), "AsyncMap C := ask(A, B), in order"),
    (
        Process(
            "T@t:1",
            (
                ProcessorStep("a", "source"),
                ProcessorStep("b", "processor", ("a",), stores=("s", "t")),
                ProcessorStep("c", "sink", ("a", "b")),
            ),
            ("S",),
        ),
        "Process T: a -> b [s, t], a and b -> c",
    ),
    (ExchangeSink("r", JSON), "Repartition to r (JSON)"),
    (ExchangeSink("r", JSON, ("A", "B"), marks=True), "Repartition to r (JSON) by (A, B), with watermarks"),
    (ExchangeSource("r"), "Repartition from r"),
    (GroupAggregate((), (N,)), "GroupAggregate by () N := COUNT(*)"),
    (
        GroupAggregate(
            ("V",), (GroupCall("S", "STRING_AGG", ("K",), STRING, True, "OK", BY_D, (",",)),), CLOSED, appends=True
        ),
        "GroupAggregate by (V) S := STRING_AGG(distinct K, ',' order by D desc nulls first, V nulls last) filter OK, "
        "forgotten when the watermark is at V + 5 or D + 0, rows only come",
    ),
    (EquiJoin("inner", (), ()), "EquiJoin inner"),
    (
        EquiJoin("left", ("A", "AT"), ("B", "BT"), IS_A, closing=((Closing("A", 1),), (Closing("B", 2),))),
        "EquiJoin left on A = B AND AT = BT if (A > 1), forgotten when the watermark is at A + 1 or B + 2",
    ),
    (
        EquiJoin("inner", ("A",), ("B",), null_safe=True, appends=True),
        "EquiJoin inner on A IS NOT DISTINCT FROM B, rows only come",
    ),
    (TemporalJoin("left", ("A",), ("B",)), "TemporalJoin left on A = B"),
    (TemporalJoin("inner", (), (), IS_A), "TemporalJoin inner if (A > 1)"),
    (
        VersionJoin("left", ("A",), ("B",), "AT", "BT", 9),
        "VersionJoin left on A = B, newest BT <= AT at AT + 9 ms",
    ),
    (SetOperation("except", all=True), "SetOperation except all"),
    (SetOperation("distinct"), "SetOperation distinct"),
    (TopN((), (SortKey("D"),), None), "TopN row_number order by D nulls last"),
    (
        TopN(("K", "V"), BY_D, 3, 2, "rank", "R", CLOSED[:1], appends=True),
        "TopN rank as R per (K, V) order by D desc nulls first, V nulls last limit 3 offset 2, "
        "forgotten when the watermark is at V + 5, rows only come",
    ),
    (Over((), (), (WindowCall("S", "SUM", ("V",), BIGINT),)), "Over S := SUM(V)"),
    (
        Over(("K",), (SortKey("D"),), (CALLED,), CLOSED[:1]),
        "Over per (K) order by D nulls last S := LAG(V, 2, 'x') ignore nulls filter OK "
        "rows between unbounded preceding and 3 following, forgotten when the watermark is at V + 5",
    ),
    (
        Over((), (SortKey("D"),), (WindowCall("S", "SUM", ("V",), BIGINT, Frame("groups", -1, 0)),)),
        "Over order by D nulls last S := SUM(V) groups between 1 preceding and current row",
    ),
    (
        Over((), (SortKey("P"),), (WindowCall("S", "SUM", ("V",), BIGINT, Frame("range", 0, 0.5)),)),
        "Over order by P nulls last S := SUM(V) range between current row and 0.5 following",
    ),
    (Consolidate(), "Consolidate"),
    (Consolidate(appends=True), "Consolidate, rows only come"),
    (AppendOnly(), "AppendOnly"),
    (AppendOnly(Watermark("AT", 5)), "AppendOnly, at most 5 ms behind the latest AT"),
    (EmitClosed(CLOSED), "EmitClosed when the watermark is at V + 5 or D + 0"),
    (
        TemporalFilter(
            (Edge("D", DAY_MS, -5, "ceil"),), (Edge("AT", 1, 7, "", 1), Edge("D", DAY_MS, 0, "floor", DAY_MS))
        ),
        "TemporalFilter from midnight behind D - 5 ms, until AT + 7 ms + 1 ms, until midnight before D + 86400000 ms",
    ),
]


@pytest.mark.parametrize(("spec", "line"), LINES, ids=[line.split()[0] for _, line in LINES])
def test_the_line_of_an_operator(spec: Any, line: str) -> None:
    assert spec_text(spec) == line


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Literal(STRING, "it's"), '"it\'s"'),
        (Literal(INT, None), "NULL"),
        (Literal(DOUBLE, 1.5), "1.5"),
        (Lambda(NULL, ("x", "y"), Call(INT, "add", (LambdaVar(INT, "x"), LambdaVar(INT, "y")))), "(x, y) => (x + y)"),
        (Call(STRING, "cast", (A,)), "CAST(A AS STRING)"),
        (Call(INT, "field", (A, Literal(STRING, "f"))), "A->f"),
        (Call(INT, "subscript", (A, Literal(INT, 1))), "A[1]"),
        (Call(INT, "sql_sub", (A, V)), "(A - V)"),
        (Call(INT, "sub", (A,)), "sub(A)"),
        (Call(INT, "abs", (A,)), "abs(A)"),
    ],
)
def test_the_text_of_an_expression(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text


def test_the_text_of_a_schema() -> None:
    schema = Schema(
        (Field("K", INT, "key"), Field("W", BIGINT, "window"), Field("H", STRING, "header"), Field("V", INT))
    )
    assert schema_text(schema) == "(K INT KEY, W BIGINT WINDOW, H STRING HEADER, V INT)"


def test_the_tree_of_a_plan() -> None:
    below = Node(Consolidate(), (), LEFT, "retract")
    tree = Node(Union(), (below, Node(Filter(IS_A), (below,), LEFT, "upsert")), LEFT)
    schema = "(L INT KEY, A BIGINT, AT BIGINT)"
    assert tree_text(tree).splitlines() == [
        "Union",
        f"│  append {schema}",
        "├─ Consolidate",
        f"│     retract {schema}",
        "└─ Filter (A > 1)",
        f"      upsert {schema}",
        "   └─ Consolidate",
        f"         retract {schema}",
    ]


def test_a_plan_is_made_of_values_that_do_not_change() -> None:
    """Plans are shared between threads, compared and kept in sets: every class of them is frozen and has no other attributes.

    A schema keeps the names and the key that it derives from its fields, a plan its queries by their ids and topics, and a query its topic.
    """
    folder = Path(flowql.compiler.plan.__file__).parent
    modules = [import_module(f"flowql.compiler.plan.{p.stem}") for p in folder.glob("*.py") if p.stem != "__init__"]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__}
    of_plans = [c for c in classes if is_dataclass(c)]
    assert len(of_plans) > 60
    assert [c.__name__ for c in of_plans if not c.__dataclass_params__.frozen] == []  # type: ignore[attr-defined]
    assert {c for c in of_plans if "__slots__" not in vars(c)} == {Plan, QueryPlan, Schema}
    assert all(fields(c) for c in of_plans if c is not Materialise and c is not Union)
