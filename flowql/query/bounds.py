"""Whether what a statement makes of one row is bounded, as DuckDB's parse tree says. If not, another process answers it (`query_pool`).

DuckDB neither counts the memory of a value while a function makes it nor can be interrupted meanwhile. A statement is answered in the process of the
instance if each function that it calls is known to make a value of a fixed size, or one that is no larger than its arguments together. All others,
lambdas and recursion among them, are not bounded, and so is a function that DuckDB adds tomorrow.

Sizes are multiples of the largest value that is read. Data passes through each SELECT once, so the product of what nested SELECTs make bounds the
whole. No name is bound here: DuckDB computes constants as it binds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import duckdb

GROWTH_MAX = 16  # of the largest value that is read
# DuckDB cannot be interrupted while it plans, which takes a time that grows with the square of conditions, and with the fourth power of joins:
# 200 pairs of conditions take 0.2 s, 1,000 take 3 s, and 16 joins 5 ms.
CALLS_MAX, JOINS_MAX = 500, 16
CONSTANT_MAX = 1_000  # characters of a constant that count for nothing
RECURSION, GROWTH, SIZE = "(recursion)", "(growth)", "(size)"

_FIXED_TYPES = frozenset((
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE",
    "DECIMAL", "DATE", "TIME", "INTERVAL", "UUID", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE",
    "TIME WITH TIME ZONE",
))  # fmt: skip
# Types of values that are as large as what is cast; BIGNUM and BIT need quadratic time, and an ARRAY has its size in its type.
_OPEN_TYPES = frozenset(("VARCHAR", "BLOB", "JSON", "LIST", "STRUCT", "MAP", "ENUM"))
# Functions with a value of fixed size, in linear time. Those of DuckDB whose arguments are all of fixed size need no name here.
_VALUES = frozenset((
    "-", "*", "~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape", "^@", "&", "|", "<<", ">>",
    "~", "xor", "&&", "@>", "<@", "length", "len", "strlen", "char_length", "character_length", "bit_length", "octet_length", "array_length",
    "cardinality", "contains", "prefix", "suffix", "starts_with", "ends_with", "instr", "strpos", "position", "ascii", "ord", "unicode",
    "list_contains", "list_has", "list_position", "list_indexof", "array_contains", "array_has", "array_position", "array_indexof", "map_contains",
    "regexp_matches", "regexp_full_match", "hash", "md5", "md5_number", "sha1", "sha256", "strptime", "try_strptime", "json_valid", "json_type",
    "json_array_length", "json_exists", "date_part", "datepart", "date_trunc", "datetrunc", "date_diff", "datediff", "date_sub", "datesub",
    "date_add", "timezone", "time_bucket", "dayname", "monthname", "typeof", "error", "current_setting", "current_database", "current_schema",
    "version", "chr", "list_sum", "list_avg", "list_min", "list_max", "list_count", "list_any_value", "count", "count_star", "count_if", "countif",
    "sum", "avg", "mean", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "product", "favg", "fsum", "kahan_sum", "sumkahan",
    "sum_no_overflow", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "corr", "covar_pop", "covar_samp", "kurtosis",
    "kurtosis_pop", "skewness", "sem", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy", "approx_count_distinct", "grouping", "grouping_id", "row_number", "rank", "dense_rank", "rank_dense", "percent_rank", "cume_dist",
    "ntile", "epoch", "epoch_ms", "epoch_us", "epoch_ns", "make_timestamptz",
    "regexp_like",
))  # fmt: skip
# Functions whose value is no larger than their largest argument.
_PARTS = frozenset((
    "lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "substring", "substr", "left", "right", "reverse", "split_part", "nullif", "ifnull",
    "coalesce", "nvl", "if", "greatest", "least", "list_extract", "array_extract", "list_element", "element_at", "map_extract", "map_extract_value",
    "map_keys", "map_values", "struct_extract", "struct_extract_at", "list_slice", "array_slice", "list_distinct", "array_distinct", "list_sort",
    "array_sort", "list_reverse_sort", "array_reverse_sort", "constant_or_null", "strip_accents", "translate", "regexp_extract", "parse_filename",
    "parse_dirname", "unnest", "any_value", "arbitrary", "first", "last", "min", "max", "arg_min", "argmin", "min_by", "arg_max",
    "argmax", "max_by", "arg_min_null", "arg_max_null", "lag", "lead", "first_value", "last_value", "nth_value", "fill",
))  # fmt: skip
# As `_PARTS`, if the path is a constant without `*`.
_PATHS = frozenset((
    "->>", "json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text", "json_value", "json_keys"
))  # fmt: skip
# Functions whose value is as large as their arguments together, and at most twice as large as their argument.
_TOGETHER = frozenset((
    "||", "concat", "list_concat", "list_cat", "array_concat", "array_cat", "list_value", "list_pack", "array_value", "struct_pack",
    "row", "map", "strftime", "list_append", "array_append", "list_prepend", "array_prepend",
))  # fmt: skip
_TWICE = frozenset((
    "hex", "to_hex", "unhex", "from_hex", "base64", "to_base64", "from_base64", "encode", "decode", "url_decode",
))  # fmt: skip
# Functions in FROM, which give their rows piece by piece.
_FROM = frozenset(("range", "generate_series", "unnest", "repeat", "repeat_row"))
_FROM_PREFIXES = ("duckdb_", "pragma_")
_TESTS = frozenset(("COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_NOT"))
_SELECTED = frozenset(("OPERATOR_COALESCE", "ARRAY_EXTRACT", "STRUCT_EXTRACT", "ARRAY_SLICE", "OPERATOR_TRY"))
Node = Mapping[str, Any]


def unbounded(tree: Any, connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """The reasons why its size has no bound: folded names of functions, RECURSION, GROWTH or SIZE; empty if all it makes is bounded.

    tree: of a statement as DuckDB's parser gives it. connection: of any database. Raises RecursionError.
    """
    found = _Sizes(fixed_functions(connection.cursor))
    found.walk(tree)
    if found.growth > GROWTH_MAX:
        found.why.add(GROWTH)
    if found.calls > CALLS_MAX or found.joins > JOINS_MAX:
        found.why.add(SIZE)
    return frozenset(found.why)


_known = dict[str, frozenset[str]]()


def fixed_functions(cursor: Callable[[], duckdb.DuckDBPyConnection]) -> frozenset[str]:
    """Folded names of DuckDB's functions whose values and arguments all have a fixed size."""
    if duckdb.__version__ not in _known:
        sql = "SELECT function_name, function_type = 'scalar' AND varargs IS NULL, return_type, parameter_types FROM duckdb_functions() WHERE internal"
        with cursor() as connection:
            rows = connection.execute(sql).fetchall()
        open_ = {n for n, scalar, of, given in rows if not scalar or not {of, *given} <= _FIXED_TYPES}
        _known[duckdb.__version__] = frozenset(str(n).casefold() for n, *_ in rows if n not in open_)
    return _known[duckdb.__version__]


