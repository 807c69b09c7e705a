"""The graph as Mermaid text, for pages that draw it (a README, a wiki)."""

from __future__ import annotations

from flowql.lineage.graph import Graph


def write(graph: Graph) -> str:
    """A flowchart: sources as cylinders, results as boxes with what their query does."""
    ids = {r.name: f"r{i}" for i, r in enumerate(graph.relations)}
    lines = ["flowchart LR"]
    for relation in graph.relations:
        does = [w for f in graph.flows if f.writes == relation.name for w in f.does]
        label = "<br/>".join(
            [_text(relation.name), f"<small>{', '.join([relation.kind, *dict.fromkeys(does)])}</small>"]
        )
        shape = ("[(", ")]") if relation.declared else ("[", "]")
        lines.append(f'  {ids[relation.name]}{shape[0]}"{label}"{shape[1]}')
    for flow in graph.flows:
        lines += [f"  {ids[read]} --> {ids[flow.writes]}" for read in flow.reads]
    return "\n".join(lines) + "\n"


def _text(name: str) -> str:
    return name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
