"""JSON as ksqlDB's deserializer and serializer have it.

Reading (KsqlJsonDeserializer): fields are found by their exact name, else by the upper case of what is written, the last
one winning; an absent field is NULL. STRING takes anything (numbers by their exact text, objects as compact JSON),
numbers take numeric texts, whole numbers are cut toward zero and wrapped, BOOLEAN takes only true and false. Sources of
standard SQL find fields in any case, and take no number that an integer type cannot hold. What
cannot be coerced makes the whole record bad. A null document is a null side.

Writing: columns as declared, NULLs present, DECIMAL as a number with its scale, BYTES in base64, DATE in days, TIME and
TIMESTAMP in ms. A DOUBLE is written in one canonical way (`double_json`), so that both kernels give equal bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any

import orjson

from flowql.compiler.functions.casts import parse_decimal, parse_double
from flowql.compiler.functions.generated import compiled
from flowql.compiler.functions.numeric import BIGINT_MAX, BIGINT_MIN, INT_MAX, INT_MIN, fit_decimal, wrap32, wrap64
from flowql.compiler.functions.values import decimal_text
from flowql.compiler.plan.logical import SchemaRef
from flowql.compiler.plan.types import Kind, SqlType, struct
from flowql.runtime.batch import Row
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.json_schema_values import has_units, reading, writing
from flowql.runtime.serde.numbers import day_time, days, java_integer, moment, moment_in_micros, whole
from flowql.runtime.serde.registry import PREFIX, numbered, prefix, split_prefix, written_by

Convert = Callable[[Any], Any]
_SCHEMAS_MAX = 1_000
_SPELLINGS_MAX = 1_000  # key sequences remembered per decoder; documents beyond that are resolved one by one


# When a parsed value is a reference value already.
_AS_IS = {
    Kind.BOOLEAN: "type({0}) is bool",
    Kind.INT: f"type({{0}}) is int and {INT_MIN} <= {{0}} <= {INT_MAX}",
    Kind.BIGINT: f"type({{0}}) is int and {BIGINT_MIN} <= {{0}} <= {BIGINT_MAX}",
    Kind.TIMESTAMP: f"type({{0}}) is int and {BIGINT_MIN} <= {{0}} <= {BIGINT_MAX}",
    Kind.MICROS: f"type({{0}}) is int and {BIGINT_MIN} <= {{0}} <= {BIGINT_MAX}",
    Kind.DOUBLE: "type({0}) is float",
    Kind.STRING: "type({0}) is str",
}


class _NeedsText(Exception):
    """A value whose meaning depends on its exact text, which the fast parser has lost."""


class _Mismatch(Exception):
    """A value that cannot be coerced; the text says which and to what."""


class JsonDecoder:
    """Reads the wanted ones of the declared columns.

    The document is parsed by orjson; only when a coercion needs the exact text of a number is it parsed again with
    decimals. Documents of a schema with DECIMAL always are.
    """

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[SqlType],
        wanted: Sequence[int],
        *,
        wrapped: bool,
        standard: bool = False,
    ) -> None:
        self._fields = [(names[i], converter(types[i], standard=standard)) for i in wanted]
        self._coerce = _coercer([types[i].kind for i in wanted], [convert for _, convert in self._fields])
        self._wrapped = wrapped
        self._exact = any(_has_decimal(types[i]) for i in wanted)
        self._finder = _Finder([names[i] for i in wanted], any_case=standard)

    def decode(self, data: bytes | None, within: Callable[[Any], Any] | None = None) -> Row | None:
        """within: from the parsed document to the part of it that has the columns."""
        if data is None:
            return None
        try:
            document = orjson.loads(data)
            if self._exact:
                document = _exact(data)
            try:
                return self._row(document if within is None else within(document))
            except _NeedsText:
                document = _exact(data)
                return self._row(document if within is None else within(document))
        except orjson.JSONDecodeError as e:
            raise BadRecord(f"not JSON: {e}") from e
        except _Mismatch as e:
            raise BadRecord(str(e)) from e

    def _row(self, document: Any) -> Row | None:
        if document is None:
            return None
        if not self._wrapped:
            return tuple([_convert(convert, document, name) for name, convert in self._fields])
        if type(document) is not dict:
            raise _Mismatch(f"the record is {_what(document)}, not an object")
        values = self._finder.values(document)
        try:
            return self._coerce(*values)
        except (_Mismatch, ValueError, ArithmeticError):  # again, slowly, to name the field
            named = zip(values, self._fields, strict=True)
            return tuple([None if v is None else _convert(convert, v, name) for v, (name, convert) in named])


def _coercer(kinds: Sequence[Kind], converts: Sequence[Convert]) -> Callable[..., Row]:
    """A generated function from parsed values to a row: no call for values that are right already."""
    names = [f"v{i}" for i in range(len(kinds))]
    lines = [f"def coerce({', '.join(names)}):"]
    for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        right = _AS_IS.get(kind, "False").format(name)
        lines.append(f"    if {name} is not None and not ({right}): {name} = c{i}({name})")
    lines.append(f"    return ({', '.join(names)}{',' if names else ''})")
    scope: dict[str, Any] = {f"c{i}": c for i, c in enumerate(converts)}
    exec(compiled("\n".join(lines)), scope)
    coerce: Callable[..., Row] = scope["coerce"]
    return coerce


class _Finder:
    """Finds the fields of an object by exact name, else by upper case; remembers what it found per sequence of keys.

    any_case: a name that is not in upper case itself finds them as well.
    """

    def __init__(self, names: Sequence[str], *, any_case: bool) -> None:
        self._names = tuple(names)
        self._others = tuple(n.upper() for n in names) if any_case else self._names
        self._known: dict[tuple[str, ...], Callable[[Mapping[str, Any]], Sequence[Any]]] = {}

    def values(self, document: Mapping[str, Any]) -> Sequence[Any]:
        keys = tuple(document)
        pick = self._known.get(keys)
        if pick is None:
            if len(self._known) >= _SPELLINGS_MAX:
                self._known.clear()
            pick = self._known[keys] = self._picker(keys)
        return pick(document)

    def _picker(self, keys: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
        upper = {k.upper(): k for k in keys}
        found = [n if n in keys else upper.get(other) for n, other in zip(self._names, self._others, strict=True)]
        present = [k for k in found if k is not None]
        if len(present) == len(found) >= 2:
            return itemgetter(*present)
        return lambda document: [None if k is None else document[k] for k in found]


def _convert(convert: Convert, value: Any, name: str) -> Any:
    try:
        return convert(value)
    except _Mismatch as e:
        raise _Mismatch(f"{name}: {e}") from None
    except (ValueError, ArithmeticError, binascii.Error) as e:
        raise _Mismatch(f"{name}: {e}") from e


def _exact(data: bytes) -> Any:
    """The document with decimals for numbers that have a fraction or exponent. `data` is known to be JSON."""
    try:
        return json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError) as e:
        raise _Mismatch(f"not readable JSON: {e}") from e


def _has_decimal(t: SqlType) -> bool:
    return t.kind is Kind.DECIMAL or any(map(_has_decimal, t.args)) or any(_has_decimal(f) for _, f in t.fields)


def _what(v: Any) -> str:
    try:
        text = orjson.dumps(v, default=str).decode()
    except TypeError:  # a number beyond 64 bits, a lone surrogate, or hundreds of levels
        text = json.dumps(v, default=str, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 40 else text[:37] + "..."


def converter(t: SqlType, *, standard: bool = False) -> Convert:
    """Coercion of a parsed, non-null JSON value to `t`. Raises _Mismatch, _NeedsText, ValueError or ArithmeticError.

    standard: integers neither wrap nor lose a fraction, and fields of objects are found in any case.
    """
    if t.kind in _SCALARS:
        return _EXACT[t.kind] if standard and t.kind in _EXACT else _SCALARS[t.kind]
    if t.kind is Kind.DECIMAL:
        return lambda v: fit_decimal(parse_decimal(v) if type(v) is str else _number(v, t), t.precision, t.scale)
    if t.kind is Kind.ARRAY:
        return _array(t, converter(t.element, standard=standard))
    if t.kind is Kind.MAP:
        return _map(t, converter(t.args[1], standard=standard))
    return _struct(t, [converter(f, standard=standard) for _, f in t.fields], any_case=standard)


def values_of(values: Iterable[Any], t: SqlType, name: str) -> list[Any]:
    """Values of parsed JSON, whose fractions are Decimal, as reference values of `t`. Raises BadRecord. name: of the column."""
    convert = converter(t, standard=True)
    try:
        return [None if v is None else _convert(convert, v, name) for v in values]
    except (_Mismatch, _NeedsText) as e:
        raise BadRecord(str(e)) from e


def _number(v: Any, t: SqlType) -> Decimal:
    if type(v) is Decimal or type(v) is int:
        return Decimal(v)
    if type(v) is float:
        raise _NeedsText
    raise _Mismatch(f"{_what(v)} is not a valid {t}")


def _boolean(v: Any) -> bool:
    if type(v) is bool:
        return v
    raise _Mismatch(f"{_what(v)} is not a valid BOOLEAN")


def _integer(v: Any, name: str) -> int:
    if type(v) is int:
        return v
    if type(v) is float:
        raise _NeedsText
    if type(v) is Decimal:
        return whole(v)
    raise _Mismatch(f"{_what(v)} is not a valid {name}")


def _int(v: Any) -> int:
    if type(v) is str:
        return java_integer(v, INT_MIN, INT_MAX)
    n = _integer(v, "INT")
    return n if INT_MIN <= n <= INT_MAX else wrap32(n)


def _bigint(v: Any) -> int:
    if type(v) is int and BIGINT_MIN <= v <= BIGINT_MAX:
        return v
    if type(v) is str:
        return java_integer(v, BIGINT_MIN, BIGINT_MAX)
    n = _integer(v, "BIGINT")
    return n if BIGINT_MIN <= n <= BIGINT_MAX else wrap64(n)


def _exact_integer(name: str, low: int, high: int) -> Convert:
    def convert(v: Any) -> int:
        if type(v) is str:
            return java_integer(v, low, high)
        if type(v) is float:
            raise _NeedsText
        if type(v) is not int and type(v) is not Decimal:
            raise _Mismatch(f"{_what(v)} is not a valid {name}")
        if not low <= v <= high:
            raise _Mismatch(f"{str(v)[:40]} does not fit {name}")
        if v != int(v):
            raise _Mismatch(f"{str(v)[:40]} is not a valid {name}: it has a fraction")
        return int(v)

    return convert


def _double(v: Any) -> float:
    if type(v) is float:
        return v
    if type(v) is int or type(v) is Decimal:
        try:
            return float(v)
        except OverflowError:
            return math.inf if v > 0 else -math.inf
    if type(v) is str:
        return parse_double(v)
    raise _Mismatch(f"{_what(v)} is not a valid DOUBLE")


def _string(v: Any) -> str:
    if type(v) is str:
        return v
    if type(v) is bool:
        return "true" if v else "false"
    if type(v) is int:
        return str(v)
    if type(v) is Decimal:
        return str(v)  # the same text as java.math.BigDecimal.toString
    if type(v) is float:
        raise _NeedsText
    return _compact(v)


def _compact(v: Any) -> str:
    """A parsed value as compact JSON text; numbers keep their text."""
    if type(v) is float:
        raise _NeedsText
    if type(v) is dict:
        return "{" + ",".join(f"{_quote(k)}:{_compact(x)}" for k, x in v.items()) + "}"
    if type(v) is list:
        return "[" + ",".join(map(_compact, v)) + "]"
    if type(v) is str:
        return _quote(v)
    return "null" if v is None else _string(v)


def _quote(s: str) -> str:
    return orjson.dumps(s).decode()


def _bytes(v: Any) -> bytes:
    if type(v) is str:
        return base64.b64decode(v, validate=True)
    raise _Mismatch(f"{_what(v)} is not a valid BYTES (a base64 string)")


_SCALARS: dict[Kind, Convert] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _int,
    Kind.BIGINT: _bigint,
    Kind.DOUBLE: _double,
    Kind.STRING: _string,
    Kind.BYTES: _bytes,
    Kind.DATE: days(_bigint),
    Kind.TIME: day_time(_bigint),
    Kind.TIMESTAMP: moment(_bigint),
    Kind.MICROS: moment_in_micros(_bigint),
}
_exact_bigint = _exact_integer("BIGINT", BIGINT_MIN, BIGINT_MAX)
_EXACT: dict[Kind, Convert] = {
    Kind.INT: _exact_integer("INT", INT_MIN, INT_MAX),
    Kind.BIGINT: _exact_bigint,
    Kind.DATE: days(_exact_bigint),
    Kind.TIME: day_time(_exact_bigint),
    Kind.TIMESTAMP: moment(_exact_bigint),
    Kind.MICROS: moment_in_micros(_exact_bigint),
}


def _array(t: SqlType, element: Convert) -> Convert:
    def convert(v: Any) -> list[Any]:
        if type(v) is not list:
            raise _Mismatch(f"{_what(v)} is not a valid {t}")
        return [None if x is None else element(x) for x in v]

    return convert


def _map(t: SqlType, value: Convert) -> Convert:
    def convert(v: Any) -> dict[str, Any]:
        if type(v) is not dict:
            raise _Mismatch(f"{_what(v)} is not a valid {t}")
        return {k: None if x is None else value(x) for k, x in v.items()}

    return convert


def _struct(t: SqlType, converts: Sequence[Convert], *, any_case: bool) -> Convert:
    names = [n for n, _ in t.fields]
    finder = _Finder(names, any_case=any_case)

    def convert(v: Any) -> dict[str, Any]:
        if type(v) is not dict:
            raise _Mismatch(f"{_what(v)} is not a valid {t}")
        found = zip(names, converts, finder.values(v), strict=True)
        return {n: None if x is None else c(x) for n, c, x in found}

    return convert


class JsonEncoder:
    """Writes all columns of a side."""

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], *, wrapped: bool) -> None:
        self._names = tuple(names)
        self._prepared = [(i, p) for i, t in enumerate(types) if (p := preparer(t)) is not None]
        self._wrapped = wrapped

    def encode(self, row: Row) -> bytes | None:
        values: Sequence[Any] = row
        if self._prepared:
            values = list(row)
            for i, prepare in self._prepared:
                if (v := row[i]) is not None:
                    values[i] = prepare(v)
        if self._wrapped:
            return _dumps(dict(zip(self._names, values, strict=True)))
        return None if not values or values[0] is None else _dumps(values[0])


def _dumps(document: Any) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:  # half a surrogate pair or a null key of a map: Java writes a question mark, and "null"
        return orjson.dumps(_clean(document))


def _clean(v: Any) -> Any:
    if isinstance(v, str):
        return v.encode("utf-8", "replace").decode()
    if isinstance(v, dict):
        return {"null" if k is None else _clean(k): _clean(x) for k, x in v.items()}
    return [_clean(x) for x in v] if isinstance(v, list) else v


def double_json(d: float) -> str:
    """The canonical JSON text of a DOUBLE: the shortest digits that read back equal; plain from 1e-6 to below 1e21.

    NaN and the infinities, which JSON lacks, are written as texts, as Jackson does.
    """
    if d != d or math.isinf(d):
        return '"NaN"' if d != d else '"Infinity"' if d > 0 else '"-Infinity"'
    if _same_in_orjson(d):
        return orjson.dumps(d).decode()
    if 1e-6 <= abs(d) < 1e21:
        text = format(Decimal(repr(d)), "f")
        return text if "." in text else text + ".0"
    mantissa, _, exponent = repr(d).partition("e")
    return f"{mantissa}e{int(exponent)}"


def _same_in_orjson(d: float) -> bool:
    return 1e-5 <= d < 1e16 or -1e16 < d <= -1e-5 or d == 0.0


def _prepare_double(d: float) -> Any:
    return d if _same_in_orjson(d) else orjson.Fragment(double_json(d))


def preparer(t: SqlType) -> Convert | None:
    """The conversion of a non-null value for orjson; None if orjson writes the value correctly as it is."""
    if t.kind is Kind.DOUBLE:
        return _prepare_double
    if t.kind is Kind.DECIMAL:
        return lambda v: orjson.Fragment(decimal_text(v))
    if t.kind is Kind.BYTES:
        return lambda v: base64.b64encode(v).decode()
    if t.kind is Kind.ARRAY and (element := preparer(t.element)) is not None:
        return lambda v: [None if x is None else element(x) for x in v]
    if t.kind is Kind.MAP and (value := preparer(t.args[1])) is not None:
        return lambda v: {k: None if x is None else value(x) for k, x in v.items()}
    if t.kind is Kind.STRUCT:
        fields = [(n, preparer(f)) for n, f in t.fields]
        return lambda v: {n: x if (x := v.get(n)) is None or p is None else p(x) for n, p in fields}
    return None


class JsonObjectDecoder:
    """Keys that are a JSON object, also of a single column, with or without Kafka Connect's schema: `{"id": 1}` and `{"schema": ..., "payload": {"id": 1}}`."""

    def __init__(self, columns: JsonDecoder) -> None:
        self._columns = columns

    def decode(self, data: bytes | None) -> Row | None:
        return self._columns.decode(data, within=_payload)


