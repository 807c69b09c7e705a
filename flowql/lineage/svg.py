"""The graph as an SVG picture that stands alone: light or dark as its viewer, names in full as tooltips."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from flowql.lineage.graph import Flow, Graph, Relation

# --- Where boxes and lines of a graph go: in layers from left to right (after Sugiyama, Tagawa and Toda, 1981) ---
#
# Each box is one layer right of the last one it is made of, and a box nothing comes into as far right as its readers let it. A line
# over several layers bends in each of them. Orders within layers are improved by barycentres, keeping the best found; heights are the
# least-squares fit to the neighbours' heights that keeps the order and the gaps.

SWEEPS = 16
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """layer: of each box, 0 left. height: of its middle, in units of one box and gap, from 0. bends: of each line, its heights in the
    layers between its ends.
    """

    layer: Mapping[str, int]
    height: Mapping[str, float]
    bends: Mapping[Edge, tuple[float, ...]]

    @property
    def layers(self) -> int:
        return 1 + max(self.layer.values(), default=0)

    @property
    def rows(self) -> float:
        heights = [*self.height.values(), *(h for bends in self.bends.values() for h in bends)]
        return 1 + max(heights, default=0.0)


def lay_out(names: Sequence[str], edges: Sequence[Edge]) -> GraphLayout:
    """names: each once. edges: between them; those that close a circle do not count for layers and get no bends."""
    forward = _without_circles(names, edges)
    layer = _layers(names, forward)
    chains = {e: _chain(e, layer) for e in forward}
    order = _ordered(names, layer, chains)
    steps = [(a, b) for chain in chains.values() for a, b in itertools.pairwise(chain)]
    height = _heights(order, steps)
    lowest = min(height.values(), default=0.0)
    height = {n: h - lowest for n, h in height.items()}
    bends = {e: tuple(height[n] for n in chain[1:-1]) for e, chain in chains.items()}
    return GraphLayout(layer, {n: height[n] for n in names}, {e: bends.get(e, ()) for e in edges})


def _without_circles(names: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    after: dict[str, list[str]] = {n: [] for n in names}
    for a, b in dict.fromkeys(edges):
        after[a].append(b)
    kept: list[Edge] = []
    done: set[str] = set()
    path: set[str] = set()

    def visit(name: str) -> None:
        path.add(name)
        for other in after[name]:
            if other in path:
                continue
            kept.append((name, other))
            if other not in done:
                visit(other)
        path.discard(name)
        done.add(name)

    for name in names:
        if name not in done:
            visit(name)
    return kept


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    layer = dict.fromkeys(names, 0)
    for _ in names:  # longest paths: at most so many rounds, usually few
        changed = False
        for a, b in edges:
            if layer[b] <= layer[a]:
                layer[b], changed = layer[a] + 1, True
        if not changed:
            break
    entered = {b for _, b in edges}
    for name in names:
        readers = [layer[b] for a, b in edges if a == name]
        if name not in entered and readers:
            layer[name] = min(readers) - 1
    return layer


def _chain(edge: Edge, layer: Mapping[str, int]) -> list[str]:
    """The line's ends and a name for each of its bends."""
    a, b = edge
    return [a, *(f"{a}\0{b}\0{i}" for i in range(layer[a] + 1, layer[b])), b]


def _ordered(names: Sequence[str], layer: Mapping[str, int], chains: Mapping[Edge, list[str]]) -> list[list[str]]:
    """The boxes and bends of each layer, from top to bottom."""
    order: list[list[str]] = [[] for _ in range(1 + max(layer.values(), default=0))]
    for name in names:
        order[layer[name]].append(name)
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for (a, _), chain in chains.items():
        for i, bend in enumerate(chain[1:-1], layer[a] + 1):
            order[i].append(bend)
        for left, right in itertools.pairwise(chain):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    best, least = [list(o) for o in order], _crossings(order, after)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(1, len(order)) if down else range(len(order) - 2, -1, -1):
            _sort(order[i], order[i - 1 if down else i + 1], before if down else after)
        found = _crossings(order, after)
        if found < least:
            best, least = [list(o) for o in order], found
    return best


def _sort(layer: list[str], fixed: Sequence[str], neighbours: Mapping[str, list[str]]) -> None:
    at = {n: i for i, n in enumerate(fixed)}
    here = {n: float(i) for i, n in enumerate(layer)}

    def barycentre(name: str) -> float:
        places = [at[n] for n in neighbours.get(name, ())]
        return sum(places) / len(places) if places else here[name]

    layer.sort(key=barycentre)


def _crossings(order: Sequence[Sequence[str]], after: Mapping[str, list[str]]) -> int:
    total = 0
    for left, right in itertools.pairwise(order):
        at = {n: i for i, n in enumerate(right)}
        ends = [at[n] for name in left for n in sorted(after.get(name, ()), key=lambda n: at[n])]
        total += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return total


def _heights(order: Sequence[Sequence[str]], steps: Sequence[Edge]) -> dict[str, float]:
    height = {n: float(i) for layer in order for i, n in enumerate(layer)}
    neighbours: dict[str, list[str]] = {}
    for a, b in steps:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)

    def wanted(name: str) -> float:
        near = neighbours.get(name)
        return sum(height[n] for n in near) / len(near) if near else height[name]

    for sweep in range(SWEEPS):
        for layer in order if sweep % 2 else reversed(order):
            height.update(zip(layer, _spread(layer, wanted), strict=True))
    return height


def _spread(layer: Sequence[str], wanted: Callable[[str], float]) -> list[float]:
    """Heights in this order, at least 1 apart and as near as possible to those wanted (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean of wanted minus rank, boxes
    for i, name in enumerate(layer):
        mean, size = wanted(name) - i, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    return [mean + i for i, mean in enumerate(means)]


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
