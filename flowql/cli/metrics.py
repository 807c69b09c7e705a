"""`flowql metrics`: metrics for Prometheus, and a Grafana dashboard over them."""

from __future__ import annotations

import typer

from flowql.cli.options import OR_CSV, Scope, scoped
from flowql.cli.place import live_client
from flowql.cli.render import print_json, print_rows, print_text

HELP = """Metrics for Prometheus, and a dashboard for Grafana.

With `metrics: 9464` in a target of flowql.yaml, Prometheus can read them at http://127.0.0.1:9464/metrics.

Examples:  flowql metrics show

           flowql metrics dashboard > flowql.json
"""
app = typer.Typer(help=HELP, no_args_is_help=True)


@app.command()
@scoped("project target var")
def show(scope: Scope) -> None:
    """Print the metrics in Prometheus's format."""
    with live_client(scope) as client:
        print_text(client.metrics())


@app.command()
@scoped("output", outputs=OR_CSV)
def names(scope: Scope) -> None:
    """List every metric with kind, labels and meaning."""
    from flowql.server.prometheus import METRICS

    rows = [(m.name, m.kind, ", ".join(m.labels), m.help) for m in METRICS]
    print_rows(("metric", "kind", "labels", "meaning"), rows, output=scope.output.value)


@app.command()
def dashboard() -> None:
    """Write a dashboard for Grafana, as JSON.

    Example:  flowql metrics dashboard > flowql.json
    """
    from flowql.server.dashboard import dashboard as made

    print_json(made())
