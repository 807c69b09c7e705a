"""`flowql plan`: what would be deployed, as `plan.json`."""

from __future__ import annotations

from flowql.cli.options import Scope, scoped
from flowql.cli.render import print_text
from flowql.compiler.plan import codec


@scoped("project target output var")
def command(scope: Scope) -> None:
    """Write the project's plan.json."""
    print_text(codec.dumps(scope.compile()[1].plan))
