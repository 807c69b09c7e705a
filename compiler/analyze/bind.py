"""Syntax trees of expressions to typed expressions of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal

from flowql.compiler.analyze.advice import ADVICE, OF_OTHER_SYSTEMS, closer_than_json, for_compared, for_operands
from flowql.compiler.analyze.literals import bind_literal, time_literal
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.operators import (
    OPERATORS,
    STANDARD_OPERATORS,
    equality_value,
    interval_numbers,
    json_order,
    taken,
)
from flowql.compiler.analyze.scope import Scope, resolve
from flowql.compiler.analyze.standard_forms import FORMS, REWRITES, as_function, narrowed_parts, narrowing, over_rows
from flowql.compiler.analyze.standard_functions import (
    beside_numbers,
    beside_typed,
    called,
    in_micros,
    row_as,
    text_as,
)
from flowql.compiler.analyze.types import ANY_DIGITS, as_written, cast_type
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.catalog.names import correction, did_you_mean
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.edits import behind, renamed, written
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import Ast, CastTo, Func, LambdaFn, Lit, Name, Star, TypeRef
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.texts import text_of
from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.coercion import convert, unify
from flowql.compiler.functions.collecting_aggregates import LIMIT_PROPERTIES
from flowql.compiler.functions.dialects import function_name
from flowql.compiler.functions.registry import NAMES as STANDARD_NAMES
from flowql.compiler.functions.registry import AggregateFunction, Function, all_aggregates, all_functions, lookup
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_calendar import DIGITS, common_moment, finer
from flowql.compiler.functions.sql_casts import rounded_from, sql_cast
from flowql.compiler.functions.sql_comparison import has_sql_order
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar, Literal
from flowql.compiler.plan.logical import AggregateCall, NamedExpr
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START
from flowql.compiler.plan.types import BOOLEAN, INT, INTERVAL, JSONB, SPAN, TIMESTAMPTZ, Kind, SqlType

_COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "is_distinct": "IS DISTINCT FROM", "is_not_distinct": "IS NOT DISTINCT FROM"}  # fmt: skip
_MATCHING = ("like", "ILIKE", "SIMILAR")  # NOT LIKE is bound as the opposite of LIKE
_OF_JSON = {"JSONB_FIELD": "->", "JSONB_FIELD_TEXT": "->>"}
_BESIDE_STRINGS = (*_COMPARISONS, *_MATCHING, *_OF_JSON, "in", "not_in")
_ARITHMETIC = ("add", "mul", "div", "mod")
_NO_SESSION: Mapping[str, str] = {}
_TEMPORAL = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)


@dataclass(slots=True)
class Collected:
    """The calls taken out of a select list's expressions, in order of appearance."""

    aggregates: list[AggregateCall] = field(default_factory=list)
    aggregate_texts: list[str] = field(default_factory=list)
    table_functions: list[NamedExpr] = field(default_factory=list)


AGGREGATE_PREFIX, EXPLODE_PREFIX = "__agg_", "__explode_"


