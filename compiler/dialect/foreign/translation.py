"""The walk over a tree of another dialect: each node by the rule of its class; a class without a rule is refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from flowql.compiler.dialect.foreign.dialects import AS_POSTGRES, FOLDS_ALL, dialect_of, identifier
from flowql.compiler.dialect.foreign.kinds import Columns, Kinds
from flowql.compiler.dialect.foreign.untranslated import Node, Problem, Untranslated, refuse, shown

Rule = Callable[["Translation", Node], Node]


class Translation:
    """Translates one statement. problems: what has no translation; the tree counts only when there are none. behind: text behind the statement.

    rules: by class of node. same: classes that mean the same everywhere, with the arguments of which this holds. columns: of relations.
    """

    def __init__(
        self, dialect: str, columns: Columns, rules: Mapping[type, Rule], same: Mapping[type, tuple[str, ...]]
    ) -> None:
        self.dialect, self.as_postgres = dialect, dialect in AS_POSTGRES
        self.kinds = Kinds(dialect, columns)
        self.problems: list[Problem] = []
        self.behind = ""
        self._rules, self._same = rules, same

    def __call__(self, node: Node) -> Node:
        """The node in FlowQL. Raises Untranslated."""
        rule = self._rules.get(type(node))
        if rule is not None:
            return rule(self, node)
        if type(node) in self._same:
            return self.copied(node, self._same[type(node)])
        if self.as_postgres and isinstance(node, exp.Func):
            return self.copied(node, tuple(node.arg_types))
        return refuse(
            node,
            self.name_of(node),
            f"no translation from {self.dialect} is known",
            "write it in FlowQL's standard dialect",
        )

    def copied(self, node: Node, allowed: tuple[str, ...]) -> Node:
        """The same node with translated arguments. Raises Untranslated for an argument that is not allowed."""
        given = {name: value for name, value in node.args.items() if value not in (None, False, [])}
        for name in given:
            if name not in allowed:
                refuse(
                    node,
                    f"{name.strip('_').upper()} of {self.name_of(node)}",
                    f"no translation from {self.dialect} is known",
                )
        made = type(node)(**{name: self.argument(value) for name, value in given.items()})
        made.comments = node.comments
        return made

    def argument(self, value: Any) -> Any:
        """A translated argument: a node, a list of nodes, or a constant of sqlglot's own."""
        if isinstance(value, list):
            return [self.noted(v) for v in value]
        return self.noted(value) if isinstance(value, exp.Expr) else value

    def noted(self, node: Node) -> Node:
        """The translated node; its problems are noted and translation goes on, so that all of a statement are listed at once."""
        if not isinstance(node, exp.Expr):
            return node
        try:
            return self(node)
        except Untranslated as error:
            self.problems += error.problems
            return exp.Null()

    def name(self, node: Node) -> Node:
        """An identifier as FlowQL finds it: unquoted names fold to lower case. Raises Untranslated."""
        text = node.name
        if self.dialect == "flink" or (self.as_postgres and node.args.get("quoted")):
            return identifier(text)
        if self.dialect in FOLDS_ALL or not node.args.get("quoted"):
            return identifier(text.lower())
        # Snowflake: "A" is the name that is also written a.
        if text == text.upper():
            return identifier(text.lower())
        if text == text.lower():
            refuse(
                node,
                f'the name "{text}"',
                f"in Snowflake {text} without quotes is another name, and here the same",
                "rename it",
            )
        return identifier(text)

    def name_of(self, node: Node) -> str:
        """The name of a construct for people: a function by its name, all else by its text."""
        if isinstance(node, exp.Anonymous):
            return f"the function {str(node.this).upper()}"
        if isinstance(node, exp.Func) and not isinstance(node, exp.Cast | exp.Case | exp.And | exp.Or):
            text = shown(node, dialect_of(self.dialect))
            return f"the function {text.split('(')[0]}" if "(" in text else f"`{text}`"
        return f"`{shown(node, dialect_of(self.dialect))}`"
