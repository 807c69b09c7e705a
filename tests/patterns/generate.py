"""Random patterns of a dialect, and strings that some of them match."""

from __future__ import annotations

import random
from collections.abc import Iterator

COMMON = ["a", "b", "c", "A", "0", "1", "_", "-", " ", "é", ".", ".", "[ab]", "[^a]", "[a-c0-9]", "[^\\w]", "\\w", "\\d", "\\s", "\\W", "\\D", "\\S", "\\.", "\\n", "x", "ab", "@"]  # fmt: skip
JAVA = ["[a-z&&[^b]]", "[a-c&&b-d]", "[[ab]c]", "[^[a]b]", "\\p{Alpha}", "\\p{L}", "\\P{Lu}", "\\p{Punct}", "\\p{Lower}", "\\Qa.b\\E", "\\x41", "\\u0061", "\\x{e9}", "\\h", "\\v", "\\R", "\\t", "(?i)", "(?i:a)", "(?s).", "(?-i)", "(?d)", "[a&&]", "[a-]", "[-a]", "[]a]", "[a&b]", "[&&a]", "[^&&a]", "[a[b]&&c]", "[ab&&[bc]d]", "[a&&b&&c]", "\\07", "[\\d-x]", "\\Z"]  # fmt: skip
JAVA_PLACES = ["^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z"]
POSTGRES = ["[[:alpha:]]", "[[:digit:]a]", "[^[:space:]]", "[[:punct:]]", "[[:upper:]]", "[]a]", "[a-]", "[-a]", "[\\w.]", "\\x61", "\\u0061", "\\t", "[[.a.]]", "[[=a=]]", "[^\\d]", "[\\D]"]  # fmt: skip
POSTGRES_PLACES = ["^", "$", "\\A", "\\Z"]
TIMES = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}", "{2,}", "{1,2}?", "{0}"]
GREEDY = [t for t in TIMES if not (len(t) > 1 and t.endswith("?"))]
LETTERS = ["a", "b", "c", "A", "B", "0", "1", "_", "-", " ", "é", "É", ".", "\n", "x", "@", "ab", "\r\n", "\r", "\u2028", "😀", "&", "]"]  # fmt: skip


def pairs(dialect: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    random.seed(seed)
    for _ in range(count):
        yield pattern(dialect), string()


def string() -> str:
    return "".join(random.choices(LETTERS, k=random.choice((0, 1, 2, 3, 4, 5, 6, 8))))


def pattern(dialect: str) -> str:
    made = _alternatives(dialect, 3)
    if random.random() < 0.1:
        return _mutated(made)
    if dialect == "postgres" and random.random() < 0.1:
        return random.choice(("(?i)", "(?n)", "(?s)", "(?p)", "(?w)")) + made
    return made


def _mutated(text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice("()[]{}*+?|\\^$-&.") + text[at + random.randrange(2) :]


def _alternatives(dialect: str, depth: int) -> str:
    return "|".join(_branch(dialect, depth) for _ in range(random.choice((1, 1, 1, 2, 3))))


def _branch(dialect: str, depth: int) -> str:
    parts = []
    if random.random() < 0.1:
        parts.append(random.choice(JAVA_PLACES if dialect == "java" else POSTGRES_PLACES))
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        parts.append(_part(dialect, depth))
    if random.random() < 0.15:
        parts.append(random.choice(JAVA_PLACES if dialect == "java" else POSTGRES_PLACES))
    return "".join(parts)


def _part(dialect: str, depth: int) -> str:
    if depth and random.random() < 0.25:
        inner = _alternatives(dialect, depth - 1)
        atom = random.choice((f"({inner})", f"({inner})", f"(?:{inner})"))
    else:
        own = JAVA if dialect == "java" else POSTGRES
        atom = random.choice(own if random.random() < 0.25 else COMMON)
    if random.random() < 0.4:
        few = dialect == "postgres" and random.random() < 0.8
        atom += random.choice(GREEDY if few else TIMES)
    return atom