def _payload(document: Any) -> Any:
    connect = isinstance(document, dict) and set(document) == {"schema", "payload"}
    return document["payload"] if connect else document


class JsonRegistryDecoder:
    """JSON_SR: the JSON format behind a zero byte and the id of a JSON Schema, which tells the units of times."""

    def __init__(
        self,
        document: JsonDecoder,
        columns: Sequence[tuple[str, SqlType]],
        ref: SchemaRef | None,
        *,
        wrapped: bool,
    ) -> None:
        """columns: those that are read. ref: the schema that the source is declared with. wrapped: as of `JsonRegistryEncoder`."""
        self._document, self._ref = document, ref
        self._type = struct(*columns) if wrapped or not columns else columns[0][1]
        self._units: dict[int, Convert | None] | None = {} if has_units(self._type) else None  # by the schema's id

    def decode(self, data: bytes | None) -> Row | None:
        if data is None:
            return None
        id_ = split_prefix(data)
        if self._units is None:
            return self._document.decode(data[PREFIX:])
        if id_ not in self._units:
            if len(self._units) >= _SCHEMAS_MAX:
                self._units.clear()
            self._units[id_] = reading(self._type, self._text(id_))
        return self._document.decode(data[PREFIX:], self._units[id_])

    def _text(self, schema_id: int) -> str | None:
        """The schema of that id; None if it is not known. Raises RegistryUnavailable."""
        try:
            return written_by(schema_id, self._ref, "JSON").text
        except BadRecord:
            return None


class JsonRegistryEncoder:
    """Puts the prefix before, and times in the units of the schema."""

    def __init__(
        self, document: JsonEncoder, columns: Sequence[tuple[str, SqlType]], ref: SchemaRef, *, wrapped: bool
    ) -> None:
        """wrapped: the columns are fields of one object; else there is one, which is the document."""
        self._document, self._prefix = document, prefix(numbered(ref).id)
        self._names = [name for name, _ in columns] if wrapped else None
        self._units = writing(struct(*columns) if wrapped else columns[0][1], ref.text)

    def encode(self, row: Row) -> bytes | None:
        if self._units is not None:
            row = self._in_units(self._units, row)
        data = self._document.encode(row)
        return None if data is None else self._prefix + data

    def _in_units(self, units: Convert, row: Row) -> Row:
        if self._names is None:
            return tuple(None if v is None else units(v) for v in row)
        return tuple(units(dict(zip(self._names, row, strict=True))).values())
