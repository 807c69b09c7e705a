"""The catalogue: immutable, with errors that say what is there."""

import pytest

from flowql.compiler.catalog.catalog import (
    EMPTY,
    add_source,
    add_type,
    drop_source,
    drop_type,
    find_source,
    record_query,
)
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, INT, STRING

KEY = Field("ID", INT, "key")


def source(name="S", *values, kind="stream", read_only=False):
    schema = Schema((KEY, *values))
    return SourceDef(name, kind, name.lower(), schema, Format("KAFKA"), Format("JSON"), read_only=read_only)


def test_adding_gives_a_new_catalogue():
    one = add_source(EMPTY, source())
    assert list(one.sources) == ["S"]
    assert list(EMPTY.sources) == []


def test_a_name_is_given_once():
    with pytest.raises(CompileError, match="'S': a stream of that name exists"):
        add_source(add_source(EMPTY, source()), source())


def test_unknown_names_get_a_suggestion():
    catalog = add_source(EMPTY, source("ORDERS"))
    with pytest.raises(CompileError) as caught:
        find_source(catalog, "ODERS")
    assert "ORDERS" in caught.value.diagnostics[0].help


def test_a_name_that_differs_in_case_only_asks_for_quotes():
    catalog = add_source(EMPTY, source("orders"))
    with pytest.raises(CompileError) as caught:
        find_source(catalog, "ORDERS")
    assert "quotes" in caught.value.diagnostics[0].help


def test_replacing_keeps_the_place_and_may_add_columns():
    catalog = add_source(add_source(EMPTY, source("A")), source("B"))
    replaced = add_source(catalog, source("A", Field("NEW", STRING)), or_replace=True)
    assert list(replaced.sources) == ["A", "B"]
    assert replaced.sources["A"].schema.names == ("ID", "NEW")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (source("S"), "column V was dropped"),
        (source("S", Field("V", BIGINT)), "column V changed from INT to BIGINT"),
        (source("S", Field("V", INT), kind="table"), "by a table"),
        (source("S", Field("V", INT), read_only=True), "not supported on source streams"),
    ],
)
def test_what_replacing_may_not_do(new, message):
    catalog = add_source(EMPTY, source("S", Field("V", INT)))
    with pytest.raises(CompileError, match=message):
        add_source(catalog, new, or_replace=True)


def test_a_source_in_use_is_not_dropped_and_its_own_writer_does_not_count():
    catalog = add_source(add_source(EMPTY, source("A")), source("B"))
    catalog = record_query(catalog, "CSAS_B", ("A",), "B")
    with pytest.raises(CompileError, match="cannot drop A: CSAS_B reads it"):
        drop_source(catalog, "A", "stream")
    without = drop_source(catalog, "B", "stream")
    assert list(drop_source(without, "A", "stream").sources) == []


def test_dropping_names_what_is_wrong():
    with pytest.raises(CompileError, match="Stream TEST does not exist"):
        drop_source(EMPTY, "TEST", "stream")
    assert drop_source(EMPTY, "TEST", "stream", if_exists=True) is EMPTY
    with pytest.raises(CompileError, match="it is a stream"):
        drop_source(add_source(EMPTY, source()), "S", "table")


def test_types_come_and_go():
    catalog = add_type(EMPTY, "T", INT)
    with pytest.raises(CompileError, match="T exists already as INT"):
        add_type(catalog, "T", STRING)
    assert add_type(catalog, "T", STRING, if_not_exists=True) is catalog
    assert not drop_type(catalog, "T").types
