"""Examples for `--help`, of commands whose own text has none: what to type, and what that does."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "validate": (
        ("flowql validate", "this project"),
        ("flowql validate -o json", "for an editor or a build"),
    ),
    "explain": (
        ("flowql explain", "all queries"),
        ("flowql explain LARGE_ORDERS", "one query"),
        ("flowql explain LARGE_ORDERS -t spark", "how each node runs on Spark"),
        ("flowql explain FQ2002", "an error's page"),
    ),
    "compile": (("flowql compile > plan.json", "for both engines"),),
    "run": (
        ("flowql run", "until Ctrl-C"),
        ("flowql run --until-caught-up", "until all existing records are processed"),
        ("flowql run -t spark", "on Spark"),
        ("flowql run -s LARGE_ORDERS", "one query"),
    ),
    "deploy": (
        ("flowql plan", "what would change"),
        ("flowql deploy", "apply it"),
        ("flowql deploy --prune", "also end queries that the project no longer has"),
    ),
    "status": (("flowql status", "one line per query"), ("flowql status -o json", "everything, for programs")),
    "serve": (("flowql serve", "the default target"),),
    "stop": (("flowql stop", "the default target"), ("flowql stop -t kafka", "another target")),
    "state ls": (("flowql state ls", "all stores"),),
    "state scan": (("flowql state scan SPENT_PER_HOUR ada", "one key"),),
    "verify": (("flowql verify --targets default,spark", "the runtime against Spark"),),
    "topic ls": (("flowql topic ls", "the default target"), ("flowql topic ls -t kafka", "another target")),
    "topic create": (("flowql topic create orders --partitions 4", "four partitions"),),
    "topic describe": (("flowql topic describe orders", "partitions, times, queries"),),
    "topic delete": (("flowql topic delete orders", "asks first on a terminal"),),
    "topic produce": (("flowql topic produce orders 'ada:{\"ID\": 6}'", "KEY:VALUE"),),
    "topic consume": (
        ("flowql topic consume orders", "all records"),
        ("flowql topic consume orders | head -3", "the first three"),
    ),
    "app delete": (
        ("flowql app delete -t kafka", "only lists"),
        ("flowql app delete -t kafka --results --yes", "also deletes results"),
    ),
    "app reset": (("flowql app reset", "only lists"), ("flowql app reset --yes", "deletes state and positions")),
    "metrics show": (("flowql metrics show", "the default target"),),
    "metrics names": (("flowql metrics names -o json", "for a program"),),
    "bench nexmark": (
        ("flowql bench nexmark --queries q0,q1 --events 1000000", "two queries"),
        ("flowql bench nexmark --queries all --engine spark", "all, on Spark"),
    ),
    "bench data": (("flowql bench data --parquet events", "into a folder"),),
    "kafka up": (("flowql kafka up", "port 9092, or a free one"), ("flowql kafka up --port 0", "a free one")),
    "kafka down": (("flowql kafka down", "keeps its records"),),
    "kafka status": (("flowql kafka status -o json", "for a program"),),
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