class Binder:
    """Binds the expressions of one clause.

    clause: for messages. collected: where aggregates and table functions go; None where neither is allowed.
    bounds: WINDOWSTART and WINDOWEND of the query's own window may be named. session: properties that configure functions.
    """

    def __init__(
        self,
        scope: Scope,
        catalog: Catalog,
        clause: str,
        *,
        collected: Collected | None = None,
        bounds: Scope | None = None,
        session: Mapping[str, str] = _NO_SESSION,
    ) -> None:
        self._scope, self._catalog, self._clause = scope, catalog, clause
        self._collected, self._bounds, self._session = collected, bounds, session
        self.standard = catalog.standard  # whether expressions mean what they mean in SQL
        self._operators = STANDARD_OPERATORS if self.standard else OPERATORS
        self._lambda: list[dict[str, SqlType]] = []
        self._inside: str = ""  # the aggregate whose arguments are being bound
        self._in_case = False

    def bind(self, node: Ast) -> Expr:
        """The typed expression of `node`. Raises CompileError."""
        if isinstance(node, Name):
            return self._name(node)
        if isinstance(node, Lit):
            return bind_literal(node)
        if isinstance(node, CastTo):
            return self._cast(node)
        if isinstance(node, Func):
            return self._function(node)
        if isinstance(node, t.Call):
            return self._function(as_function(node))
        if type(node) in FORMS:
            return self.bind(FORMS[type(node)](node))
        if isinstance(node, LambdaFn):
            raise mistake(
                "FQ2005", f"the lambda {text_of(node)} is not an argument of a function", node.span, "stands alone"
            )
        raise mistake("FQ2005", f"{text_of(node)} cannot be used inside an expression", node.span, "not a value")

    def condition(self, node: Ast) -> Expr:
        """`node` as the condition of the clause; it must be BOOLEAN."""
        e = self.bind(node)
        if self.standard and isinstance(e, Literal) and e.type.kind is Kind.NULL:
            return Literal(BOOLEAN, None, e.span)
        if e.type.kind is not Kind.BOOLEAN:
            title = f"type error in {self._clause} expression: should evaluate to boolean but is {text_of(node)} ({e.type}) instead"
            span = node.span
            edit = behind(span, " <> 0") if e.type.is_numeric and self.standard and span != NOWHERE else None
            raise mistake("FQ2007", title, span, f"this is {e.type}", help="compare it with something", edit=edit)
        return e

    def _name(self, node: Name) -> Expr:
        if len(node.parts) == 1:
            for frame in reversed(self._lambda):
                if node.parts[0] in frame:
                    return LambdaVar(frame[node.parts[0]], node.parts[0], node.span)
        if self._bounds is not None and node.parts[-1] in {c.name for c in self._bounds.columns}:
            return self._bounds_column(node)
        found = resolve(self._scope, node, self._clause)
        e = found.expr()
        return taken(type(e)(e.type, e.name, node.span))

    def _bounds_column(self, node: Name) -> Expr:
        assert self._bounds is not None
        column = next(c for c in self._bounds.columns if c.name == node.parts[-1])
        if self._inside:
            title = f"window bounds column {column.name} cannot be used inside {self._inside}"
            raise mistake("FQ2020", title, node.span, "not known before the window is")
        return column.expr()

    # --- functions and operators ---

    def _function(self, node: Func) -> Expr:
        try:
            if (meant := self._meant(node)) is not None:
                return self.bind(meant)
            operator = self._operators.get(node.name)
            if (node.distinct or node.filter is not None) and self._catalog.aggregate(node.name) is None:
                word = "DISTINCT" if node.distinct else "FILTER"
                title = f"{node.name} is not an aggregate and takes no {word}"
                raise mistake("FQ2020", title, node.span, "not an aggregate", help=f"leave {word} out")
            if operator is not None:
                outer, self._in_case = self._in_case, self._in_case or node.name == "case"
                bound = operator(self.bind, node)
                self._in_case = outer
                return bound
            if node.name == "neg":
                return self._negation(node)
            if node.name in _COMPARISONS:
                return self._comparison(node)
            aggregate = self._catalog.aggregate(node.name)
            if aggregate is not None:
                return self._aggregate(node, aggregate)
            function = self._function_of(node)
            if function is None:
                raise self._unknown(node)
            return self._table_call(node, function) if function.table else self._call(node, function)
        except CompileError as error:
            raise self._mistaken(node, error) or error from None

    def _meant(self, node: Func) -> Ast | None:
        """The simpler expression that a form of standard SQL abbreviates. None if the node is bound as it is written."""
        if not self.standard or node.distinct or node.filter is not None:
            return None
        if node.args and t.is_row(node.args[0]) and (whole := over_rows(node)) is not None:
            return whole
        return REWRITES[node.name](node) if node.name in REWRITES else None

    def _mistaken(self, node: Func, error: CompileError) -> CompileError | None:
        """The mistake behind an operand: a name that means nothing is a string without quotes in `LIKE foo`, `city = Oslo` and `details->size`."""
        found = error.diagnostics[0]
        if (
            found.code == "FQ2005"
            and node.name in _OF_JSON
            and (closer := closer_than_json(node, _OF_JSON[node.name], found)) is not None
        ):
            return CompileError(closer)
        if found.code != "FQ2002" or not self.standard or node.name not in _BESIDE_STRINGS:
            return None
        bare = next((a for a in node.args if isinstance(a, Name) and len(a.parts) == 1 and a.span == found.span), None)
        certain = node.name in _MATCHING or node.name in _OF_JSON
        if bare is None or not (certain or (found.edit is None and self._beside_string(node, bare))):
            return None
        word = written(bare.span)
        word = word if word.lower() == bare.parts[0] else bare.parts[0]
        text = "'" + word.replace("'", "''") + "'"
        title, label = ("the pattern", "a pattern") if node.name in _MATCHING else ("the string", "a string")
        return mistake(
            "FQ2086",
            f"{title} lacks quotes",
            bare.span,
            label,
            why=f"there is no column {word}",
            help=f"write  {text}",
            edit=renamed(bare.span, bare.parts[0], text),
        )

    def _beside_string(self, node: Func, bare: Name) -> bool:
        for other in node.args:
            with suppress(CompileError):
                if other is not bare and self.bind(other).type.kind is Kind.STRING:
                    return True
        return False

    def _unknown(self, node: Func) -> CompileError:
        if node.name == "PROCTIME" and self.standard:
            title = "PROCTIME(), processing time as a value, is not supported yet"
            return unsupported(title, node.span, "not supported yet", help=ADVICE[node.name])
        known = [n for n in (*all_functions(), *(STANDARD_NAMES if self.standard else ())) if n.isupper()]
        known += [*all_aggregates(), *self._catalog.functions]
        hint, edit = did_you_mean(node.name, known), correction(node.span, node.name, known, first=True)
        other = OF_OTHER_SYSTEMS.get(node.name) if self.standard else None
        if self.standard and node.name in ADVICE:
            hint, edit = ADVICE[node.name], None
        if other is not None:
            hint, edit = (
                f"write  {other}({'...' if node.args else ''})",
                renamed(node.span, node.name, other, first=True),
            )
        return mistake("FQ2006", f"unknown function {node.name}", node.span, "not a function", help=hint, edit=edit)

    def _function_of(self, node: Func) -> Function | None:
        """The function with the dialect's meaning of a name or operator, or one of the project."""
        return self._catalog.function(node.name) or lookup(function_name(node.name, standard=self.standard))

    def _call(self, node: Func, function: Function) -> Expr:
        args, types = self._arguments(node, function)
        if node.name in _ARITHMETIC and self.standard:
            args = [*beside_numbers(args)]
            types = tuple(a.type for a in args)
        found = self._resolve(node, function.resolve, types)
        return Call(found.result, function.name, self._coerced(args, found), node.span)

    def _coerced(self, args: Sequence[Expr], found: Resolution) -> tuple[Expr, ...]:
        return tuple(a if isinstance(a, Lambda) else convert(a, t) for a, t in zip(args, found.args, strict=True))

    def _resolve(
        self, node: Func, attempt: Callable[[tuple[SqlType, ...]], Resolution], types: tuple[SqlType, ...]
    ) -> Resolution:
        try:
            return attempt(types)
        except FunctionTypeError as problem:
            text = text_of(node)
            given = ", ".join(str(t) for t in types)
            title = f"error processing expression {text}: {problem}"
            help, edit = (
                for_operands(node, types, problem, attempt) if self.standard and types else (problem.hint, None)
            )
            raise mistake("FQ2005", title, node.span, f"got ({given})", help=help, edit=edit) from None

    def _arguments(self, node: Func, function: Function) -> tuple[list[Expr], tuple[SqlType, ...]]:
        """Bound arguments; lambdas after the arguments that type their parameters."""
        args: list[Expr] = []
        types: list[SqlType] = []
        given = [] if len(node.args) == 1 and isinstance(node.args[0], Star) else node.args
        for i, a in enumerate(given):
            if isinstance(a, LambdaFn):
                bound = self._bind_lambda(a, node, function, tuple(types), i)
                args.append(bound)
                types.append(SqlType(Kind.LAMBDA, args=(bound.type,)))
            else:
                args.append(self.bind(a))
                types.append(args[-1].type)
        return args, tuple(types)

    def _bind_lambda(
        self, node: LambdaFn, call: Func, function: Function, before: tuple[SqlType, ...], index: int
    ) -> Lambda:
        if function.lambda_params is None:
            raise mistake("FQ2005", f"{call.name} does not take a lambda", node.span, "a lambda")
        try:
            params = function.lambda_params(before, index)
        except FunctionTypeError as problem:
            raise mistake("FQ2005", f"{call.name}: {problem}", call.span, help=problem.hint) from None
        if len(params) != len(node.params):
            title = f"the lambda {text_of(node)} of {call.name} takes {len(params)} parameters, not {len(node.params)}"
            raise mistake("FQ2005", title, node.span, f"{len(params)} expected")
        self._lambda.append(dict(zip(node.params, params, strict=True)))
        try:
            body = self.bind(node.body)
        finally:
            self._lambda.pop()
        return Lambda(body.type, node.params, body, node.span)

    def _table_call(self, node: Func, function: Function) -> Expr:
        if self._collected is None or self._inside:
            raise mistake(
                "FQ2020",
                f"table function {node.name} is not allowed in {self._inside or self._clause}",
                node.span,
                "gives several rows",
                help="use it in the SELECT list",
            )
        if self._in_case:
            title = f"table function {node.name} is not allowed in CASE"
            help = "put the CASE inside, as its argument"
            raise mistake("FQ2020", title, node.span, "gives several rows", help=help)
        outer, self._inside = self._inside, node.name
        call = self._call(node, function)
        self._inside = outer
        name = f"{EXPLODE_PREFIX}{len(self._collected.table_functions)}"
        self._collected.table_functions.append(NamedExpr(name, call))
        return _column(call.type, name, node.span)

    # --- aggregates ---

    def _aggregate(self, node: Func, function: AggregateFunction) -> Expr:
        if self._lambda:
            title = f"aggregate function {node.name.upper()} is not allowed in the lambda of a function"
            help = "use REDUCE over the elements"
            raise mistake("FQ2020", title, node.span, "an aggregate of rows", help=help)
        if self._inside:
            raise mistake(
                "FQ2020",
                f"aggregate functions can not be nested: {node.name.upper()} inside {self._inside}, {text_of(node)}",
                node.span,
                "nested",
            )
        if self._collected is None:
            title = f"{self._clause} does not support aggregate functions: {node.name.upper()} is an aggregate function"
            raise mistake(
                "FQ2020",
                title,
                node.span,
                "an aggregate",
                help="use HAVING for conditions on aggregates" if self._clause == "WHERE" else "",
            )
        plain = [] if len(node.args) == 1 and isinstance(node.args[0], Star) else list(node.args)
        self._inside = node.name.upper()
        bound = [self.bind(a) for a in plain]
        self._inside = ""
        call = self._aggregate_call(node, function, bound)
        for known in self._collected.aggregates:
            if (known.function, known.args, known.init) == (call.function, call.args, call.init):
                return _column(known.type, known.name, node.span)
        self._collected.aggregates.append(call)
        self._collected.aggregate_texts.append(text_of(node))
        return _column(call.type, call.name, node.span)

    def _aggregate_call(self, node: Func, function: AggregateFunction, bound: list[Expr]) -> AggregateCall:
        assert self._collected is not None
        count = function.constants(len(bound))
        split = len(bound) - count
        init = tuple(self._constant(e, node) for e in bound[split:]) or self._limit(node, function)
        args = bound[:split]
        types = tuple(a.type for a in args)
        found = self._resolve(node, lambda _: function.resolve(types, init), tuple(b.type for b in bound))
        name = f"{AGGREGATE_PREFIX}{len(self._collected.aggregates)}"
        return AggregateCall(name, function.name, self._coerced(args, found), found.result, init)

    def _constant(self, e: Expr, node: Func) -> bool | int | float | str | None:
        if not isinstance(e, Literal) or isinstance(e.value, (bytes, Decimal)):
            raise mistake(
                "FQ2005",
                f"parameters that configure {node.name.upper()} must be constants in {text_of(node)}",
                node.span,
                "not a constant",
            )
        return e.value

    def _limit(self, node: Func, function: AggregateFunction) -> tuple[int, ...]:
        """How many values the session lets an aggregate keep that collects them."""
        name = LIMIT_PROPERTIES.get(function.name, "")
        if name not in self._session:
            return ()
        text = str(self._session[name])
        if not text.removeprefix("-").isdigit():
            raise mistake(
                "FQ2011", f"the property {name} must be a whole number, not {text!r}", node.span, "has no limit"
            )
        return (int(text),)

    # --- operators with rules of their own ---

    def _comparison(self, node: Func) -> Expr:
        left, right = (self.bind(a) for a in node.args)
        sign = _COMPARISONS[node.name]
        with_null = Kind.NULL in (left.type.kind, right.type.kind) and not node.name.startswith("is_")
        if with_null and not self.standard:
            title = f"comparison with NULL not supported: {text_of(node.args[0])} {sign} {text_of(node.args[1])}"
            raise mistake("FQ2005", title, node.span, "is never true", help="write IS NULL or IS NOT NULL")
        if self.standard:
            left, right = interval_numbers(left, right)
        left, right = self._comparable(node, left, right)
        function = self._function_of(node)
        if function is None:
            return Call(BOOLEAN, node.name, (left, right), node.span)
        types = (left.type, right.type)
        found = self._resolve(node, function.resolve, types)
        return Call(found.result, function.name, self._coerced((left, right), found), node.span)

    def _comparable(self, node: Func, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        a, b = left.type, right.type
        if self._is_time(left) and _is_text(right):
            return left, time_literal(right)
        if self._is_time(right) and _is_text(left):
            return time_literal(left), right
        if a.kind in _TEMPORAL and b.kind is Kind.STRING and not b.form:
            return _alike(left, self._standard_time(right, a), a)
        if b.kind in _TEMPORAL and a.kind is Kind.STRING and not a.form:
            return _alike(self._standard_time(left, b), right, b)
        if (moment := common_moment(a, b)) is not None:
            return convert(left, moment), convert(right, moment)
        if a.kind is b.kind is Kind.TIMESTAMP and a != b:
            return convert(left, TIMESTAMPTZ), convert(right, TIMESTAMPTZ)
        if {a.kind, b.kind} == {Kind.DATE, Kind.TIMESTAMP}:
            to = a if a.kind is Kind.TIMESTAMP else b
            return convert(left, to), convert(right, to)
        if self.standard and _is_text(left) != _is_text(right):
            left, right = self._text_adapts(node, left, right)
            a, b = left.type, right.type
        ordered = node.name in ("lt", "le", "gt", "ge")
        if ordered and a == b == JSONB:
            return json_order(left), json_order(right)
        if not ordered and Kind.NULL not in (a.kind, b.kind):
            left, right = equality_value(left), equality_value(right)
        has_order = not ordered or not _unordered(a) or (self.standard and has_sql_order(a))
        simple = (a.is_numeric and b.is_numeric) or (a == b and has_order)
        nested = not ordered and a.kind is b.kind and a.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
        if not simple and not nested and Kind.NULL not in (a.kind, b.kind):
            title = f"error in {self._clause} expression: cannot compare {text_of(node.args[0])} ({a}) to {text_of(node.args[1])} ({b}) with {_COMPARISONS[node.name]}"
            help, edit = for_compared(node, left, right, standard=self.standard)
            raise mistake("FQ2005", title, node.span, f"{a} and {b}", help=help, edit=edit)
        return left, right

    def _text_adapts(self, node: Func, left: Expr, right: Expr) -> tuple[Expr, Expr]:
        """A text literal has no type of its own in SQL: beside a number or truth value it is read as one."""
        text, other = (left, right) if _is_text(left) else (right, left)
        if other.type.form or other.type.kind in (Kind.BYTES, Kind.ARRAY):
            as_other = text_as(text, other.type)
            return (as_other, right) if text is left else (left, as_other)
        if not other.type.is_numeric and other.type.kind is not Kind.BOOLEAN:
            return left, right
        try:
            _, (read, _) = unify(beside_typed((text, other)), strict=True)
        except FunctionTypeError as problem:
            title = f"{text_of(node)}: {problem}"
            raise mistake("FQ2005", title, node.span, f"beside {other.type}", help=problem.hint) from None
        return (read, right) if text is left else (left, read)

    def _standard_time(self, e: Expr, to: SqlType) -> Expr:
        """A text beside a time: each dialect reads it as its casts do."""
        return text_as(e, to) if self.standard else e

    def _is_time(self, e: Expr) -> bool:
        """A row time or window bound: a BIGINT that texts may be compared with."""
        if not isinstance(e, Column):
            return False
        scopes = [self._scope, *([self._bounds] if self._bounds is not None else [])]
        found = [c.name for s in scopes for c in s.columns if c.column == e.name]
        return any(n in ("ROWTIME", WINDOW_START, WINDOW_END) for n in found)

    def _negation(self, node: Func) -> Expr:
        written = t.number_text(node.args[0])
        if written:
            return bind_literal(Lit("number", f"-{written}", node.span))  # so that the least BIGINT can be written
        operand = self.bind(node.args[0])
        if (
            isinstance(operand, Literal)
            and isinstance(operand.value, (int, float, Decimal))
            and not isinstance(operand.value, bool)
        ):
            return Literal(operand.type, -operand.value, node.span)
        function = self._function_of(node)
        is_interval = operand.type.kind is Kind.INTERVAL
        if function is None or not (operand.type.is_numeric or is_interval):
            raise mistake(
                "FQ2005", f"cannot negate {text_of(node.args[0])}, which is {operand.type}", node.span, "not a number"
            )
        found = self._resolve(node, function.resolve, (operand.type,))
        return Call(found.result, function.name, self._coerced([operand], found), node.span)

    def _cast(self, node: CastTo) -> Expr:
        if node.safe:
            return self.bind(Func("TRY", (replace(node, safe=False),), node.span))
        node = replace(node, type=as_written(node.type, self._catalog))
        e = self._whole_cast(node)
        narrowed = narrowing(node.type, node) if self.standard else None
        if narrowed is None:
            return e
        more = rounded_from(e) if narrowed.name == "sql_real" else tuple(map(self.bind, narrowed.args))
        return called(replace(narrowed, args=(node, *narrowed.args)), (e, *more))

    def _whole_cast(self, node: CastTo) -> Expr:
        """A cast to the kind of the type, without the limits of a VARCHAR(n) or SMALLINT."""
        to, digits = cast_type(node.type, self._catalog, node.span)
        if self.standard and to == SPAN and isinstance(node.operand, Lit) and node.operand.kind == "string":
            return self.bind(t.Interval(str(node.operand.value), span=node.span))
        if t.is_row(node.operand) and to.kind is Kind.STRUCT:
            return self.bind(row_as(node.operand, to, node.type))
        of_array = isinstance(node.operand, Func) and node.operand.name == "array" and to.kind is Kind.ARRAY
        if self.standard and of_array and isinstance(node.operand, Func):  # of which ARRAY[NULL] has no other type
            element = node.type.args[0] if node.type.args else TypeRef(known=to.element, span=node.span)
            parts = tuple(self.bind(CastTo(a, element, node.span)) for a in node.operand.args)
            return Call(to, "array", parts, node.span)
        operand = self.bind(node.operand)
        if digits is not None:
            return self._moment_cast(node, operand, to, digits)
        if to == SPAN and operand.type.kind in (Kind.INTERVAL, Kind.NULL):
            return operand if operand.type.kind is Kind.INTERVAL else Literal(INTERVAL, None, node.span)
        if to == SPAN and operand.type.kind is Kind.STRING:
            return Call(INTERVAL, "sql_to_interval", (operand,), node.span)
        if to == SPAN:
            title = f"CAST of {operand.type} to the type INTERVAL is not supported: {text_of(node.operand)}"
            raise unsupported(
                title, node.span, f"this is {operand.type}", help="multiply an interval:  x * INTERVAL '1 second'"
            )
        if self.standard and (narrowed := narrowed_parts(node, operand.type, to)) is not None:
            return self.bind(narrowed)
        return self._cast_of(node, operand, to)

    def _moment_cast(self, node: CastTo, operand: Expr, to: SqlType, digits: int) -> Expr:
        """To TIMESTAMP or TIMESTAMPTZ: values with parts of a millisecond keep them, or are rounded to the digits that are named."""
        exact = operand.type.kind is Kind.MICROS or in_micros(operand)
        if digits == ANY_DIGITS:
            return self._cast_of(node, operand, finer(to) if exact else to)
        if digits == DIGITS or (digits == 3 and not exact):
            return self._cast_of(node, operand, to)
        whole = self._cast_of(node, operand, finer(to))
        made = Call(whole.type, "sql_rounded_moment", (whole, Literal(INT, digits, node.span)), node.span)
        return made if to.kind is Kind.MICROS else Call(to, "cast", (made,), node.span)

    def _cast_of(self, node: CastTo, operand: Expr, to: SqlType) -> Expr:
        of_standard = sql_cast(operand.type, to) if self.standard else ""
        if of_standard:
            return Call(to, of_standard, (operand,), node.span)
        if not can_cast(operand.type, to):
            title = f"CAST of {operand.type} to {to} is not supported: {text_of(node.operand)}"
            raise mistake("FQ2005", title, node.span, f"this is {operand.type}")
        if isinstance(operand, Literal) and operand.value is None:
            return Literal(to, None, node.span)
        return Call(to, "cast", (operand,), node.span)


def _alike(left: Expr, right: Expr, t: SqlType) -> tuple[Expr, Expr]:
    """A time and a text that was read as one. t: of the time."""
    common = common_moment(left.type, right.type) or t
    return convert(left, common), convert(right, common)


def _column(t: SqlType, name: str, span: Span) -> Expr:
    return Column(t, name, span)


def _is_text(e: Expr) -> bool:
    return isinstance(e, Literal) and isinstance(e.value, str)


def _unordered(t: SqlType) -> bool:
    return t.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.BOOLEAN) or t == JSONB
