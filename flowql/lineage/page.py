"""The picture as one HTML page that needs nothing else: zoom, search, and what lies before and after a relation at a click."""

from __future__ import annotations

import json
from collections.abc import Collection
from html import escape

from flowql.lineage.columns import ColumnGraph
from flowql.lineage.graph import Graph
from flowql.lineage.svg import draw

_STYLE = """
:root { color-scheme: light dark; --page:#fff; --text:#1d2530; --quiet:#5b6675; --rule:#d9dee6; --pick:#7a3fc0; }
@media (prefers-color-scheme: dark) { :root { --page:#14181e; --text:#e8ecf1; --quiet:#9fabba; --rule:#313a46; --pick:#b58af0; } }
* { box-sizing: border-box; }
body { margin:0; height:100vh; display:grid; grid-template: auto 1fr / 1fr 360px; background:var(--page); color:var(--text);
  font: 14px/1.45 system-ui, "Segoe UI", "Helvetica Neue", sans-serif; }
header { grid-column: 1 / 3; display:flex; gap:16px; align-items:center; padding:10px 16px; border-bottom:1px solid var(--rule); }
h1 { font-size:16px; margin:0; } h2 { font-size:15px; margin:0 0 2px; overflow-wrap:anywhere; }
header input { flex:0 1 280px; padding:5px 9px; font:inherit; }
header span { color:var(--quiet); }
#stage { overflow:hidden; cursor:grab; } #stage svg { width:100%; height:100%; display:block; }
#stage .box { cursor:pointer; }
aside { border-left:1px solid var(--rule); padding:14px 16px; overflow:auto; }
aside p { margin:0 0 10px; color:var(--quiet); }
aside table { border-collapse:collapse; width:100%; font-size:13px; margin:8px 0; }
aside td { padding:3px 8px 3px 0; border-top:1px solid var(--rule); vertical-align:top; overflow-wrap:anywhere; }
aside td:nth-child(2), aside small { color:var(--quiet); }
aside button.column { all:unset; cursor:pointer; color:var(--pick); }
aside button.column:focus-visible { outline:2px solid var(--pick); }
pre { white-space:pre-wrap; font-size:12px; background:color-mix(in srgb, var(--text) 6%, transparent); padding:8px; border-radius:6px; }
"""

