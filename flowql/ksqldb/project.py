"""The project an import gives, as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS, Priority
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.config.table import FILE_NAME
from flowql.ksqldb.notes import Note
from flowql.ksqldb.replay import Definition, LeftOut, Replay
from flowql.ksqldb.rewriting import with_values
from flowql.ksqldb.settings import COMMIT_INTERVAL, TargetSettings, of_interest, plain, setting_notes, target_settings

SOURCES, ROWS, ASSERTIONS, LEFT_OUT = "sources.sql", "rows.sql", "assertions.sql", "left_out.sql"
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the import, beside the scripts. priorities: classes by query id or name of its result."""

    name: str
    bootstrap: str = ""
    registry: str = ""
    priorities: Mapping[str, Priority] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """A project as files by path, flowql.yaml first. made: which file each definition is in."""

    files: dict[str, str]
    made: tuple[tuple[Definition, str], ...]
    priorities: dict[str, Wanted]
    notes: tuple[Note, ...]


def project_of(replay: Replay, wishes: Wishes) -> Imported:
    """Write down what is in force after a replay without mistakes."""
    definitions = list(replay.definitions.values())
    notes = list(replay.notes)
    shared = _shared_properties(definitions)
    variables = _variables(definitions, notes)
    places = [(d, _file_of(d)) for d in definitions]
    target = target_settings({n: v for n, (v, _) in replay.server.items()}, replay.settings)
    target.bootstrap = wishes.bootstrap or target.bootstrap
    target.replication = _replicas(definitions, notes)
    classes = priorities(
        replay.session.plan, {d.query: d.properties for d in definitions if d.query}, wishes.priorities
    )
    for name, given in {**{n: [v] for n, v in replay.server.items()}, **replay.settings}.items():
        notes += setting_notes(name, given)
    _of_the_whole(notes, replay, classes)
    paused = set(replay.session.plan.paused)
    files = {FILE_NAME: _yaml(wishes, shared, variables, places, target, classes)}
    for file in dict.fromkeys(f for _, f in places):
        here = [d for d, f in places if f == file]
        files[file] = "\n".join(_statement(d, shared, variables, paused) for d in here)
    for connector in replay.connectors.values():
        files[f"connectors/{connector.file_name}"] = connector.to_json()
    if replay.left_out:
        files[LEFT_OUT] = _left_out(replay.left_out)
    files[".gitignore"] = ".flowql/\n"
    return Imported(files, tuple(places), classes, tuple(notes))


# Which file, and what is written there.


def _file_of(d: Definition) -> str:
    if d.role in ("type", "source"):
        return SOURCES
    if d.role in ("rows", "assert"):
        return ROWS if d.role == "rows" else ASSERTIONS
    name = re.sub(r"\W+", "_", d.name).lower()
    return f"queries/{name}.sql"


def _statement(d: Definition, shared: Mapping[str, str], variables: Mapping[str, str], paused: set[str]) -> str:
    """A definition with its comments, and SET and UNSET around it for properties that are its own."""
    text = str(d.text)
    kept = {n.upper() for n in variables}
    fixed = {n: v for n, v in d.variables.items() if n.upper() not in kept}
    lines = [d.comment] if d.comment else []
    own = (
        {n: v for n, v in of_interest(d.properties).items() if shared.get(n) != v}
        if d.role not in ("type", "assert")
        else {}
    )
    lines += [f"SET '{n}' = {_quoted(v)};" for n, v in own.items()]
    lines.append(with_values(text, fixed) + ";" + (f"  {d.after}" if d.after else ""))
    lines += [f"UNSET '{n}';" for n in own]
    if d.query in paused:
        lines.append(f"PAUSE {_quoted_name(d.query)};")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Z_]\w*", name) else f"`{name}`"


def _left_out(statements: Sequence[LeftOut]) -> str:
    blocks = ["-- What the import left out, and why. This file is not part of the project.\n"]
    for s in statements:
        at = f"{s.piece.span.path}:{s.piece.span.line}"
        text = "\n".join(f"-- {line}".rstrip() for line in (s.piece.text + ";").split("\n"))
        blocks.append(f"-- {at}: {s.why}\n{text}\n")
    return "\n".join(blocks)