class _Sizes:
    """Walks a tree. growth: of the queries that were walked. why: see `unbounded`."""

    def __init__(self, fixed: frozenset[str]) -> None:
        self._fixed = fixed
        self._aliases: dict[str, int] = {}  # of the SELECT that is walked, with their sizes
        self.why, self.growth, self.calls, self.joins = set[str](), 1, 0, 0

    def walk(self, part: Any) -> int:
        """The size of the largest value of a part: 0 for one that is fixed."""
        if isinstance(part, list):
            return max(map(self.walk, part), default=0)
        if not isinstance(part, dict):
            return 0
        if "cte_map" in part and "modifiers" in part:
            return self._query(part)
        kind = part.get("class")
        if kind is None:
            return self._other(part)
        rule = _RULES.get(kind)
        if rule is None:
            self.why.add(str(kind).casefold())
            return 1
        self.calls += kind not in ("CONSTANT", "COLUMN_REF", "TYPE", "STAR")
        return rule(self, part)

    def _other(self, part: Node) -> int:
        self.joins += part.get("type") == "JOIN"
        if part.get("type") == "TABLE_FUNCTION":
            function = part["function"]
            name = str(function.get("function_name")).casefold()
            if name not in _FROM and not name.startswith(_FROM_PREFIXES):
                self.why.add(name)
            return self.walk(function.get("arguments"))
        return max((self.walk(v) for v in part.values() if isinstance(v, dict | list)), default=0)

    def _query(self, node: Node) -> int:
        """Its growth is the largest of its expressions times that of the queries it reads; each CTE may read those before it."""
        if node.get("type") == "RECURSIVE_CTE_NODE":
            self.why.add(RECURSION)
        outer, aliases, self._aliases, read = self.growth, self._aliases, {}, 1
        for cte in node["cte_map"].get("map", ()):
            self.growth = 1
            self.walk(cte["value"])
            read *= self.growth
        self.growth, largest = 1, 1
        for item in node.get("select_list") or ():
            size = self.walk(item)
            largest = max(largest, size)
            if alias := str(item.get("alias") or "").casefold():
                self._aliases[alias] = max(size, self._aliases.get(alias, 1))
        rest = [v for k, v in node.items() if k not in ("cte_map", "select_list")]
        largest = max(largest, self.walk(rest))
        self.growth = max(outer, largest * self.growth * read)
        self._aliases = aliases
        return 1

    def constant(self, node: Node) -> int:
        return int(len(str(node.get("literal") or node.get("value") or "")) > CONSTANT_MAX)

    def column(self, node: Node) -> int:
        names = node.get("column_names") or [""]
        return max(1, self._aliases.get(str(names[-1]).casefold(), 1))

    def test(self, node: Node) -> int:
        self._each(node)
        return 0

    def largest(self, node: Node) -> int:
        return max(self._each(node), default=0)

    def star(self, node: Node) -> int:
        return max(1, self.largest(node))

    def arrow(self, node: Node) -> int:
        """`j -> path`; a lambda is the argument of a function that is not bounded."""
        self._check_path(node.get("expr"))
        return self.largest(node)

    def cast(self, node: Node) -> int:
        size = self.walk(node["child"])
        types = [str(n.get("type_name")).upper() for n in _types(node["type_expr"])]
        for name in types:
            if name not in _FIXED_TYPES and name not in _OPEN_TYPES:
                self.why.add(name.casefold())
        return 0 if types[0] in _FIXED_TYPES else 2 * size

    def operator(self, node: Node) -> int:
        sizes = self._each(node)
        kind = str(node["type"])
        if kind in _TESTS:
            return 0
        if kind == "ARRAY_CONSTRUCTOR":
            return sum(sizes)
        if kind not in _SELECTED:
            self.why.add(kind.casefold())
        return max(sizes, default=0)

    def call(self, node: Node) -> int:
        name = str(node.get("function_name")).casefold()
        arguments = [a["expression"] for a in node.get("arguments") or ()]
        sizes = [self.walk(a) for a in arguments]
        self.walk([v for k, v in node.items() if k != "arguments" and isinstance(v, dict | list)])
        if name in _PATHS:
            self._check_path(arguments[-1] if arguments else None)
            return max(sizes, default=0)
        return self._made(name, sizes)

    def _made(self, name: str, sizes: Sequence[int]) -> int:
        if name in self._fixed or name in _VALUES:
            return 0
        if name in _PARTS:
            return max(sizes, default=0)
        if name == "+":  # of lists, too
            return 0 if 0 in sizes else sum(sizes)
        if name in _TWICE:
            return 2 * max(sizes, default=0)
        if name == "to_json":  # a character may be written as six
            return 6 * max(sizes, default=0)
        if name == "concat_ws":  # the first between all others
            return sum(sizes) + sum(sizes[:1]) * len(sizes)
        if name not in _TOGETHER:
            self.why.add(name)
        return max(1, sum(sizes))

    def _check_path(self, path: Any) -> None:
        """`j -> 'a' ->> 'b'` has 'a' ->> 'b' as its path."""
        while isinstance(path, dict) and path.get("class") in ("LAMBDA", "FUNCTION"):
            arguments = path.get("arguments") or [{"expression": path.get("lhs")}]
            is_path = path["class"] == "LAMBDA" or path["function_name"] in _PATHS
            path = arguments[0]["expression"] if is_path else None
        literal = path.get("literal") if isinstance(path, dict) else None
        if literal is None or "*" in str(literal["text"]):
            self.why.add("->")

    def _each(self, node: Node) -> list[int]:
        return [self.walk(v) for v in _parts(node)]


def _parts(node: Node) -> Iterable[Any]:
    for value in node.values():
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict):
            yield value


def _types(node: Node) -> list[Node]:
    return [
        node,
        *(inner for child in node.get("children") or () if child.get("class") == "TYPE" for inner in _types(child)),
    ]


_RULES: Mapping[str, Callable[[_Sizes, Node], int]] = {
    "CONSTANT": _Sizes.constant,
    "COLUMN_REF": _Sizes.column,
    "POSITIONAL_REFERENCE": _Sizes.star,
    "STAR": _Sizes.star,
    "TYPE": _Sizes.test,
    "DEFAULT": _Sizes.test,
    "COMPARISON": _Sizes.test,
    "CONJUNCTION": _Sizes.test,
    "BETWEEN": _Sizes.test,
    "CASE": _Sizes.largest,
    "COLLATE": _Sizes.largest,
    "SUBQUERY": _Sizes.star,
    "LAMBDA": _Sizes.arrow,
    "CAST": _Sizes.cast,
    "OPERATOR": _Sizes.operator,
    "FUNCTION": _Sizes.call,
    "WINDOW": _Sizes.call,
}
