"""`flowql backfill`: compute the history of queries on Spark, and go on with it on the runtime."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any

import typer

from flowql.api.deploying import carry_out, deploy_request, wanted_plan
from flowql.cli.building import await_built
from flowql.cli.deployment import show_deployment
from flowql.cli.options import Scope, scoped
from flowql.cli.render import note, print_json, show_diagnostics
from flowql.deploy.backfill import Computed, check_targets, compute, folder_of, wanted_histories
from flowql.deploy.decision import decide
from flowql.deploy.selection import find_query
from flowql.deploy.settings import settings_of
from flowql.server.choice import at_rest
from flowql.server.running import connect


@scoped("project target output var")
def command(
    scope: Scope,
    queries: Annotated[list[str], typer.Argument(help="Query ids or sink names.", metavar="QUERY...")],
    then: Annotated[
        str,
        typer.Option("--then", help="Target that continues (engine: runtime).", metavar="TARGET"),
    ],
    accept_history: Annotated[
        bool,
        typer.Option(
            "--accept-history",
            help="Start from the earliest existing record of an input whose beginning was deleted.",
        ),
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return before the queries serve.")] = False,
) -> None:
    """Compute history on Spark, then continue on the runtime.

    Spark (-t) computes all records in the topics of the target in --then, up to exact offsets. The instance of that
    target, started if necessary, loads the result as a new generation and continues at these offsets.

    flowql backfill DAYS -t spark --then default
    """
    scope = replace(scope, several=True)
    spark, found = settings_of(scope.load()), replace(scope, target=then).read()
    settings = settings_of(found)
    check_targets(spark, settings)
    with ExitStack() as stack:
        client = connect(settings.data_dir)
        deployed, topics = at_rest(settings).deployed() if client is None else client.deployed()
        wanted = wanted_plan(found, running=deployed.plan, topics=topics, warn=show_diagnostics)
        ids = tuple(dict.fromkeys(find_query(wanted, name).id for name in queries))
        request = deploy_request(ids, found, wanted, deployed.plan)
        about = replace(request.about, how=f"backfill of {', '.join(ids)}")
        request = replace(request, refresh=ids, about=about, accept_history=accept_history)
        decision = decide(deployed, wanted, request, partitions=topics)
        histories = wanted_histories(settings, deployed, decision, ids)
        folder = stack.enter_context(folder_of(settings))
        computed = compute(spark, settings, decision, histories, folder)
        if not scope.as_json:
            _show(computed)
        request = replace(request, backfills=tuple(str(c.folder.absolute()) for c in computed))
        client, done = carry_out(client, settings, deployed, topics, wanted, request)
        _finish(done, computed, as_json=scope.as_json)
        stack.callback(client.close)
        if not no_wait and not await_built(client):
            raise typer.Exit(130)


def _show(computed: list[Computed]) -> None:
    for c in computed:
        rows = f"{c.wanted.records:,} records in, {c.records:,} out, {c.state_rows:,} rows of state"
        letters = f", {c.letters:,} dead letters" if c.letters else ""
        note(f"{c.wanted.query.id}: {rows}{letters} in {c.seconds:.1f} s")


def _finish(done: dict[str, Any], computed: list[Computed], *, as_json: bool) -> None:
    if as_json:
        print_json({**done, "histories": [c.to_data() for c in computed]})
    else:
        show_deployment(done)
