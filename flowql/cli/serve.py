"""`flowql serve`: the instance in the foreground, without a project being deployed to it."""

from __future__ import annotations

from dataclasses import replace

from flowql.cli.brokers import BrokerWait, slept
from flowql.cli.foreground import hosting
from flowql.cli.options import LogLevelOption, Scope, WithoutOption, scoped, with_log_level
from flowql.cli.render import note
from flowql.cli.without import left_out, note_left_out
from flowql.deploy.settings import settings_of
from flowql.server.choice import at_rest


@scoped("project target var")
def command(scope: Scope, log_level: LogLevelOption = None, without: WithoutOption = None) -> None:
    """Run the deployed project, until Ctrl-C.

    `flowql deploy` in another process changes it.
    """
    settings = with_log_level(settings_of(scope.load()), log_level)
    if without:
        BrokerWait(settings, slept).until_they_answer()
        ids = left_out(without, settings.engine, at_rest(settings).deployed()[0].plan)
        settings = replace(settings, without=ids)
    with hosting(settings) as host:
        note(f"serving {settings.data_dir}, {len(host.service.plan.queries)} queries; Ctrl-C stops")
        note_left_out(settings.without)
        host.serve()
