"""`flowql init`: a small project that works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from flowql.cli.render import print_text
from flowql.config.load import shown_path
from flowql.config.table import FILE_NAME
from flowql.errors import CommandError

_PROJECT = """\
# A FlowQL project. `flowql validate` checks it, `flowql explain` shows what it comes to.
name: {name}
sql: [sources.sql, queries.sql]
targets:
  default: {{engine: runtime, log: embedded, data_dir: .flowql/default, threads: 2}}
default_target: default
"""
_SOURCES = """\
-- What the topic holds: one JSON object per order, keyed by customer, in event time.
CREATE STREAM ORDERS (
  CUSTOMER STRING KEY,
  ID INT,
  ITEM STRING,
  AMOUNT DOUBLE,
  AT BIGINT
) WITH (
  KAFKA_TOPIC = 'orders', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON',
  TIMESTAMP = 'AT'
);
"""
_QUERIES = """\
-- Orders worth a second look.
CREATE STREAM LARGE_ORDERS WITH (PRIORITY = 'high') AS
  SELECT CUSTOMER, ID, ITEM, AMOUNT
  FROM ORDERS
  WHERE AMOUNT >= 100
  EMIT CHANGES;

-- What each customer spends in an hour; orders may come ten minutes late.
CREATE TABLE SPENT_PER_HOUR AS
  SELECT CUSTOMER, COUNT(*) AS ORDERS, SUM(AMOUNT) AS SPENT
  FROM ORDERS
  WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES)
  GROUP BY CUSTOMER
  EMIT CHANGES;
"""
_DATA = """\
{"CUSTOMER": "ada", "ID": 1, "ITEM": "lamp", "AMOUNT": 40.0, "AT": 1767258000000}
{"CUSTOMER": "bob", "ID": 2, "ITEM": "desk", "AMOUNT": 310.0, "AT": 1767258600000}
{"CUSTOMER": "ada", "ID": 3, "ITEM": "chair", "AMOUNT": 120.0, "AT": 1767259200000}
{"CUSTOMER": "eve", "ID": 4, "ITEM": "pen", "AMOUNT": 2.5, "AT": 1767261900000}
{"CUSTOMER": "ada", "ID": 5, "ITEM": "shelf", "AMOUNT": 99.0, "AT": 1767262500000}
"""
_STEPS = """\
flowql validate
flowql topic import orders orders.jsonl --key CUSTOMER --timestamp AT
flowql run --until-caught-up
flowql query "SELECT * FROM SPENT_PER_HOUR ORDER BY CUSTOMER"
flowql topic consume LARGE_ORDERS
"""
_README = """\
# {name}

| file | holds |
|---|---|
| `flowql.yaml` | the project: files, targets |
| `sources.sql` | what the topics hold |
| `queries.sql` | what is kept up to date |
| `orders.jsonl` | a few orders to begin with |

Type, in this folder:

```
{steps}```

`flowql deploy` keeps the queries running in the background; `flowql status` shows them and `flowql stop` ends them.
"""
Folder = Annotated[Path, typer.Argument(help="The folder; made if missing.", metavar="[DIR]", show_default="here")]


def command(folder: Folder = Path(".")) -> None:
    """Make a small project that works.

    It says what to type next.
    """
    name = re.sub(r"\W+", "_", folder.resolve().name).strip("_") or "project"
    files = {
        FILE_NAME: _PROJECT.format(name=name),
        "sources.sql": _SOURCES,
        "queries.sql": _QUERIES,
        "orders.jsonl": _DATA,
        "README.md": _README.format(name=name, steps=_STEPS),
        ".gitignore": ".flowql/\n",
    }
    there = [n for n in files if (folder / n).exists()]
    if there:
        title = f"{shown_path(folder)} has {', '.join(there)} already: nothing was written"
        raise CommandError(title, code="FQ5004", help="choose another folder:  flowql init my_project")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder}\n"
    print_text(
        f"a project in {folder}: {', '.join(files)}\n\nnow type:\n"
        + "".join(f"  {s}\n" for s in (enter + _STEPS).splitlines())
    )
