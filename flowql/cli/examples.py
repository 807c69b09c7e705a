"""Examples for `--help`, of commands whose own text has none: what to type, and what that does."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "validate": (
        ("flowql validate", "the project here"),
        ("flowql validate -o json", "for an editor or a build"),
    ),
    "explain": (
        ("flowql explain", "all queries"),
        ("flowql explain LARGE_ORDERS", "one of them"),
        ("flowql explain LARGE_ORDERS -t spark", "how each node runs on Spark"),
        ("flowql explain FQ2002", "an error's page"),
    ),
    "plan": (("flowql plan > plan.json", "what both engines run"),),
    "run": (
        ("flowql run", "until Ctrl-C"),
        ("flowql run --until-caught-up", "until everything there is now is processed"),
        ("flowql run -t spark", "on Spark"),
        ("flowql run -s LARGE_ORDERS", "one query of it"),
    ),
    "deploy": (
        ("flowql deploy --dry-run", "what would change"),
        ("flowql deploy", "change it, without a restart"),
        ("flowql deploy --prune", "and end queries that are gone from the project"),
    ),
    "status": (("flowql status", "a line per query"), ("flowql status -o json", "all that is known, for programs")),
    "serve": (("flowql serve", "what was deployed to the default target"),),
    "stop": (("flowql stop", "the default target's"), ("flowql stop -t kafka", "another one's")),
    "state ls": (("flowql state ls", "all stores"),),
    "state scan": (("flowql state scan SPENT_PER_HOUR ada", "of one key"),),
    "verify": (("flowql verify --targets default,spark", "the runtime against Spark"),),
    "topic ls": (("flowql topic ls", "topics of the default target"), ("flowql topic ls -t kafka", "of another one")),
    "topic create": (("flowql topic create orders --partitions 4", "four partitions"),),
    "topic describe": (("flowql topic describe orders", "partitions, times, readers"),),
    "topic delete": (("flowql topic delete orders", "asks first, on a terminal"),),
    "topic produce": (("flowql topic produce orders 'ada:{\"ID\": 6}'", "one record, its key before the colon"),),
    "topic consume": (
        ("flowql topic consume orders", "all of them"),
        ("flowql topic consume orders | head -3", "the first three"),
    ),
    "app delete": (
        ("flowql app delete -t kafka", "only lists"),
        ("flowql app delete -t kafka --results --yes", "deletes, results as well"),
    ),
    "app reset": (("flowql app reset", "only lists"), ("flowql app reset --yes", "deletes state and positions")),
    "metrics show": (("flowql metrics show", "of the default target's instance"),),
    "metrics names": (("flowql metrics names -o json", "for a program"),),
    "bench nexmark": (
        ("flowql bench nexmark --queries q0,q1 --events 1000000", "two queries"),
        ("flowql bench nexmark --queries all --engine spark", "all of them, on Spark"),
    ),
    "bench data": (("flowql bench data --help", "where they go"),),
    "kafka up": (("flowql kafka up", "port 9092, or a free one"), ("flowql kafka up --port 0", "a free one")),
    "kafka down": (("flowql kafka down", "its records stay"),),
    "kafka status": (("flowql kafka status -o json", "its address, for a program"),),
}


def with_examples(command: str, text: str) -> str:
    """The help of a command: examples at its end, and lines that are to be typed left as they are."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    given = EXAMPLES.get(command, ())
    width = max((len(typed) for typed, _ in given), default=0)
    if given:
        blocks.append("\n".join(f"{typed:{width}}   {does}" for typed, does in given))
    return "\n\n".join(f"\b\n{block}" if _is_typed(block) else block for block in blocks)


def _is_typed(block: str) -> bool:
    """Whether every line begins with the program's name: help is not to flow it into a paragraph."""
    return all(line.strip().startswith("flowql ") for line in block.splitlines())
