"""`status` of a live instance: its public JSON."""

from __future__ import annotations

import os
from typing import Any

from flowql.deploy.functions import functions_of
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.status import instance_figures, statuses
from flowql.runtime.functions.figures import function_figures
from flowql.server.at_rest import instance_entry
from flowql.server.process import process_figures


def live_status(instance: Instance, *, detail: bool = False) -> dict[str, Any]:
    """detail: what the endpoint for Prometheus tells beside it."""
    kafka = not instance.log.supports_redo
    return {
        "instance": instance_entry(
            os.getpid(), instance.config.threads, instance.clients, instance.config.dead_letters, kafka=kafka
        )
        | process_figures()
        | instance_figures(instance, detail=detail)
        | {"functions": function_figures(functions_of(instance.plan))},
        "queries": statuses(instance, detail=detail),
    }
