"""The decision of a deployment, made before any change: one value that is both printed and applied, so a dry run shows what will happen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.physical.unrepeatable import unrepeatable_calls
from flowql.compiler.plan.deployed import Deployed, Hold
from flowql.compiler.plan.diff import ForwardRefused, PlanChange, QueryChange, decide_change
from flowql.compiler.plan.generations import runtime_name, topic_of
from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.partitions import NONE_KNOWN, Partitions
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.compiler.plan.visit import functions_called
from flowql.deploy.control import with_paused
from flowql.deploy.costs import Costs, Reads
from flowql.deploy.request import DEFAULT_REQUEST, DeployRequest
from flowql.deploy.selection import merged
from flowql.errors import CommandError

# --- Streams and tables that a deployment adds, removes or changes ---


@dataclass(frozen=True, slots=True)
class RelationChange:
    """A changed stream or table. query: id of the query that writes it, None for a declared one. columns: the differences, as `+ W INT`,
    `- X STRING` and `V INT, was BIGINT`.
    """

    name: str
    kind: Literal["stream", "table"]
    change: Literal["added", "removed", "changed"]
    query: str | None = None
    columns: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        named = {"name": self.name, "kind": self.kind, "query": self.query}
        return {**named, "change": self.change, "columns": list(self.columns)}


def relations_changed(before: Plan, after: Plan) -> tuple[RelationChange, ...]:
    """Declared streams and tables that differ, and results of queries whose columns differ. A query that is added or removed tells of its result."""
    was, now = ({s.name: s for s in plan.listed} for plan in (before, after))
    return tuple(_changes(was, now))


def _changes(was: dict[str, SourceDef], now: dict[str, SourceDef]) -> Iterator[RelationChange]:
    for name, new in now.items():
        old = was.get(name)
        if old is None:
            if new.query is None:
                yield RelationChange(name, new.kind, "added")
            continue
        columns = tuple(_columns(old, new))
        if columns or (old.query is None and new.query is None and _is_declared_otherwise(old, new)):
            yield RelationChange(name, new.kind, "changed", new.query, columns)
    for name, old in was.items():
        if name not in now and old.query is None:
            yield RelationChange(name, old.kind, "removed")


def _is_declared_otherwise(old: SourceDef, new: SourceDef) -> bool:
    """Whether the declarations differ in more than spelling. The number of partitions may be unknown until the topic exists."""
    known = old.partitions is not None and new.partitions is not None
    return replace(old, statement="", partitions=old.partitions if known else None) != replace(
        new, statement="", partitions=new.partitions if known else None
    )


def _columns(old: SourceDef, new: SourceDef) -> Iterator[str]:
    was, now = ({f.name: str(f.type) for f in s.shown} for s in (old, new))
    for name, kind in now.items():
        if name not in was:
            yield f"+ {name} {kind}"
        elif was[name] != kind:
            yield f"{name} {kind}, was {was[name]}"
    yield from (f"- {name} {kind}" for name, kind in was.items() if name not in now)


REFUSED, OTHER_PREFIX = "FQ5220", "FQ5224"
NO_COSTS = Costs()
NOTHING = Deployed()


def check_prefix(wanted: Plan, prefix: str) -> None:
    """CommandError if the plan and the instance's target have different prefixes: all topics would have other names."""
    if wanted.prefix != prefix:
        names = [f"`{p}`" if p else "none" for p in (wanted.prefix, prefix)]
        title = f"the prefix of this project is {names[0]}, and that of the instance is {names[1]}"
        help_ = "undo the change of `prefix`, or deploy to a target with another data_dir, whose queries start from the beginning"
        raise CommandError(title, code=OTHER_PREFIX, help=help_)


