"""Where data comes from and goes to: a plan as a graph of streams, tables and queries, and its pictures.

`graph.of_plan` makes the graph, `columns` follows one column through it, `layout` places it, `svg`, `page` and `mermaid` draw it.
"""
