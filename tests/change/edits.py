"""Edits of a project at random: each gives the project after it, or Unfit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.change.generate import COLUMNS, Generator
from tests.change.project import (
    Aggregate,
    Definition,
    InsertInto,
    InsertRow,
    Item,
    Join,
    Project,
    Query,
    Relation,
    Select,
    Source,
    Unfit,
)

Edit = Callable[["Editor"], Project]
TRIES = 30


class Editor:
    """history: what was deployed before, oldest first. now_ms: the time of rows that are inserted."""

    def __init__(self, make: Generator, project: Project, history: Sequence[Project], now_ms: int) -> None:
        self.make, self.project, self.history, self.now_ms = make, project, history, now_ms
        self.rng = make.rng
        self.known = project.relations()

    def query(self, *kinds: type) -> Query:
        found = [q for q in self.project.queries if not kinds or isinstance(q, kinds)]
        if not found:
            raise Unfit("no such query")
        return self.rng.choice(found)

    def json_source(self) -> Source:
        found = [s for s in self.project.sources if s.format == "JSON"]
        if not found:
            raise Unfit("none that could change")
        return self.rng.choice(found)

    def source_of(self, query: Select | Aggregate | InsertInto) -> Relation:
        return self.known[query.source]

    def replaced(self, query: Definition, **fields: object) -> Project:
        return self.project.put(query.name, replace(query, **fields))


# -- safe: nothing that is there has to be made anew


def nothing(e: Editor) -> Project:
    return e.project


def add_query(e: Editor) -> Project:
    return e.make.grow(e.project)


def priority(e: Editor) -> Project:
    query = e.query()
    return e.replaced(
        query, priority=e.rng.choice([p for p in ("", "critical", "high", "batch") if p != query.priority])
    )


# -- others


def add_column(e: Editor) -> Project:
    source = e.json_source()
    missing = [c for c in COLUMNS if c not in source.columns]
    if not missing:
        raise Unfit("all are there")
    return e.replaced(source, columns=(*source.columns, e.rng.choice(missing)))


def drop_column(e: Editor) -> Project:
    source = e.json_source()
    return e.replaced(source, columns=tuple(c for c in source.columns if c != e.rng.choice(source.columns)))


def swap_column(e: Editor) -> Project:
    """Renamed: records have it under the other name."""
    source = e.json_source()
    pairs = [(c, d) for c in source.columns for d in COLUMNS if d not in source.columns and d[1] == c[1]]
    if not pairs:
        raise Unfit("no other name")
    old, new = e.rng.choice(pairs)
    project = e.replaced(source, columns=tuple(new if c == old else c for c in source.columns))
    return _renamed_column(project, source.name, old[0], new[0])


def _renamed_column(project: Project, source: str, old: str, new: str) -> Project:
    """Who reads the source directly uses the new name."""

    def changed(item: Item, prefix: str = "") -> Item:
        return replace(item, text=item.text.replace(f"{{{prefix}{old}}}", f"{{{prefix}{new}}}"))

    for d in project.readers(source):
        new_d = d
        if isinstance(d, Join):
            side = "L." if d.left == source else "R."
            foreign = new if side == "L." and d.foreign == old else d.foreign
            where = changed(d.where, side) if d.where else None
            new_d = replace(d, items=tuple(changed(i, side) for i in d.items), where=where, foreign=foreign)
        elif isinstance(d, Select | Aggregate | InsertInto) and d.source == source:
            where = changed(d.where) if d.where else None
            new_d = replace(d, items=tuple(changed(i) for i in d.items), where=where)
            if isinstance(new_d, Select) and new_d.by is not None:
                new_d = replace(new_d, by=changed(new_d.by))
            if isinstance(new_d, Aggregate):
                new_d = replace(new_d, group=tuple(new if g == old else g for g in new_d.group))
        project = project.put(d.name, new_d)
    return project


def where(e: Editor) -> Project:
    query = e.query()
    if isinstance(query, Join):
        return e.replaced(query, where=e.make.condition(e.known[query.left], "L.") if query.where is None else None)
    return e.replaced(
        query, where=e.make.condition(e.source_of(query)) if query.where is None or e.rng.random() < 0.7 else None
    )


def expression(e: Editor) -> Project:
    """One item of a select list becomes another of the same name and type."""
    query = e.query()
    if not query.items:
        raise Unfit("all columns")
    n = e.rng.randrange(len(query.items))
    old = query.items[n]
    if isinstance(query, Aggregate):
        new = e.make.one_aggregate(e.source_of(query))
        if new.type != old.type:
            raise Unfit("readers rely on its type")
    elif isinstance(query, Join):
        side = e.rng.choice("LR")
        new = e.make.expression(e.known[query.left if side == "L" else query.right], old.type, side + ".")
    else:
        new = e.make.expression(e.source_of(query), old.type)
    return e.replaced(query, items=(*query.items[:n], replace(new, name=old.name), *query.items[n + 1 :]))


def more_columns(e: Editor) -> Project:
    query = e.query(Select, Aggregate)
    if not query.items:
        raise Unfit("all columns")
    of = e.source_of(query)
    item = e.make.one_aggregate(of) if isinstance(query, Aggregate) else e.make.expression(of, "STRING")
    return e.replaced(query, items=(*query.items, replace(item, name=e.make.name("X"))))


def fewer_columns(e: Editor) -> Project:
    query = e.query(Select, Aggregate, Join)
    if len(query.items) < 2:
        raise Unfit("the last one")
    n = e.rng.randrange(len(query.items))
    return e.replaced(query, items=(*query.items[:n], *query.items[n + 1 :]))


def window(e: Editor) -> Project:
    query = e.query(Aggregate)
    assert isinstance(query, Aggregate)
    new = e.make.window() if e.rng.random() < 0.7 else None
    final = new is not None and new.grace_s is not None and e.rng.random() < 0.4
    return e.replaced(query, window=new, final=final)


def group(e: Editor) -> Project:
    query = e.query(Aggregate)
    assert isinstance(query, Aggregate)
    return e.replaced(query, group=e.make.aggregate({query.source: e.source_of(query)}).group)


def having(e: Editor) -> Project:
    query = e.query(Aggregate)
    assert isinstance(query, Aggregate)
    return e.replaced(query, having=Item("COUNT(*) > 2") if query.having is None else None)


def by(e: Editor) -> Project:
    query = e.query(Select)
    assert isinstance(query, Select)
    new = Item(f"{{{e.rng.choice([n for n, t in e.source_of(query).types.items() if t == 'STRING'])}}}", "STRING")
    return e.replaced(query, by=None if query.by is not None and e.rng.random() < 0.5 else new)


def join(e: Editor) -> Project:
    query = e.query(Join)
    assert isinstance(query, Join)
    way = e.rng.randrange(3)
    if way == 0:
        return e.replaced(query, kind=e.rng.choice([k for k in ("INNER", "LEFT", "FULL OUTER") if k != query.kind]))
    if way == 1 and query.within_s:
        return e.replaced(query, within_s=query.within_s * e.rng.choice((2, 3)))
    other = e.make.join(e.known)
    if other.left not in e.known or e.project.get(query.name) is None:
        raise Unfit("nothing to join")
    return e.replaced(query, left=other.left, right=other.right, items=other.items, kind=other.kind, foreign=other.foreign,
                      within_s=other.within_s, grace_s=other.grace_s, where=other.where)  # fmt: skip


def source(e: Editor) -> Project:
    """It reads something else."""
    query = e.query(Select, Aggregate, InsertInto)
    return e.replaced(query, source=e.rng.choice(sorted(e.known)))


def remove(e: Editor) -> Project:
    """With all that reads it, most often nobody."""
    found = [d for d in e.project.definitions if not isinstance(d, Source | InsertRow)]
    ends = [d for d in found if all(isinstance(r, InsertRow) for r in e.project.readers(d.name))]
    if len(e.project.queries) < 3:
        raise Unfit("too few are left")
    return e.project.without([e.rng.choice(ends if e.rng.random() < 0.7 else found).name])


def rename(e: Editor) -> Project:
    query = e.query(Select, Aggregate, Join)
    name = e.make.name()
    project = e.project.put(query.name, replace(query, name=name))
    for d in project.definitions:
        fields = {f: name for f in ("source", "left", "right", "target", "of") if getattr(d, f, None) == query.name}
        if fields:
            project = project.put(d.name, replace(d, **fields))
    return project


def remove_row(e: Editor) -> Project:
    """What it has inserted is gone with it."""
    found = [d for d in e.project.definitions if isinstance(d, InsertRow)]
    if not found:
        raise Unfit("none is there")
    return e.project.without([e.rng.choice(found).name])


def insert_row(e: Editor) -> Project:
    return e.project.add(e.make.row(e.known, e.now_ms))


def move(e: Editor) -> Project:
    """The result goes to another topic, or back."""
    query = e.query(Select, Aggregate, Join)
    return e.replaced(query, topic="" if query.topic else e.make.name("M"))


def become(e: Editor) -> Project:
    """Another query under the same name, perhaps a table that was a stream; it stands where it stood."""
    query = e.query(Select, Aggregate, Join)
    before = e.project.definitions[: [d.name for d in e.project.definitions].index(query.name)]
    known = replace(e.project, definitions=before).relations()
    new = e.rng.choice((e.make.select, e.make.aggregate, e.make.join))(known)
    return e.project.put(query.name, replace(new, name=query.name, topic=query.topic))


def partitions(e: Editor) -> Project:
    """Records from outside are moved."""
    return replace(e.project, partitions=e.rng.choice([n for n in (1, 2, 3, 6) if n != e.project.partitions]))


def shards(e: Editor) -> Project:
    """A result in another number of partitions, or again in as many as what it is made of."""
    query = e.query(Select, Aggregate, Join)
    return e.replaced(query, shards=e.rng.choice([n for n in (0, 1, 2, 6) if n != query.shards]))


def roll_back(e: Editor) -> Project:
    """To what was deployed before."""
    if not e.history:
        raise Unfit("nothing was before")
    return e.rng.choice(e.history)


def order(e: Editor) -> Project:
    """Two definitions change places: it means the same."""
    n = e.rng.randrange(len(e.project.definitions) - 1)
    d = list(e.project.definitions)
    d[n], d[n + 1] = d[n + 1], d[n]
    return replace(e.project, definitions=tuple(d))


SAFE: tuple[Edit, ...] = (nothing, add_query, add_query, priority)
EDITS: tuple[Edit, ...] = (
    *SAFE, add_column, drop_column, swap_column, where, where, where, expression, expression, more_columns, fewer_columns, window,
    window, group, group, having, by, join, join, source, remove, remove, rename, insert_row, remove_row, move, become, become, roll_back, roll_back, order,
    partitions, shards, shards,
)  # fmt: skip

REFUSED_BY_BROKERS = (partitions, shards)


def edited(editor: Editor, edits: Sequence[Edit], count: int) -> tuple[Project, list[str]]:
    """After so many edits; their names."""
    project, names = editor.project, []
    for _ in range(TRIES):
        if len(names) == count:
            break
        edit = editor.rng.choice(edits)
        try:
            new = edit(Editor(editor.make, project, editor.history, editor.now_ms))
            new.relations()
        except Unfit:
            continue
        project = new
        names.append(edit.__name__)
    return project, names


def broken(project: Project) -> str:
    """Text of a project that does not compile."""
    return project.sql() + "CREATE STREAM BROKEN AS SELECT NOWHERE FROM S0;\n"