def check_kept_prefix(kept: Plan, prefix: str) -> None:
    """CommandError if a target and its deployed plan have different prefixes: it would process all input again."""
    if kept.sources and kept.prefix != prefix:
        names = [f"`{p}`" if p else "none" for p in (prefix, kept.prefix)]
        title = f"the prefix of the target is {names[0]}, and that of the deployed plan is {names[1]}"
        help_ = "undo the change of `prefix`, or give the target another data_dir, where its queries start from the beginning"
        raise CommandError(title, code=OTHER_PREFIX, help=help_)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A decided deployment.

    plan: the plan after the deployment. change: the actions of the engine, and the deployment record. fates: of every
    query, as printed. withheld: removals that wait for `--prune`; these queries are in `plan` and continue to run. forward: ids of
    queries that continue with their new text without a rebuild.
    before: what was on record.
    """

    plan: Plan
    change: PlanChange
    fates: tuple[Fate, ...]
    withheld: tuple[str, ...] = ()
    forward: tuple[str, ...] = ()
    before: Deployed = NOTHING

    @property
    def changes(self) -> tuple[QueryChange, ...]:
        return tuple(f.change for f in self.fates)

    @property
    def begun(self) -> dict[str, str]:
        """Queries that are computed from the beginning: id -> action."""
        changes = {c.query: c.action for c in self.change.changes}
        return {q: action for q, action in changes.items() if action in ("add", "change")}

    def to_data(self, costs: Costs = NO_COSTS, *, applied: bool) -> dict[str, Any]:
        """The public JSON of a deployment."""
        found = [self._change_data(f, costs.reads.get(f.change.query)) for f in self.fates]
        relations = relations_changed(self.before.plan, self.change.deployed.plan)
        added, statements = self._rows_added(), self._statements_added()
        return {
            "id": self.change.deployed.id,
            "changes": found,
            "relations": [r.to_data() for r in relations],
            "rows_added": added,
            "statements_added": statements,
            "changed": self._queries_changed() + sum(r.query is None for r in relations) + bool(added or statements),
            "applied": applied,
            "withheld": list(self.withheld),
            "lost_history": list(costs.lost),
            "disk_bytes": costs.disk_bytes,
            "held": list(self.change.deployed.held),
            "waiting": list(self.before.held),
            "rows_left": self._rows_left(),
        }

    def _queries_changed(self) -> int:
        """How many queries this deployment changes, and not an earlier one that is still building them."""
        held = set(self.before.held) ^ set(self.change.deployed.held)  # are held from now on, or not any more
        changed = {
            c.query
            for c in self.changes
            if c.building == "dropped" or (c.action != "none" and c.building != "continued")
        }
        return len({*changed, *(c.query for c in self.changes if c.query in held)} - set(self.withheld))

    def _rows_added(self) -> dict[str, int]:
        """By topic, how many rows of INSERT VALUES it writes."""
        known = self.before.rows_inserted()
        topics = [t for row in self.plan.inserts if ((t := topic_of(self.plan, row)), row) not in known]
        return {topic: topics.count(topic) for topic in dict.fromkeys(topics)}

    def _statements_added(self) -> int:
        """How many statements that change rows of tables it carries out."""
        return sum(c not in self.before.plan.changes for c in self.plan.changes)

    def _rows_left(self) -> dict[str, int]:
        """By topic, how many rows of INSERT VALUES the project no longer has, from this deployment on."""
        new = [topic for topic, row in self.change.deployed.left if (topic, row) not in self.before.left]
        return {topic: new.count(topic) for topic in dict.fromkeys(new)}

    def _change_data(self, fate: Fate, reads: Reads | None) -> dict[str, Any]:
        c = fate.change
        return {
            "query": c.query,
            "action": c.action,
            "state": c.state,
            "class": fate.kind,
            "because": fate.parent or None,
            "why": fate.why,
            "generation": c.generation,
            "building": c.building or None,
            "reads": None if reads is None else reads.to_data(),
        }


def decide(
    deployed: Deployed, wanted: Plan, request: DeployRequest = DEFAULT_REQUEST, *, partitions: Partitions = NONE_KNOWN
) -> Deployment:
    """Decides how to get from the deployed plan to the wanted one. Without `prune` no running query is removed.

    wanted: the whole project; queries that are not selected stay as they run. partitions: of existing topics. Paused queries stay paused, and new
    queries start paused if the project or the request pauses them.

    Raises CommandError if a query that would continue to run no longer fits the project, or cannot continue with its new text.
    """
    selected, prune = request.selected, request.prune
    base = deployed.plan
    removed = [q.id for q in base.queries if q.id not in wanted.by_id and (selected is None or q.id in selected)]
    plan = merged(base, wanted, selected, removed if prune else ())
    if request.without:
        plan, _ = with_paused(plan, request.without, paused=True)
    forward = tuple(q.id for q in plan.queries if request.forward and (selected is None or q.id in selected))
    change = _decided(deployed, plan, request, forward, partitions)
    withheld = () if prune else tuple(removed)
    fates = tuple(fate_of(c, deployed, plan, withheld) for c in _shown(change.changes, withheld))
    return Deployment(plan, change, fates, withheld, forward, deployed)


def _decided(
    deployed: Deployed, plan: Plan, request: DeployRequest, forward: Sequence[str], partitions: Partitions
) -> PlanChange:
    try:
        return decide_change(
            deployed,
            plan,
            refresh=request.refresh,
            forward=forward,
            partitions=partitions,
            swap=Hold(hold=request.shadow),
        )
    except ForwardRefused as error:
        title = "\n".join(f"{query} cannot continue with its new SQL: {why}" for query, why in error.reasons)
        names = " ".join(f"--full-refresh {query}" for query, _ in error.reasons)
        ways = "deploy without --forward, or" if request.forward else "to rebuild it nevertheless:"
        raise CommandError(title, code=REFUSED, help=f"{ways}  flowql deploy {names}") from error


def _shown(changes: Collection[QueryChange], withheld: Collection[str]) -> tuple[QueryChange, ...]:
    """Removals come last, also those that wait."""
    kept = [c for c in changes if c.query not in withheld]
    return (*kept, *(replace(c, action="remove") for c in changes if c.query in withheld))


# The effect of the deployment on each query, in words: its class, and the reason.

# metadata: its priority, or how its text is written. compatible: what it reads has changed, and its state is still right.
# forward: its new text applies to new records.
Class = Literal["unchanged", "metadata", "compatible", "added", "forward", "rebuilt", "removed"]
_BUILDING = {"": "", "continued": "it is being built already", "dropped": "its new generation is dropped"}


@dataclass(frozen=True, slots=True)
class Fate:
    """A change with its class. why: one line, empty where nothing is to be said. parent: id of the query whose rebuild is the cause."""

    change: QueryChange
    kind: Class
    why: str = ""
    parent: str = ""


def fate_of(change: QueryChange, deployed: Deployed, plan: Plan, withheld: Collection[str]) -> Fate:
    """plan: what will run."""
    fate = _fate_of(change, deployed, plan, withheld)
    said = [s for s in (fate.why, _BUILDING[change.building]) if s]
    return replace(fate, why="; ".join(said))


def _fate_of(change: QueryChange, deployed: Deployed, plan: Plan, withheld: Collection[str]) -> Fate:
    old, new = deployed.serving.by_id.get(change.query), plan.by_id.get(change.query)
    parent = change.because if change.because in plan.by_id else ""
    if change.action == "remove" and new is not None:
        also = f"; rebuilt because of {change.because}" if change.state == "rebuilt" else ""
        return Fate(change, "removed", f"needs --prune{also}" if change.query in withheld else also[2:], parent)
    if change.action == "remove":
        return Fate(change, "removed")
    if change.action == "add":
        return Fate(change, "added", f"with {change.because}" if parent else change.because, parent)
    assert old is not None, "what does not serve is added"
    assert new is not None, "what is gone is removed"
    if change.action == "change":
        why = (
            f"because of {change.because}"
            if parent
            else change.because or _own_change(old, new, deployed.serving, plan)
        )
        return Fate(change, "rebuilt", "; ".join((why, *_differs(old, new, deployed))), parent)
    if change.action == "forward":
        return Fate(change, "forward", f"its new text applies to new records ({change.because})")
    if change.action == "priority":
        return Fate(change, "metadata", f"{_priority(new)}, was {_priority(old)}")
    changed = _sources_changed(new, deployed.plan, plan)
    if changed:
        use = "only in columns that it does not use"
        return Fate(change, "compatible", f"{', '.join(changed)} {_has(changed)} changed {use}")
    if old.on_change != new.on_change:
        return Fate(
            change, "metadata", f"ON_CHANGE is {new.on_change or 'not given'}, was {old.on_change or 'not given'}"
        )
    if old.sql.split() != new.sql.split():
        return Fate(change, "metadata", "written otherwise, and means the same")
    return Fate(change, "unchanged")


def _own_change(old: QueryPlan, new: QueryPlan, before: Plan, after: Plan) -> str:
    """The part of a query whose meaning has changed: its text, a declaration that it reads, or a function of the project that it calls."""
    if old.sql.split() != new.sql.split():
        return "its text has changed"
    sources = ((n, before.source(n), after.source(n)) for n in _sources_read(new))
    declared = [
        n for n, was, now in sources if was and now and replace(was, statement="") != replace(now, statement="")
    ]
    if declared:
        return f"the declaration of {', '.join(declared)} has changed"
    added = functions_called(new.logical) - functions_called(old.logical)
    functions = sorted({plain_name(name) for name in added if is_users(name)})
    return f"{', '.join(functions)} {_has(functions)} changed" if functions else "its text has changed"


def _has(names: Collection[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _sources_read(query: QueryPlan) -> list[str]:
    return list(dict.fromkeys(n.spec.source for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)))


def _differs(old: QueryPlan, new: QueryPlan, deployed: Deployed) -> list[str]:
    """Why a rebuilt result is another one even where its text is the same, in sentences."""
    found: list[str] = []
    since = [f.deployment for f in deployed.forwards if f.query == runtime_name(old)]
    if since:
        found.append(
            f"all history with the newest text, deployed with --forward in deployment {', '.join(map(str, since))}"
        )
    if functions := unrepeatable_calls(new.logical):
        found.append(f"{', '.join(functions)} will give other values")
    return found


def _priority(query: QueryPlan) -> str:
    target = f", latency target {query.latency_target_ms} ms" if query.latency_target_ms else ""
    return f"{query.priority} (weight {query.weight}{target})"


def _sources_changed(query: QueryPlan, before: Plan, after: Plan) -> list[str]:
    """Sources of the query whose declared columns have changed. The query itself means the same, as its definition has not changed."""
    pairs = [(n, before.source(n), after.source(n)) for n in _sources_read(query)]
    return [n for n, old, new in pairs if old is not None and new is not None and old.schema != new.schema]
