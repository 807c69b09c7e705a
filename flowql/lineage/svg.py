"""The graph as an SVG picture that stands alone: light or dark as its viewer, names in full as tooltips."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from xml.sax.saxutils import escape, quoteattr

from flowql.lineage.graph import Flow, Graph, Relation
from flowql.lineage.layout import Edge, GraphLayout, lay_out

BOX_W, BOX_H, GAP_X, GAP_Y, EDGE = 230, 48, 90, 16, 24
LEGEND_H = 34
_NAME_MAX, _LINE_MAX = 26, 37  # characters that fit into a box
PRIORITIES = ("critical", "high", "normal", "batch")

STYLE = """
.lineage { --paper:#fff; --ink:#1d2530; --soft:#5b6675; --line:#9aa5b4; --box:#f4f6f9; --source:#e7f0ea; --edge:#c4ccd6;
  --critical:#c8364b; --high:#d98014; --normal:#2f6fb5; --batch:#8a94a3; --source-line:#3f8f63; --lit:#7a3fc0;
  font-family: system-ui, "Segoe UI", "Helvetica Neue", sans-serif; background: var(--paper); }
@media (prefers-color-scheme: dark) { .lineage { --paper:#14181e; --ink:#e8ecf1; --soft:#9fabba; --line:#65707f; --box:#1f262f;
  --source:#1b2a23; --edge:#3a4552; --critical:#ef6a7d; --high:#f0a64a; --normal:#6aa8ea; --batch:#8d98a8; --source-line:#5fbf8d;
  --lit:#b58af0; } }
.lineage .box rect.body { fill: var(--box); stroke: var(--edge); }
.lineage .box.source rect.body { fill: var(--source); }
.lineage .name { font-size: 13px; font-weight: 600; fill: var(--ink); }
.lineage .what { font-size: 11px; fill: var(--soft); }
.lineage .flow { fill: none; stroke: var(--line); stroke-width: 1.4; }
.lineage .tip { fill: var(--line); }
.lineage .lit rect.body { stroke: var(--lit); stroke-width: 2; }
.lineage .flow.lit { stroke: var(--lit); stroke-width: 2.4; }
.lineage .dim { opacity: .28; }
.lineage .stripe.critical { fill: var(--critical); } .lineage .stripe.high { fill: var(--high); }
.lineage .stripe.normal { fill: var(--normal); } .lineage .stripe.batch { fill: var(--batch); }
.lineage .stripe.source { fill: var(--source-line); }
"""


def draw(graph: Graph, lit: Collection[str] = ()) -> str:
    """lit: names of relations to bring out; the others step back. Without any all look the same."""
    edges = [(r, f.writes) for f in graph.flows for r in f.reads]
    layout = lay_out([r.name for r in graph.relations], edges)
    width = 2 * EDGE + layout.layers * BOX_W + (layout.layers - 1) * GAP_X
    height = 2 * EDGE + round(layout.rows * (BOX_H + GAP_Y)) - GAP_Y + LEGEND_H
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lineage" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        '<rect class="paper" width="100%" height="100%" fill="var(--paper)"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_line(e, layout, lit) for e in dict.fromkeys(edges)),
        *(_box(r, _writers(graph, r), layout, lit) for r in graph.relations),
        _legend(height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _writers(graph: Graph, relation: Relation) -> list[Flow]:
    return [f for f in graph.flows if f.writes == relation.name]


def _place(name: str, layout: GraphLayout) -> tuple[float, float]:
    """The upper left corner of a box."""
    return EDGE + layout.layer[name] * (BOX_W + GAP_X), EDGE + layout.height[name] * (BOX_H + GAP_Y)


def _line(edge: Edge, layout: GraphLayout, lit: Collection[str]) -> str:
    (x, y), (end_x, end_y) = _place(edge[0], layout), _place(edge[1], layout)
    points = [(x + BOX_W, y + BOX_H / 2)]
    for i, bend in enumerate(layout.bends[edge], 1):
        left, middle = x + i * (BOX_W + GAP_X), EDGE + bend * (BOX_H + GAP_Y) + BOX_H / 2
        points += [(left, middle), (left + BOX_W, middle)]
    points.append((end_x - 3, end_y + BOX_H / 2))
    path = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (a_x, a_y), (b_x, b_y) in itertools.pairwise(points):
        middle = (a_x + b_x) / 2 if b_x > a_x else a_x + GAP_X
        path += f" C{middle:.0f} {a_y:.0f} {middle:.0f} {b_y:.0f} {b_x:.0f} {b_y:.0f}"
    ends = f"data-from={quoteattr(edge[0])} data-to={quoteattr(edge[1])}"
    return f'<path class="flow{_mark(lit, *edge)}" {ends} d="{path}" marker-end="url(#tip)"/>'


def _box(relation: Relation, writers: list[Flow], layout: GraphLayout, lit: Collection[str]) -> str:
    x, y = _place(relation.name, layout)
    classes = f"box{'' if writers else ' source'}{_mark(lit, relation.name)}"
    stripe = min((f.priority for f in writers), key=PRIORITIES.index, default="source")
    does = dict.fromkeys(w for f in writers for w in f.does if w != "repartition")
    what = " · ".join([relation.kind, *reversed(does)])  # what comes last tells most
    title = "\n".join([f"{relation.name}: {what}", f"topic {relation.topic}", *(f.query for f in writers)])
    return (
        f'<g class="{classes}" data-name={quoteattr(relation.name)} transform="translate({x:.0f} {y:.1f})">'
        f"<title>{escape(title)}</title>"
        f'<rect class="body" width="{BOX_W}" height="{BOX_H}" rx="6"/>'
        f'<rect class="stripe {stripe}" width="5" height="{BOX_H}" rx="2"/>'
        f'<text class="name" x="14" y="20">{escape(_cut(relation.name, _NAME_MAX))}</text>'
        f'<text class="what" x="14" y="37">{escape(_cut(what, _LINE_MAX))}</text></g>'
    )


def _mark(lit: Collection[str], *names: str) -> str:
    if not lit:
        return ""
    return " lit" if all(n in lit for n in names) else " dim"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _legend(height: int) -> str:
    parts = []
    x = EDGE
    for name in ("source", *PRIORITIES):
        parts.append(f'<rect class="stripe {name}" x="{x}" y="{height - 26}" width="5" height="12" rx="2"/>')
        parts.append(f'<text class="what" x="{x + 10}" y="{height - 16}">{name}</text>')
        x += 24 + 7 * len(name)
    return "".join(parts)
