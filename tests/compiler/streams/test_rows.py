"""Rows as Python has them: classes as columns, values as objects and back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.plan.types import BIGINT, DOUBLE, STRING, array, map_of, struct
from flowql.compiler.streams.rows import reader, row_type, writer


@dataclass
class Part:
    name: str
    weight: float


@dataclass
class Parcel:
    id: int
    parts: list[Part]
    first: Part | None
    by_name: dict[str, Part]


PART = struct(("name", STRING), ("weight", DOUBLE))
PARCEL = struct(("id", BIGINT), ("parts", array(PART)), ("first", PART), ("by_name", map_of(STRING, PART)))
DATA: dict[str, Any] = {
    "id": 1,
    "parts": [{"name": "a", "weight": 1.5}, None],
    "first": None,
    "by_name": {"b": {"name": "b", "weight": 2.0}},
}


def test_fields_are_columns_and_classes_within_are_structs() -> None:
    assert row_type(Parcel, "value").type == PARCEL


def test_objects_are_made_of_values_and_become_values_again() -> None:
    made = reader(PARCEL, Parcel)(DATA)
    assert made == Parcel(1, [Part("a", 1.5), None], None, {"b": Part("b", 2.0)})  # type: ignore[list-item]
    assert writer(row_type(Parcel, "value"))(made) == DATA


def test_columns_in_capitals_are_fields_in_small_letters() -> None:
    assert reader(struct(("NAME", STRING), ("WEIGHT", DOUBLE), ("X", BIGINT)), Part)(
        {"NAME": "a", "WEIGHT": 1.0, "X": 2}
    ) == Part("a", 1.0)


def test_a_field_without_a_column_is_refused() -> None:
    with pytest.raises(FunctionTypeError, match="Part has the field weight"):
        reader(struct(("NAME", STRING)), Part)


def test_dicts_have_types_by_name_and_values_as_functions_take_them() -> None:
    row = row_type({"at": datetime, "day": date, "price": Annotated[Decimal, 6, 2]}, "value")
    data = writer(row)({"at": datetime(1970, 1, 2), "day": date(1970, 1, 3), "price": Decimal("1.5")})
    assert data == {"at": 86_400_000, "day": 2, "price": Decimal("1.50")}
    assert reader(row.type, None)(data) == {
        "at": datetime(1970, 1, 2),
        "day": date(1970, 1, 3),
        "price": Decimal("1.50"),
    }


def test_models_of_msgspec_are_rows() -> None:
    msgspec = pytest.importorskip("msgspec")
    item = msgspec.defstruct("Item", [("name", str), ("weight", float)])
    assert row_type(item, "value").type == PART
    assert writer(row_type(item, "value"))(reader(PART, item)({"name": "a", "weight": 2.0})) == {
        "name": "a",
        "weight": 2.0,
    }


@pytest.mark.parametrize("given", [int, "Order", {}, object, None])
def test_what_does_not_say_columns_is_refused(given: Any) -> None:
    with pytest.raises(DefinitionError, match="does not say columns"):
        row_type(given, "value of map")
