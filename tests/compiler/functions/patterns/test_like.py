"""LIKE and ILIKE against DuckDB, over generated patterns and strings, and their cost."""

from __future__ import annotations

import random

import duckdb

from flowql.compiler.functions.patterns import like as search
from flowql.compiler.functions.patterns.like import ilike, like

SEED, PAIRS = 20240501, 20_000
LETTERS = ["a", "b", "A", "é", "É", "\n", "😀", ".", "["]


def pairs() -> list[tuple[str, str]]:
    random.seed(SEED)
    made = []
    for _ in range(PAIRS):
        pattern = "".join(random.choices([*LETTERS, "%", "%", "_", r"\%", r"\_", r"\\"], k=random.randrange(8)))
        made.append(("".join(random.choices([*LETTERS, "%", "_", "\\"], k=random.randrange(10))), pattern))
    return made


def test_like_is_that_of_duckdb() -> None:
    print(f"seed {SEED}")
    given = pairs()
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT unnest($s) AS s, unnest($p) AS p", {"s": [s for s, _ in given], "p": [p for _, p in given]})  # fmt: skip
    theirs = con.sql(r"SELECT s LIKE p ESCAPE '\', s ILIKE p ESCAPE '\' FROM t").fetchall()
    ours = [(like(s, p), ilike(s, p)) for s, p in given]
    wrong = [(pair, a, b) for pair, a, b in zip(given, ours, theirs, strict=True) if a != b]
    assert not wrong, wrong[:10]
    assert sum(a for a, _ in ours) > 500


class Counted(str):
    """A string that counts the searches in it."""

    searches = 0

    def find(self, *args: object) -> int:  # type: ignore[override]
        Counted.searches += 1
        return str.find(self, *args)  # type: ignore[arg-type]


def test_no_place_of_a_segment_is_tried_twice() -> None:
    s = Counted("a" * 80)
    assert not search.like_pattern("%a%a%a%a%a%a%b").matches(s)
    assert not search.like_pattern("%a_a%a_a%a_b%a%b").matches(s)
    assert Counted.searches < 200


def test_ilike_compares_character_by_character() -> None:
    assert ilike("ΣΑΣ", "σας") is False  # the last letter is another one
    assert ilike("ΣΑΣ", "σασ")
    assert ilike("İ", "i")
    assert ilike("İx", "_X")


def test_long_patterns_are_not_kept() -> None:
    """The segments of a megabyte of pattern take a hundred megabytes, and those of 512 patterns were kept."""
    kept = search._known.cache_info().currsize
    assert like("a" * 2_000, "%a" * 1_000)
    assert ilike("A" * 2_000, "%a" * 1_000)
    assert search._known.cache_info().currsize == kept