# Settings for all.


def _shared_properties(definitions: Sequence[Definition]) -> dict[str, str]:
    """Properties that hold, with one value, where anything is defined."""
    held = [of_interest(d.properties) for d in definitions if d.role not in ("type", "rows", "assert")]
    return {n: v for n, v in held[0].items() if all(h.get(n) == v for h in held)} if held else {}


def _variables(definitions: Iterable[Definition], notes: list[Note]) -> dict[str, str]:
    """Variables that have one value wherever they are named, as first spelt; others are written out."""
    values: dict[str, dict[str, Definition]] = {}
    spelt: dict[str, str] = {}
    for d in definitions:
        for name, value in d.variables.items():
            first = spelt.setdefault(name.upper(), name)
            values.setdefault(first, {}).setdefault(value, d)
    for name, several in values.items():
        if len(several) > 1:
            last = list(several.values())[-1]
            notes.append(Note("changed", f"variable {name} has several values, so they are written out", last.span))
    return {n: next(iter(v)) for n, v in values.items() if len(v) == 1}


def _replicas(definitions: Iterable[Definition], notes: list[Note]) -> int | None:
    """REPLICAS of topics, which the target says for all of them; None where nothing is said, or different things."""
    found = [(p, d) for d in definitions for p in getattr(d.statement, "properties", ()) if p.name == "REPLICAS"]
    counts = {str(p.value) for p, _ in found}
    if not found:
        return None
    if len(counts) > 1:
        text = f"REPLICAS is {', '.join(sorted(counts))} in different statements; `replication` of the target counts for all topics"
        notes.append(Note("check", text, found[-1][1].span))
        return None
    notes.append(Note("changed", "REPLICAS is `replication` of the target kafka, for all topics", found[0][1].span))
    (count,) = counts
    return int(count) if count.isdigit() else None


def _of_the_whole(notes: list[Note], replay: Replay, classes: Mapping[str, Wanted]) -> None:
    queries = replay.session.plan.queries
    named = {n.removeprefix("ksql.streams.") for n in (*replay.settings, *replay.server)}
    if queries and "auto.offset.reset" not in named:
        text = "queries read their topics from the beginning; ksqlDB begins at the end unless auto.offset.reset says otherwise"
        notes.append(Note("differs", text))
    if any(replay.living("rows")):
        notes.append(Note("differs", f"the rows of INSERT VALUES ({ROWS}) are written once, by the first deployment"))
    if queries and not classes:
        notes.append(
            Note(
                "check",
                "every query has the priority normal: ksqlDB has no priorities, and nothing in the scripts hints at one",
                help=f"say which matter under `priorities` of {FILE_NAME}, or import with  --priority NAME=critical",
            )
        )


# flowql.yaml


def _yaml(
    wishes: Wishes,
    shared: Mapping[str, str],
    variables: Mapping[str, str],
    places: Sequence[tuple[Definition, str]],
    target: TargetSettings,
    classes: Mapping[str, Wanted],
) -> str:
    files = {f if f in (SOURCES, ROWS, ASSERTIONS) else "queries/*.sql" for _, f in places}
    order = [f for f in (ASSERTIONS, SOURCES, "queries/*.sql", ROWS) if f in files]
    properties = dict(shared)
    if wishes.registry:
        properties["ksql.schema.registry.url"] = wishes.registry
    lines = ["# Imported from ksqlDB; IMPORT.md reports every statement.", f"name: {_scalar(wishes.name)}"]
    lines += ["dialect: ksql"]
    lines += _block("vars", variables)
    lines += [f"sql: [{', '.join(_scalar(f) for f in order)}]"] if order else []
    lines += _block("properties", properties)
    if classes:
        lines += ["priorities:", *(_priority(q, w) for q, w in classes.items())]
    lines += ["targets:", *_targets(target), f"default_target: {'kafka' if target.bootstrap else 'local'}"]
    return "\n".join(lines) + "\n"


