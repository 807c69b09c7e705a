"""Types as standard SQL writes them: `numeric(10, 2)`, `timestamp with time zone`, `int[]`, `struct<a int, b varchar[]>`."""

from __future__ import annotations

from flowql.compiler.dialect.ast import TypeRef
from flowql.compiler.dialect.cursor import Tok
from flowql.compiler.dialect.standard.reader import Reader

# Types with the smallest and the largest of their values; columns of them are INT.
SMALL = {"tinyint": (-128, 127), **dict.fromkeys(("smallint", "int2", "smallserial"), (-32_768, 32_767))}
REALS = ("real", "float4")  # their columns are DOUBLE, within the range of a REAL; a CAST rounds
_CONTAINERS = ("ARRAY", "MAP", "STRUCT")
_SPELLINGS = {
    "character varying": "varchar",
    "char varying": "varchar",
    "character": "char",
    "double precision": "double",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time with time zone": "timetz",
    "time without time zone": "time",
}


def parse_type(cur: Reader) -> TypeRef:
    """A type. Any name may be one: which there are is for the analyzer to say."""
    start = cur.tok
    made = _base(cur, start)
    count = 0
    while cur.tok.op == "[" or cur.tok.upper == "ARRAY":
        count += 1
        cur.check_chain(count)
        made = _array(cur, made, start)
    return made


def _at_map(cur: Reader) -> bool:
    """`map(varchar, int)`."""
    return cur.tok.upper == "MAP" and cur.after.op == "("


def _base(cur: Reader, start: Tok) -> TypeRef:
    if cur.tok.upper in _CONTAINERS and (cur.after.op in ("<", "<>") or _at_map(cur)):
        return _container(cur, start)
    name = _name(cur)
    parameters = _parameters(cur) if cur.tok.op == "(" else ()
    name = _zoned(cur, name)
    return TypeRef(name, parameters, span=cur.span_since(start))


def _name(cur: Reader) -> str:
    tok = cur.tok
    if tok.kind not in ("word", "quoted"):
        cur.expected("a type")
    name = cur.expect_name("a type")
    if tok.kind == "word":
        if name in ("character", "char") and cur.tok.upper == "VARYING":
            name = f"{name} {cur.next().text.lower()}"
        elif name == "double" and cur.accept_words("PRECISION"):
            name = "double precision"
    while cur.tok.op == "." and cur.after.kind in ("word", "quoted"):
        cur.next()
        name += "." + cur.next().name
    return _SPELLINGS.get(name, name)


def _zoned(cur: Reader, name: str) -> str:
    if name not in ("timestamp", "time") or cur.tok.upper not in ("WITH", "WITHOUT"):
        return name
    for word in ("WITH", "WITHOUT"):
        if cur.accept_words(word, "TIME", "ZONE"):
            return _SPELLINGS[f"{name} {word.lower()} time zone"]
    return name


def _parameters(cur: Reader) -> tuple[int, ...]:
    cur.expect_op("(")
    found = cur.listed(_whole)
    cur.expect_op(")", label="a comma or `)` goes here")
    return found


def _whole(cur: Reader) -> int:
    tok = cur.tok
    if tok.kind != "number" or not (tok.text.isascii() and tok.text.isdigit()) or len(tok.text) > 9:
        cur.fail(
            "FQ1007",
            f"the parameter of a type must be a whole number, found {tok.shown()}",
            help="for example  numeric(10, 2)",
        )
    return int(cur.next().text)


def _array(cur: Reader, element: TypeRef, start: Tok) -> TypeRef:
    if not cur.accept_words("ARRAY"):
        cur.expect_op("[")
        _size(cur)
    elif cur.accept_op("["):
        _size(cur)
    return TypeRef("array", args=(element,), span=cur.span_since(start))


def _size(cur: Reader) -> None:
    """`[3]` declares no more than `[]`, as in PostgreSQL."""
    if cur.tok.op != "]":
        _whole(cur)
    cur.expect_op("]", help="write  int[]")


def _container(cur: Reader, start: Tok) -> TypeRef:
    cur.enter()
    name = cur.next().name
    if cur.accept_op("<>"):
        cur.leave()
        return TypeRef(name, span=cur.span_since(start))
    closer = ")" if cur.accept_op("(") else ">"
    if closer == ">":
        cur.expect_op("<")
    args: list[TypeRef] = []
    members: list[tuple[str, TypeRef]] = []
    while cur.tok.op != closer:
        if args or members:
            cur.expect_op(",", label=f"a comma or `{closer}` goes here")
        if name == "struct":
            field = cur.expect_label("the name of a field")
            members.append((field, parse_type(cur)))
        else:
            args.append(parse_type(cur))
    cur.expect_op(closer)
    cur.leave()
    wanted = {"array": 1, "map": 2, "struct": len(args)}[name]
    if len(args) != wanted:
        cur.fail("FQ1007", f"{name} takes {wanted} types, found {len(args)}", at=cur.span_since(start))
    return TypeRef(name, args=tuple(args), fields=tuple(members), span=cur.span_since(start))
