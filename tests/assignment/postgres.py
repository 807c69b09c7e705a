"""Writes what PostgreSQL stores of each value: `python -m tests.assignment.postgres "psql -h 127.0.0.1 -U postgres"`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from tests.assignment.cases import EXPRESSIONS

ANSWERS = Path(__file__).with_name("postgres.json")
STORED, REFUSED = "stored", "refused"


def main(psql: str) -> None:
    """psql: the command, without a statement."""
    found = {t: {e: _stored(psql, t, e) for e in some} for t, some in EXPRESSIONS.items()}
    ANSWERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _stored(psql: str, column: str, expression: str) -> dict[str, str | None]:
    sql = f"SET TimeZone = 'UTC'; CREATE TEMP TABLE t (v {column}); INSERT INTO t VALUES ({expression}); SELECT json_build_array(CAST(v AS TEXT)) FROM t"
    done = subprocess.run(
        [*shlex.split(psql), "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {REFUSED: done.stderr.splitlines()[0].partition("ERROR:")[2].strip()}
    return {STORED: json.loads(done.stdout.splitlines()[-1])[0]}


if __name__ == "__main__":
    main(sys.argv[1])