def _priority(query: str, wanted: Wanted) -> str:
    latency = f", latency_target: {wanted.latency_target_ms} ms" if wanted.latency_target_ms else ""
    return f"  {_scalar(query)}: {{priority: {wanted.priority}{latency}}}  # {wanted.why}"


def _targets(target: TargetSettings) -> Iterator[str]:
    knobs = [f"threads: {target.threads}"] if target.threads else []
    yield f"  local: {{{', '.join(['log: embedded', *knobs])}}}"
    yield "  kafka:"
    yield "    log: kafka"
    yield from (f"    {k}" for k in knobs)
    yield "    kafka:"
    yield f"      bootstrap: {_scalar(target.bootstrap or '${KAFKA_BOOTSTRAP:-localhost:9092}')}"
    if target.replication:
        yield f"      replication: {target.replication}"
    if target.app_id:
        yield f"      app_id: {_scalar(target.app_id)}"
    if target.options:
        yield "      options:"
        yield from (f"        {_scalar(n)}: {_scalar(v)}" for n, v in target.options.items())


def _block(key: str, values: Mapping[str, str]) -> list[str]:
    return [f"{key}:", *(f"  {_scalar(n)}: {_scalar(v)}" for n, v in values.items())] if values else []


def _scalar(text: str) -> str:
    """A text in YAML."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT else json.dumps(text, ensure_ascii=False)


# Priorities of an imported project: what its scripts let one conclude, since ksqlDB has none.

DEFAULT_INTERVAL_MS = 2_000  # of ksqlDB
BATCH_INTERVAL_MS = 30_000
_RANK = {name: n for n, name in enumerate(sorted(PRIORITY_WEIGHTS, key=PRIORITY_WEIGHTS.__getitem__))}


@dataclass(frozen=True, slots=True)
class Wanted:
    """of_reader: the query for whose sake another one has this class."""

    priority: Priority = "normal"
    latency_target_ms: int | None = None
    why: str = ""


def priorities(
    plan: Plan, properties: Mapping[str, Mapping[str, str]], given: Mapping[str, Priority]
) -> dict[str, Wanted]:
    """By query id, where it is not simply normal.

    properties: of each query where it was defined. given: classes that the person names, by id or result. A commit interval
    shorter than ksqlDB's own asks for low latency, one of half a minute for none at all. Who feeds a query gets at least
    its class, or the query would wait for it.
    """
    found = {q.id: _of(q, properties.get(q.id, {}), given) for q in plan.queries}
    for query in reversed(plan.queries):  # readers come after those they read from
        mine = found[query.id]
        for writer in _feeding(plan, query):
            if _RANK[found[writer.id].priority] < _RANK[mine.priority]:
                why = mine.why if mine.why.startswith("feeds") else f"feeds {query.id}"
                found[writer.id] = Wanted(mine.priority, found[writer.id].latency_target_ms, why)
    return {q: w for q, w in found.items() if w.priority != "normal" or w.latency_target_ms is not None}


def _of(query: QueryPlan, properties: Mapping[str, str], given: Mapping[str, Priority]) -> Wanted:
    named = {n.casefold(): p for n, p in given.items()}
    chosen = named.get(query.id.casefold()) or named.get(query.sink.casefold())
    text = next((v for n, v in properties.items() if plain(n) == COMMIT_INTERVAL), "")
    interval = int(text) if text.isdigit() else DEFAULT_INTERVAL_MS
    target = interval if 0 < interval < DEFAULT_INTERVAL_MS else None
    if chosen is not None:
        return Wanted(chosen, target, "as asked")
    if target is not None:
        return Wanted("high", target, f"{COMMIT_INTERVAL} is {interval}")
    if interval >= BATCH_INTERVAL_MS:
        return Wanted("batch", None, f"{COMMIT_INTERVAL} is {interval}")
    return Wanted()


def _feeding(plan: Plan, query: QueryPlan) -> list[QueryPlan]:
    topics = {s.name: s.topic for s in plan.sources}
    read = {n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}
    return [q for q in plan.queries if topics.get(q.sink) in read and q.id != query.id]
