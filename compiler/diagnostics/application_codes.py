"""Pages of the codes of commands that act on a whole application."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

APPLICATION_CODES = {
    "FQ5320": CodePage(
        "An instance of the application runs",
        "`flowql app delete` and `flowql app reset` remove what a running instance works with, so all its instances must be stopped first. "
        "Nothing was removed. With `instances: many` the members of the group count, on all machines; a killed one counts until its session ends.",
        "flowql app reset --yes",
        "flowql stop\nflowql app reset --yes",
    ),
    "FQ5321": CodePage(
        "This application cannot be deleted or reset by `flowql app`",
        "The command knows what the runtime keeps. Spark keeps checkpoints at addresses of its own. The instances of a group "
        "(`instances: many`) cannot be reset, because none of them computes lost state by itself: rebuild their queries.",
        "flowql app reset --yes          # instances: many",
        "flowql deploy --full-refresh ORDERS_PER_HOUR",
    ),
}
