"""`flowql compile`: the compiled project, as `plan.json`."""

from __future__ import annotations

from flowql.cli.options import Scope, scoped
from flowql.cli.render import print_text
from flowql.compiler.plan import codec


@scoped("project target output var")
def command(scope: Scope) -> None:
    """Compile the project and print the plan as JSON, for programs.

    `POST /v1/plan` and `POST /v1/deployments` take this document. `flowql explain` shows the plan to people.
    """
    print_text(codec.dumps(scope.compile()[1].plan))