_SCRIPT = """
const svg = document.querySelector('#stage svg'), side = document.querySelector('aside'), box = svg.viewBox.baseVal;
const whole = [box.x, box.y, box.width, box.height];
svg.removeAttribute('width'); svg.removeAttribute('height');
const boxes = [...svg.querySelectorAll('.box')], flows = [...svg.querySelectorAll('.flow')];
const el = (tag, text, kind) => { const e = document.createElement(tag); if (text != null) e.textContent = text; if (kind) e.className = kind; return e; };
function reach(name, from, to) {
  const found = new Set(), waiting = [name];
  while (waiting.length) {
    const n = waiting.pop();
    if (found.has(n)) continue;
    found.add(n);
    for (const f of flows) if (f.dataset[from] === n) waiting.push(f.dataset[to]);
  }
  return found;
}
function light(names) {
  for (const b of boxes) { b.classList.toggle('lit', !!names && names.has(b.dataset.name)); b.classList.toggle('dim', !!names && !names.has(b.dataset.name)); }
  for (const f of flows) {
    const on = !!names && names.has(f.dataset.from) && names.has(f.dataset.to);
    f.classList.toggle('lit', on); f.classList.toggle('dim', !!names && !on);
  }
}
function follow(place, links) {
  const found = new Set(), waiting = [place];
  while (waiting.length) {
    const p = waiting.pop();
    if (!found.has(p)) { found.add(p); waiting.push(...(links[p] || [])); }
  }
  return found;
}
function column(name, col) {
  const key = JSON.stringify([name, col]);
  const before = follow(key, DATA.before), after = follow(key, DATA.after);
  const places = [...new Set([...before, ...after])].map(p => JSON.parse(p));
  light(new Set(places.map(p => p[0])));
  side.replaceChildren(el('h2', name + '.' + col), el('p', 'A column, with what it is made of and what is made of it.'));
  const back = el('button', '← ' + name, 'column'); back.onclick = () => show(name); side.append(back);
  for (const [title, set] of [['Made of', before], ['Goes into', after]]) {
    const rest = [...set].filter(p => p !== key).map(p => JSON.parse(p)).sort();
    side.append(el('p', rest.length ? title : title + ': nothing'));
    const table = el('table');
    for (const [r, c] of rest) table.append(row(r, c));
    side.append(table);
  }
}
function row(relation, col, type) {
  const tr = el('tr'), first = el('td'), b = el('button', type == null ? relation + '.' + col : col, 'column');
  b.onclick = () => column(relation, col); first.append(b); tr.append(first);
  if (type != null) tr.append(el('td', type));
  return tr;
}
function show(name) {
  const r = DATA.relations[name];
  const up = reach(name, 'to', 'from'), down = reach(name, 'from', 'to');
  light(new Set([...up, ...down]));
  side.replaceChildren(el('h2', name), el('p', r.kind + ' over topic ' + r.topic));
  side.append(el('p', (up.size - 1) + ' before it, ' + (down.size - 1) + ' after it'));
  const table = el('table');
  for (const [col, type] of r.columns) table.append(row(name, col, type));
  side.append(table);
  for (const f of r.queries) side.append(el('p', f.query + ' · ' + f.priority), el('pre', f.sql));
}
function nothing() { light(null); side.replaceChildren(el('p', 'Click a box to see what lies before and after it, a column to follow it. Drag and scroll to move; double-click to see all.')); }
let dragged = null, moved = false;
svg.addEventListener('pointerdown', e => { dragged = [e.clientX, e.clientY]; moved = false; });
addEventListener('pointermove', e => {
  if (!dragged) return;
  const scale = Math.max(box.width / svg.clientWidth, box.height / svg.clientHeight);
  if (Math.hypot(e.clientX - dragged[0], e.clientY - dragged[1]) > 3) moved = true;
  if (!moved) return;
  box.x -= (e.clientX - dragged[0]) * scale; box.y -= (e.clientY - dragged[1]) * scale; dragged = [e.clientX, e.clientY];
});
addEventListener('pointerup', () => { dragged = null; });
svg.addEventListener('wheel', e => {
  e.preventDefault();
  const by = Math.exp(e.deltaY * 0.0015), at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
  box.x = at.x - (at.x - box.x) * by; box.y = at.y - (at.y - box.y) * by; box.width *= by; box.height *= by;
}, { passive: false });
svg.addEventListener('dblclick', () => { [box.x, box.y, box.width, box.height] = whole; });
svg.addEventListener('click', e => { if (moved) return; const b = e.target.closest('.box'); b ? show(b.dataset.name) : nothing(); });
document.querySelector('input').addEventListener('input', e => {
  const words = e.target.value.trim().toLowerCase();
  light(words ? new Set(boxes.map(b => b.dataset.name).filter(n => n.toLowerCase().includes(words))) : null);
});
nothing();
if (DATA.picked) DATA.picked[1] ? column(...DATA.picked) : show(DATA.picked[0]);
"""


def write(
    title: str, graph: Graph, columns: ColumnGraph, lit: Collection[str] = (), picked: tuple[str, str] | None = None
) -> str:
    """picked: a relation, and a column of it or "", shown at the beginning."""
    links = {_key(*p): [_key(*o) for o in sorted(origins)] for p, origins in columns.comes_from.items() if origins}
    after: dict[str, list[str]] = {}
    for made, sources in links.items():
        for source in sources:
            after.setdefault(source, []).append(made)
    data = {
        "relations": {
            r.name: {
                "kind": r.kind,
                "topic": r.topic,
                "columns": r.columns,
                "queries": [
                    {"query": f.query, "priority": f.priority, "sql": f.sql} for f in graph.flows if f.writes == r.name
                ],
            }
            for r in graph.relations
        },
        "before": links,
        "after": after,
        "picked": picked,
    }
    counts = f"{len(graph.relations)} streams and tables, {len(graph.flows)} queries"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}: lineage</title><style>{_STYLE}</style></head>
<body><header><h1>{escape(title)}</h1><input type="search" placeholder="Find a stream or table" aria-label="Find a stream or table">
<span>{counts}</span></header>
<div id="stage">{draw(graph, lit)}</div><aside></aside>
<script>const DATA = {json.dumps(data).replace("</", "<" + chr(92) + "/")};{_SCRIPT}</script></body></html>
"""


def _key(relation: str, column: str) -> str:
    return json.dumps([relation, column], separators=(",", ":"))
