"""A project, compiled against what runs, and deployed to the instance of its target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from os.path import relpath
from typing import TYPE_CHECKING, Any

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.deployed import About, Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.project import Project
from flowql.deploy.assertions import Topics, check_assertions
from flowql.deploy.costs import Costs, costs_of
from flowql.deploy.decision import Deployment, decide
from flowql.deploy.history import before, entry_of
from flowql.deploy.request import DeployRequest
from flowql.deploy.selection import chosen
from flowql.deploy.settings import Settings
from flowql.errors import CommandError, CompileError
from flowql.server.choice import at_rest
from flowql.server.client import Calls, Client
from flowql.server.running import connect
from flowql.server.spawn import spawn

if TYPE_CHECKING:
    from flowql.server.service import Service

RUNNING_S = 60.0
NOT_RUNNING = "FQ5204"
_POLL_S = 0.1
Document = dict[str, Any]
# Given the current deployment and the partitions of topics.
Decided = Callable[[Deployed, Mapping[str, int]], tuple[Plan, DeployRequest]]


def wanted_plan(
    project: Project,
    *,
    running: Plan,
    topics: Mapping[str, int],
    warn: Callable[[Sequence[Diagnostic]], None] | None = None,
    there: Topics | None = None,
) -> Plan:
    """The plan of the whole project. Raises CompileError with all mistakes.

    warn: receives the warnings. Without it, ASSERT statements of the project are not checked. there: topics for these statements, by
    default those of the target's log.
    """
    compiled = compile_sources(project, previous=running, topic_partitions=topics)
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    if warn is not None:
        warn([d for d in compiled.diagnostics if d.severity == "warning"])
        check_assertions(compiled.assertions, project, compiled.plan, there)
    return compiled.plan


def wanted_of_engine(
    engine: Service, project: Project, plan: Plan, *, running: Plan, topics: Mapping[str, int]
) -> Plan:
    """The plan of the project for an engine that has started since `plan` was made for `running` and `topics`: the same one, unless another
    process has deployed something or created a topic meanwhile.
    """
    now, there = engine.deployed.plan, engine.topics()
    if now == running and all(there.get(s.topic) == topics.get(s.topic) for s in plan.sources):
        return plan
    return wanted_plan(project, running=now, topics=there)


def deploy_request(
    select: Sequence[str],
    project: Project,
    wanted: Plan,
    running: Plan,
    *,
    prune: bool = False,
    rebuild: bool = False,
    without: tuple[str, ...] = (),
) -> DeployRequest:
    """The deployment of the selected queries, or of all if none is selected. without: ids of queries that it pauses."""
    ids = chosen(select, wanted, running)
    about = About("deploy", _files(project))
    selected = None if ids is None else tuple(sorted(ids))
    return DeployRequest(selected, prune=prune, rebuild=rebuild, about=about, without=without)


def _files(project: Project) -> tuple[tuple[str, str], ...]:
    """The files of SQL, each with a hash of its text."""
    texts = [(s.path, s.text) for s in project.sources if isinstance(s, SourceText)]
    names = dict.fromkeys(path for path, _ in texts)
    whole = {n: "\n".join(text for path, text in texts if path == n) for n in names}
    root = project.root.resolve()
    return tuple((relpath(name, root), sha256(text.encode()).hexdigest()[:12]) for name, text in whole.items())


def history(settings: Settings, *, plans: bool = False) -> tuple[list[Entry], Deployed]:
    """The entries of the history, with their plans if `plans` is set, and the current deployment."""
    client = connect(settings.data_dir)
    if client is None:
        place = at_rest(settings)
        return place.deployments(), place.deployed()[0]
    with closing(client):
        return client.deployments(plans=plans), client.deployed()[0]


def rolled_back(entries: Sequence[Entry], deployed: Deployed, number: int | None) -> tuple[Plan, DeployRequest]:
    """The whole plan of an earlier deployment, of the one before if None is named: later queries are removed. Raises CommandError.

    entries, deployed: of `history`, with their plans.
    """
    entry = entry_of(entries, number) if number is not None else before(entries, deployed)
    return entry.plan, DeployRequest(prune=True, about=About(f"rollback to {entry.id}", entry.about.files))


def carry_out(
    client: Client | None,
    settings: Settings,
    deployed: Deployed,
    topics: Mapping[str, int],
    wanted: Plan,
    request: DeployRequest,
    started: Callable[[Client], None] = lambda client: None,
) -> tuple[Client, Document]:
    """Deploys to the running instance, or starts one. Waits until every query runs.

    client: None if no instance runs. deployed, topics: the current deployment and topics. started: called with the client of an instance
    that this starts. Returns the client, and the document that `flowql deploy -o json` prints. Raises CommandError.
    """
    if client is None:
        _, costs = _decided(settings, deployed, topics, wanted, request)
        costs.check(accept_history=request.accept_history)  # what is refused starts no instance
        client = spawn(settings, started)
    return client, deploy_to(client, wanted, request)


def planned(
    settings: Settings, deployed: Deployed, topics: Mapping[str, int], wanted: Plan, request: DeployRequest
) -> Document:
    """The document of the deployment that `carry_out` would make without an instance. Changes and starts nothing."""
    decision, costs = _decided(settings, deployed, topics, wanted, request)
    return decision.to_data(costs, applied=False)


def _decided(
    settings: Settings, deployed: Deployed, topics: Mapping[str, int], wanted: Plan, request: DeployRequest
) -> tuple[Deployment, Costs]:
    """The decision where no instance runs."""
    decision = decide(deployed, wanted, request, partitions=topics)
    return decision, costs_of(deployed, decision.plan, decision.begun, at_rest(settings))


def deploy_to(client: Calls, wanted: Plan, request: DeployRequest) -> Document:
    """The document of the deployment, when every query runs. Raises CommandError."""
    done = client.deploy(wanted, request)
    _await_running(client)
    return done


def _await_running(client: Calls) -> None:
    """Waits until every query runs; CommandError with the reason of one that keeps failing."""
    limit = time.monotonic() + RUNNING_S
    while True:
        waiting = [q for q in client.status()["queries"] if q["state"] not in ("running", "paused")]
        hung = [q for q in waiting if q["state"] == "hung" and not q.get("building")]
        if not waiting:
            return
        if time.monotonic() > limit or (hung and len(hung) == len(waiting)):  # none of them continues by itself
            title = "; ".join(f"{q['id']} is {q['state']}: {q['last_error']}" for q in waiting)
            raise CommandError(title, code=NOT_RUNNING, help="flowql status")
        time.sleep(_POLL_S)
