"""FlowQL's matches and those of Java and PostgreSQL, for the same pairs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from flowql.compiler.functions.patterns import all_matches
from flowql.compiler.functions.patterns.java import parse_java
from flowql.compiler.functions.patterns.postgres import parse_postgres, parse_postgres_match
from flowql.compiler.functions.patterns.program import Program
from flowql.compiler.functions.patterns.short import short
from flowql.compiler.functions.patterns.tree import (
    Pattern,
    PatternAmbiguous,
    PatternError,
    PatternNotSupported,
    PatternTooLarge,
)
from tests.patterns.generate import pairs

HERE = Path(__file__).parent
WRONG = "E"  # of a pattern that is not valid


@dataclass(frozen=True, slots=True)
class Outcome:
    """verdict: same; different; refused: by name here alone; accepted: here alone; halves: Java matches half a character."""

    pattern: str
    string: str
    ours: str
    theirs: str
    verdict: str


def matches(parse: Callable[[str], Pattern], pattern: str, string: str) -> str:
    """All matches as `Matches.java` writes them; E or the reason why there is no program."""
    try:
        program = _program(parse, pattern)
        program.take(range(program.groups + 1))
    except (PatternNotSupported, PatternAmbiguous, PatternTooLarge) as error:
        return f"{type(error).__name__} {error.reason}"
    except PatternError:
        return WRONG
    found = all_matches.every(program, pa.array([string]), frozenset(range(program.groups + 1)))
    raw = string.encode()

    def place(byte: int) -> int:
        return len(raw[:byte].decode())

    def shown(g: int, i: int) -> str:
        begin, end = (int(a[i]) for a in found.groups[g])
        return "-" if begin < 0 else f"{place(begin)}-{place(end)}"

    return " ".join(",".join(shown(g, i) for g in range(program.groups + 1)) for i in range(len(found.rows)))


@lru_cache(maxsize=100)
def _program(parse: Callable[[str], Pattern], pattern: str) -> Program:
    return Program(parse(pattern))


def _same_edges(pattern: str, string: str) -> bool:
    r"""Java 17 has `\b` at letters beyond ASCII, Java 19 and FlowQL do not."""
    return string.isascii() or not (r"\b" in pattern or r"\B" in pattern)


def compare_java(count: int, seed: int) -> list[Outcome]:
    given = [pair for pair in pairs("java", count, seed) if _same_edges(*pair)]
    return outcomes(given, java_matches(given), lambda p, s: matches(parse_java, p, s))


def java_matches(given: Sequence[tuple[str, str]]) -> list[str]:
    lines = "".join(f"{p.encode().hex()}\t{s.encode().hex()}\n" for p, s in given)
    done = subprocess.run(["java", str(HERE / "Matches.java")], input=lines, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def outcomes(given: Sequence[tuple[str, str]], theirs: Sequence[str], ours: Callable[[str, str], str]) -> list[Outcome]:
    made = []
    for (pattern, string), their in zip(given, theirs, strict=True):
        our = ours(pattern, string)
        made.append(Outcome(pattern, string, our, their, _verdict(our, their)))
    return made


def _verdict(ours: str, theirs: str) -> str:
    if theirs == "halves":
        return "halves"
    if ours == theirs or (theirs == WRONG and ours.startswith("Pattern")):
        return "same"
    if ours.startswith("Pattern") or ours == WRONG:
        return "refused"
    return "accepted" if theirs == WRONG else "different"


def compare_short(count: int, seed: int, dialect: str) -> list[Outcome]:
    """RE2 and Python's `re` as `short` writes it: the first match of a pattern, or all where none is empty."""
    made = []
    for pattern, string in pairs(dialect, count, seed):
        try:
            program = _program(parse_java if dialect == "java" else parse_postgres_match, pattern)
        except PatternError:
            continue
        for groups in (frozenset(range(program.groups + 1)), frozenset((0,))):
            found = short(program.pattern, groups)
            if found is None or len(string) > found.chars_max or (found.ascii_only and not string.isascii()):
                continue
            ours = [m.span(f"g{g}" if g else 0) for m in found.regex.finditer(string) for g in sorted(groups)]
            theirs = _spans(program, string, groups)
            if program.nullable:
                ours, theirs = ours[: len(groups)], theirs[: len(groups)]
            verdict = "same" if ours == theirs else "different"
            made.append(Outcome(pattern, string, str(ours), str(theirs), verdict))
    return made


def _spans(program: Program, string: str, groups: frozenset[int]) -> list[tuple[int, int]]:
    found, raw = all_matches.every(program, pa.array([string]), groups), string.encode()
    ends = (
        (int(found.groups[g][0][i]), int(found.groups[g][1][i])) for i in range(len(found.rows)) for g in sorted(groups)
    )
    return [(-1, -1) if b < 0 else (len(raw[:b].decode()), len(raw[:e].decode())) for b, e in ends]


# The matches of a pattern as `Matches.java` writes them, of `k` groups.
_FUNCTION = """
CREATE FUNCTION pg_temp.matches(p text, s text, k int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE made text[] := '{}'; groups text[]; n int := 1; b int;
BEGIN
  PERFORM s ~ p;
  LOOP
    EXIT WHEN regexp_instr(s, p, 1, n, 0, '', 0) = 0;
    groups := '{}';
    FOR g IN 0..k LOOP
      b := regexp_instr(s, p, 1, n, 0, '', g);
      groups := groups || CASE WHEN b = 0 THEN '-' ELSE format('%s-%s', b - 1, regexp_instr(s, p, 1, n, 1, '', g) - 1) END;
    END LOOP;
    made := made || array_to_string(groups, ',');
    n := n + 1;
  END LOOP;
  RETURN array_to_string(made, ' ');
EXCEPTION WHEN OTHERS THEN RETURN 'E';
END $$;
CREATE TEMP TABLE given (i int, p text, s text, k int);
COPY given FROM STDIN;
"""
_ANSWERS = """\\.
SELECT pg_temp.matches(convert_from(decode(p, 'hex'), 'UTF8') COLLATE "default", convert_from(decode(s, 'hex'), 'UTF8') COLLATE "default", k)
FROM given ORDER BY i;
"""


def compare_postgres(count: int, seed: int, dsn: str) -> list[Outcome]:
    given = list(pairs("postgres", count, seed))
    return outcomes(given, postgres_matches(given, dsn), lambda p, s: matches(parse_postgres_match, p, s))


def postgres_matches(given: Sequence[tuple[str, str]], dsn: str) -> list[str]:
    """dsn: of a server of PostgreSQL 15 or newer, as psql takes it."""
    lines = "".join(f"{i}\t{p.encode().hex()}\t{s.encode().hex()}\t{_groups(p)}\n" for i, (p, s) in enumerate(given))
    done = subprocess.run(["psql", "-qAt", dsn], input=_FUNCTION + lines + _ANSWERS, capture_output=True, text=True, check=True)  # fmt: skip
    found = done.stdout.split("\n")[:-1]
    assert len(found) == len(given), done.stderr[:1_000]
    return found


def _groups(pattern: str) -> int:
    try:
        return parse_postgres(pattern).groups
    except PatternError:
        return 0
