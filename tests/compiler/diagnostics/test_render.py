"""How diagnostics look."""

from __future__ import annotations

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.render import render
from flowql.compiler.diagnostics.source import Span


def test_the_whole_form() -> None:
    line = "  JOIN shipments s ON s.order_id = o.order_id"
    d = Diagnostic(
        "FQ2103",
        "this stream-stream join has no time bound",
        Span("pipelines/quickstart/enrich.sql", 7, 3, 16, line),
        label="both inputs are unbounded",
        why="every row would have to be kept forever",
        help="add  WITHIN 1 HOUR",
    )
    assert render([d]).split("\n") == [
        "error[FQ2103]: this stream-stream join has no time bound",
        "  --> pipelines/quickstart/enrich.sql:7:3",
        " 7 |   JOIN shipments s ON s.order_id = o.order_id",
        "   |   ^^^^^^^^^^^^^^^^ both inputs are unbounded",
        "why:  every row would have to be kept forever",
        "help: add  WITHIN 1 HOUR        more: flowql explain FQ2103",
    ]


def test_without_a_place_or_help() -> None:
    d = Diagnostic("FQ3001", "there is no flowql.yaml here", severity="warning")
    assert render([d]) == "warning[FQ3001]: there is no flowql.yaml here\nmore: flowql explain FQ3001"


def test_a_long_span_stops_at_its_line_and_tabs_stay() -> None:
    d = Diagnostic("FQ1001", "t", Span("a.sql", 112, 3, 500, "\t\tSELECT a"))
    assert render([d]).split("\n")[2:4] == [" 112 | \t\tSELECT a", "     | \t\t^^^^^^^^"]


def test_a_span_behind_the_end_of_its_line_has_one_caret() -> None:
    d = Diagnostic("FQ1001", "t", Span("a.sql", 1, 9, 1, "SELECT a"))
    assert render([d]).split("\n")[3] == "   |         ^"


def test_several_are_separated_and_colour_only_adds_escapes() -> None:
    d = Diagnostic("FQ1001", "t", Span("a.sql", 1, 1, 1, "x"), why="w", help="h\ni")
    plain = render([d, d])
    assert plain.count("\n\nerror[FQ1001]") == 1
    assert "help: h\n      i        more:" in plain
    coloured = render([d, d], color=True)
    assert "\x1b[" in coloured
    for escape in ("\x1b[1;31m", "\x1b[34m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(escape, "")
    assert coloured == plain


def test_many_hints_of_one_code_share_a_line() -> None:
    hints = [Diagnostic("FQ2121", f"T{n} joins", Span("a.sql", n, 1, 1), severity="hint") for n in range(1, 7)]
    text = render([*hints, Diagnostic("FQ2001", "no table", severity="error")])
    assert text.count("hint[FQ2121]: T") == 3
    assert text.endswith("hint[FQ2121]: 3 more: a.sql:4, a.sql:5, a.sql:6")
    assert render([Diagnostic("FQ2001", f"no table {n}") for n in range(9)]).count("error[FQ2001]") == 9
