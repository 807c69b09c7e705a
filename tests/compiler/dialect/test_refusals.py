"""Words of other SQL dialects behind a source, in ksqlDB's dialect: refused by their name, where they used to be read as aliases."""

import pytest

from flowql.compiler.diagnostics.diagnostic import ParseError, UnsupportedError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Query
from flowql.compiler.dialect.parser import parse_query


def query(text: str) -> Query:
    return parse_query(SourceText("", text))


def refused(text: str, named: str, at: str) -> None:
    """Refused as not supported: the title names the construct, the caret stands under its words."""
    with pytest.raises(UnsupportedError) as caught:
        query(text)
    (found,) = caught.value.diagnostics
    assert found.code == "FQ1901"
    assert found.unsupported
    assert found.title == f"{named} is not supported yet"
    assert found.span.line_text[found.span.column - 1 :][: found.span.length] == at


@pytest.mark.parametrize(
    "kind",
    [
        "ANTI",
        "SEMI",
        "ASOF",
        "NATURAL",
        "NATURAL LEFT",
        "ANY",
        "CROSS",
        "LEFT ANTI",
        "LEFT SEMI",
        "ASOF LEFT",
        "GLOBAL ANY LEFT",
        "POSITIONAL",
        "TEMPORAL",
    ],
)
def test_kinds_of_join_that_have_no_operator(kind: str) -> None:
    refused(f"SELECT id FROM a {kind} JOIN b ON x = y", f"{kind} JOIN", kind)


def test_a_second_join_is_read_no_differently() -> None:
    refused("SELECT id FROM a JOIN b ON x = y anti JOIN c ON x = z", "ANTI JOIN", "anti")
    refused("SELECT id FROM a x NATURAL JOIN c", "NATURAL JOIN", "NATURAL")


def test_lateral() -> None:
    refused("SELECT id FROM a JOIN LATERAL (SELECT 1 FROM b) ON x = y", "LATERAL", "LATERAL")
    refused("SELECT id FROM a LATERAL JOIN b ON x = y", "LATERAL JOIN", "LATERAL")


@pytest.mark.parametrize("operation", ["UNION", "INTERSECT", "EXCEPT", "MINUS", "UNION ALL", "EXCEPT ALL"])
def test_set_operations(operation: str) -> None:
    refused(f"SELECT id FROM a {operation} SELECT id FROM b", operation, operation.split()[0])
    refused(f"SELECT id FROM a WHERE x {operation} SELECT id FROM b", operation, operation.split()[0])


@pytest.mark.parametrize(
    ("text", "named", "at"),
    [
        ("SELECT id FROM a JOIN b USING (id)", "JOIN ... USING", "USING"),
        ("SELECT id FROM a CROSS APPLY b", "CROSS APPLY", "CROSS"),
        ("SELECT id FROM a TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE", "TABLESAMPLE"),
        ("SELECT id FROM a PIVOT (x FOR y IN (1))", "PIVOT", "PIVOT"),
        ("SELECT id FROM a MATCH_RECOGNIZE (x)", "MATCH_RECOGNIZE", "MATCH_RECOGNIZE"),
        ("SELECT id FROM a QUALIFY rank = 1", "QUALIFY", "QUALIFY"),
    ],
)
def test_clauses_behind_a_source(text: str, named: str, at: str) -> None:
    refused(text, named, at)


def test_an_unknown_word_before_join_is_no_kind_of_join() -> None:
    with pytest.raises(ParseError, match="`SIDEWAYS` is not a kind of join"):
        query("SELECT id FROM a x SIDEWAYS JOIN b ON x = y")


def test_the_words_stay_names_where_they_can_be_nothing_else() -> None:
    assert query("SELECT id FROM a AS anti JOIN b ON x = y").source.alias in ("anti", "ANTI")
    assert query("SELECT id FROM a `SEMI` JOIN b ON x = y").source.alias == "SEMI"
    assert query("SELECT anti FROM semi WHERE asof = natural").source.name in ("semi", "SEMI")
    assert query("SELECT id FROM a any WHERE any.x = 1").source.alias in ("any", "ANY")


def test_ksqldb_takes_such_words_as_aliases_that_the_statement_uses() -> None:
    parsed = query("SELECT anti.id FROM a anti JOIN b ON anti.x = b.y")
    assert (parsed.source.alias, len(parsed.joins)) == ("ANTI", 1)
    assert query("SELECT id FROM a EXCEPT WHERE id > 1").source.alias == "EXCEPT"
    assert query("SELECT id FROM a OFFSET").source.alias == "OFFSET"
    assert query("SELECT id FROM lateral l").source.name == "LATERAL"
