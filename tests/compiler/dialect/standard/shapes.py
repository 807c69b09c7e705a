"""What a query is made of, by FlowQL's parser and by sqlglot's: operators with their operands, and how often each clause occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sqlglot import exp

from flowql.compiler.dialect import walks
from flowql.compiler.dialect.ast import Func
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.expressions import LEVELS

Shape = Counter[object]
_SIGNS: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<",
    exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeNEQ: "distinct", exp.NullSafeEQ: "same", exp.Like: "like", exp.ILike: "ilike",
}  # fmt: skip
_SETS: dict[type[exp.Expression], str] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def ours(query: t.Query) -> Shape:
    """The shape of a tree."""
    found: Shape = Counter()
    inside: set[int] = set()
    for node in walks.walk(query):
        if _is_operator(node) and id(node) not in inside:
            found[_skeleton(node, inside)] += 1
        match node:
            case t.SetOperation():
                found[_operation(node)] += 1
            case t.Join() if node.kind != "comma":
                kind = "inner" if node.kind == "cross" else node.kind
                found["join", kind, node.natural, len(node.using), node.on is not None] += 1
            case t.Select():
                found["select", len(node.items), node.distinct, node.where is not None, node.having is not None] += 1
            case t.WindowSpec():
                found["window", len(node.partition_by), node.frame is not None] += 1
            case Func() if node.name in ("case", "case_of"):
                whens, otherwise = divmod(len(node.args) - (node.name == "case_of"), 2)
                found["case", whens, otherwise == 1] += 1
            case t.OrderItem():
                found["order", node.direction == "desc"] += 1
            case t.With() | t.Exists() | t.InQuery():
                found[type(node).__name__] += 1
    return found


def _operation(body: t.Body) -> object:
    """A set operation with its operands; a query in parentheses is its body."""
    while isinstance(body, t.Query):
        body = body.body
    return (
        (body.op, body.all, _operation(body.left), _operation(body.right)) if isinstance(body, t.SetOperation) else "_"
    )


_WORDS = ("and", "or", "not", "neg", "is_distinct", "is_not_distinct")
_TESTS = ("is_null", "is_true", "is_false", "is_unknown")
_RANGES = ("between", "between_symmetric", "like", "ilike", "similar", "in")


def _is_operator(node: t.Node) -> bool:
    if not isinstance(node, Func):
        return isinstance(node, (t.InQuery, t.Quantified))
    names = {node.name, node.name.removeprefix("not_"), node.name.replace("is_not_", "is_")}
    return t.sign_of(node.name) in LEVELS or bool(names & {*_WORDS, *_TESTS, *_RANGES})


def _skeleton(node: t.Node, inside: set[int]) -> object:
    """The operator with its operands; what is no operator is a blank."""
    while isinstance(node, Func) and node.name == "plus":
        (node,) = node.args
    if not _is_operator(node):
        return "_"
    inside.add(id(node))

    def part(operand: t.Node) -> object:
        return _skeleton(operand, inside)

    match node:
        case t.Quantified():
            return node.op, part(node.operand), "_"
        case t.InQuery():
            made: object = ("in", part(node.operand))
            return ("not", made) if node.negated else made
    assert isinstance(node, Func)
    parts = [part(a) for a in node.args]
    if node.name in ("and", "or"):
        return _flat(node.name, parts)
    if node.name in ("is_distinct", "is_not_distinct"):
        return "distinct" if node.name == "is_distinct" else "same", *parts
    if node.name.startswith("is_"):
        return ("not", ("is", *parts)) if node.name.startswith("is_not_") else ("is", *parts)
    if node.name.startswith("not_"):
        return "not", (node.name.removeprefix("not_"), *parts)
    return t.sign_of(node.name), *parts


def _flat(op: str, operands: list[object]) -> object:
    """Rows of ANDs and ORs are one, however they were grouped."""
    parts: list[object] = []
    for o in operands:
        parts += o[1:] if isinstance(o, tuple) and o[0] == op else [o]
    return op, *parts


def theirs(query: exp.Expression) -> Shape:
    """The shape of sqlglot's tree."""
    found: Shape = Counter()
    inside: set[int] = set()
    for node in query.walk():
        if _is_their_operator(node) and id(node) not in inside:
            found[_their_skeleton(node, inside)] += 1
        match node:
            case exp.Union() | exp.Intersect() | exp.Except():
                found[_their_operation(node)] += 1
            case exp.Join() if (
                node.args.get("kind") or node.args.get("side") or node.args.get("on") or node.args.get("method")
            ):
                kind = (node.side or "inner").lower()
                found[
                    "join", kind, node.method == "NATURAL", len(node.args.get("using") or ()), bool(node.args.get("on"))
                ] += 1
            case exp.Select():
                distinct, where, having = (bool(node.args.get(k)) for k in ("distinct", "where", "having"))
                found["select", len(node.expressions), distinct, where, having] += 1
            case exp.Window():
                found["window", len(node.args.get("partition_by") or ()), bool(node.args.get("spec"))] += 1
            case exp.Case():
                found["case", len(node.args["ifs"]), node.args.get("default") is not None] += 1
            case exp.Ordered():
                found["order", bool(node.args.get("desc"))] += 1
            case exp.CTE():
                found["With"] += 1
            case exp.Exists():
                found["Exists"] += 1
            case exp.In() if node.args.get("query"):
                found["InQuery"] += 1
    return found


def _their_operation(node: exp.Expression) -> object:
    node = node.unnest()
    if type(node) not in _SETS:
        return "_"
    every = not node.args.get("distinct")
    return _SETS[type(node)], every, _their_operation(node.this), _their_operation(node.expression)


def _is_their_operator(node: exp.Expression) -> bool:
    return type(node) in _SIGNS or isinstance(node, (exp.And, exp.Or, exp.Not, exp.Neg, exp.Is, exp.Between, exp.In))


def _their_skeleton(node: exp.Expression, inside: set[int]) -> object:
    node = node.unnest()
    if not _is_their_operator(node):
        return "_"
    inside.add(id(node))

    def part(operand: exp.Expression) -> object:
        return _their_skeleton(operand, inside)

    made = _their_operator(node, part)
    return ("not", made) if node.args.get("negate") else made


def _their_operator(node: exp.Expression, part: Callable[[exp.Expression], object]) -> object:
    match node:
        case exp.And() | exp.Or():
            return _flat("and" if isinstance(node, exp.And) else "or", [part(node.this), part(node.expression)])
        case exp.Not():
            return "not", part(node.this)
        case exp.Neg():
            return "neg", part(node.this)
        case exp.Is():
            return "is", part(node.this)
        case exp.Between():
            return "between", part(node.this), part(node.args["low"]), part(node.args["high"])
        case exp.In():
            return "in", part(node.this), *(part(i) for i in node.expressions)
    return _SIGNS[type(node)], part(node.this), part(node.expression)
