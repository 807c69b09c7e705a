"""flowql.yaml: what is read, and how mistakes are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.render import render
from flowql.compiler.driver import QueryDefinition
from flowql.config.api import ApiSettings, TokenSettings
from flowql.config.compile import compile_sources
from flowql.config.load import load_project, read_project
from flowql.config.project import Project
from flowql.config.sections import MetricsSettings
from flowql.deploy.engine import config_of
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import ProjectError
from flowql.runtime.log.kafka.connection import Connection

SOURCE = "CREATE STREAM S (K STRING KEY, A INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');"


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, *, target: str | None = None, env: Mapping[str, str] | None = None, **variables: str) -> Project:
    Path("flowql.yaml").write_text(text)
    Path("s.sql").write_text(SOURCE)
    return read_project(Path("."), target=target, variables=variables, environment=env or {})


def mistakes(text: str) -> list[Diagnostic]:
    return list(compile_sources(read(text)).diagnostics)


def only(text: str) -> tuple[str, int, int]:
    """Code, line and column of the one mistake; its caret stands under what the line has there."""
    found = mistakes(text)
    assert len(found) == 1, render(found)
    span = found[0].span
    assert span.line_text == text.split("\n")[span.line - 1]
    return found[0].code, span.line, span.column


def test_a_project_is_read() -> None:
    project = read(
        "name: shop\ndialect: ksql\nsql: s.sql\nvars: {LIMIT: 5}\nproperties: {ksql.timestamp.throw.on.invalid: true}\n"
        "defaults: {partitions: 3, value_format: JSON}\npriorities: {CSAS_L: high, M: {priority: batch, weight: 2}}\n"
        "targets:\n  a: {threads: 4, memory: 512 MB, latency_target: 2 seconds, data_dir: data/x}\n  b: {log: kafka}\n"
        "default_target: a\n"
    )
    assert not project.diagnostics
    assert (project.name, project.partitions, len(project.sources)) == ("shop", 3, 1)
    target = project.target
    assert (target.name, target.threads, target.memory_bytes, target.latency_target_ms) == ("a", 4, 512 << 20, 2000)
    assert target.data_dir == Path("data/x").resolve()
    assert project.targets["b"].data_dir == Path(".flowql/b").resolve()
    assert project.overrides["CSAS_L"].priority == "high"
    assert project.overrides["M"].weight == 2
    assert project.properties["ksql.timestamp.throw.on.invalid"] == "true"
    assert read("name: x").target.data_dir == Path(".flowql/default").resolve()


def test_the_file_is_found_from_below() -> None:
    read("name: above")
    Path("a/b").mkdir(parents=True)
    assert load_project(Path("a/b")).name == "above"
    assert load_project(Path("flowql.yaml")).name == "above"


def test_without_a_file_the_mistake_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        load_project(tmp_path)
    assert caught.value.diagnostics[0].code == "FQ3002"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: x\ntargets:\n  default:\n    engine: runtime\n    thread: 2\n", ("FQ3003", 5, 5)),
        ("name: x\nnmae: y\n", ("FQ3003", 2, 1)),
        ("name: x\ntargets:\n  default: {threads: many}\n", ("FQ3004", 3, 22)),
        ("name: x\ntargets:\n  default: {threads: 0}\n", ("FQ3004", 3, 22)),
        ("name: x\ntargets:\n  default: {data_dir: 's3a://bucket/x'}\n", ("FQ3004", 3, 23)),
        ("name: x\ntargets:\n  default: {data_dir: 'file:/data'}\n", ("FQ3004", 3, 23)),
        ("name: x\ntargets: [1]\n", ("FQ3004", 2, 10)),
        ("name: x\nsql: {a: b}\n", ("FQ3004", 2, 6)),
        ("name: x\nqueries: one\n", ("FQ3004", 2, 10)),
        ("name: x\ndialect: ksqll\n", ("FQ3004", 2, 10)),
        ("name: x\ntargets:\n  default: {memory: lots}\n", ("FQ3004", 3, 21)),
        ("name: x\ntargets:\n  default: {memory: 4}\n", ("FQ3004", 3, 21)),
        ("name: x\ntargets:\n  default: {dead_letters: {keep: 7}}\n", ("FQ3004", 3, 34)),
        ("name: x\ntargets:\n  default: {dead_letters: {size: 1}}\n", ("FQ3004", 3, 34)),
        ("name: x\nname: y\n", ("FQ3005", 2, 1)),
        ("name: x\ntargets:\n  default: {questions: {}}\n", ("FQ3003", 3, 13)),
        ("dialect: ksql\n", ("FQ3006", 1, 1)),
        ("name: x\nsql:\n  - t.sql\n", ("FQ3007", 3, 5)),
        ("name: x\nsql: ['sub/*.sql']\n", ("FQ3007", 2, 7)),
        ("name: x\ntargets:\n  default: {threads: '${NONE}'}\n", ("FQ3008", 3, 23)),
        ("name: x\ntargets: {local: {}}\ndefault_target: locl\n", ("FQ3009", 3, 17)),
        ("name: x\nqueries:\n  - {sql: 'SET ''a''=''b'';', into: T}\n", ("FQ3010", 3, 31)),
        ("name: x\nsql: s.sql\nqueries: [{into: T, from: S}]\n", ("FQ3010", 3, 11)),
        ("name: x\nsql: s.sql\npriorities: {CSAS_T: high}\n", ("FQ3011", 3, 14)),
        (
            "name: x\nsql: s.sql\ntargets:\n  default: {engine: spark, spark: {hash_buckets: {CSAS_T: 4}}}\n",
            ("FQ3011", 4, 51),
        ),
        ("name: x\n\tb: 1\n", ("FQ3001", 2, 1)),
        ("name: [x\n", ("FQ3001", 1, 9)),
        ("name: 'x\n", ("FQ3001", 1, 9)),
    ],
)
def test_a_mistake_stands_at_its_place(text: str, place: tuple[str, int, int]) -> None:
    assert only(text) == place


def test_variables_of_targets_that_are_not_chosen_may_be_missing() -> None:
    """One of a cluster's target stopped every command on machines that have no such variable."""
    text = "name: x\ntargets:\n  default: {threads: 3}\n  far: {log: kafka, kafka: {bootstrap: '${BROKERS}'}}\n"
    project = read(text)
    assert not project.diagnostics
    assert (project.target.threads, list(project.targets), list(project.undefined)) == (3, ["default"], ["far"])
    (missing,) = read(text, target="far").diagnostics
    assert (missing.code, missing.span.line, missing.title) == ("FQ3008", 4, "variable `BROKERS` is not defined")
    assert list(read(text, env={"BROKERS": "b:1"}).targets) == ["default", "far"]
    assert [d.code for d in mistakes(f"{text}default_target: far\n")] == ["FQ3008"]


def test_unreadable_files_are_mistakes_too() -> None:
    assert [d.code for d in mistakes("")] == ["FQ3006"]
    assert [d.code for d in mistakes("name: \x00")] == ["FQ3001"]
    assert [d.code for d in mistakes("[" * 3000)] == ["FQ3001"]
    Path("flowql.yaml").write_bytes(b"name: \xff")
    assert [d.code for d in read_project(Path(".")).diagnostics] == ["FQ3007"]
    assert [d.code for d in mistakes("--- {name: a}\n--- {name: b}")] == ["FQ3001"]


def test_all_mistakes_come_at_once() -> None:
    text = "name: x\nnmae: y\nsql: [s.sql, t.sql]\nqueries:\n  - sql: |\n      CREATE STREAM L AS SELECT B FROM S;\n"
    assert [(d.code, d.span.line) for d in mistakes(text)] == [("FQ3003", 2), ("FQ3007", 3), ("FQ2002", 6)]


def test_a_project_that_lists_nothing_says_which_files_are_not_read() -> None:
    [found] = mistakes("name: shop")
    assert (found.code, found.severity, found.why) == ("FQ3014", "warning", "s.sql is not read")
    assert not mistakes("name: shop\nsql: s.sql")


def test_a_type_error_in_a_block_of_sql_stands_in_the_yaml_file() -> None:
    text = (
        "name: x\nsql: [s.sql]\nqueries:\n  - sql: |\n      CREATE STREAM L AS\n"
        "        SELECT K, A + 1 AS B\n        FROM S\n        WHERE 1 = 1 AND K > 5;\n"
    )
    code, line, column = only(text)
    assert (code, line) == ("FQ2005", 8)
    assert text.split("\n")[7][column - 1 :].startswith("K > 5")


@pytest.mark.parametrize(
    ("field", "bad", "code"),
    [
        ("where: A > 1 AND K + 2 > 1", "K + 2", "FQ2005"),
        ("where: 'K = ''x'' AND NOPE = 1'", "NOPE", "FQ2002"),
        ("where: A >", "", "FQ1001"),
        ("where: A > ${X:-100} FROM", "FROM", "FQ1001"),
        ("partition_by: [A, NOPE]", "NOPE", "FQ2002"),
        ("window: TUMBLING (SIZE 0 SECONDS)", "0 SECONDS", "FQ1009"),
        ("join:\n      - JOIN T ON S.K = T.K", "T ON", "FQ2001"),
        ("with: {VALUE_FORMT: JSON}", "VALUE_FORMT", "FQ2010"),
        ("group_by: K AS X", "K AS X", "FQ3010"),
        ("latency_target: soon", "soon", "FQ3004"),
    ],
)
def test_a_mistake_in_a_structured_field_stands_there(field: str, bad: str, code: str) -> None:
    text = f"name: x\nsql: [s.sql]\nqueries:\n  - into: L\n    from: S\n    select: [K, A]\n    {field}\n"
    found = mistakes(text)
    assert found[0].code == code, render(found)
    span = found[0].span
    assert span.path == "flowql.yaml"
    assert span.line_text[span.column - 1 :].startswith(bad), render(found)
    if bad and code.startswith("FQ2"):
        assert span.line_text[span.column - 1 :][: span.length] in (bad, bad[: span.length])


def test_variables_are_replaced_in_settings_and_sql() -> None:
    text = (
        "name: ${NAME}\nsql: [s.sql]\nvars: {LIMIT: 5, MORE: '${LIMIT}'}\nqueries:\n"
        "  - sql: CREATE STREAM L AS SELECT * FROM S WHERE A > ${MORE} AND A < ${TOP:-9};\n"
        "  - {into: M, from: S, select: '*', where: 'A = ${LIMIT}'}\ntargets:\n  default: {threads: '${THREADS:-3}'}\n"
    )
    project = read(text, env={"NAME": "from_env"}, LIMIT="7")
    compiled = compile_sources(project)
    assert compiled.ok, render(compiled.diagnostics)
    assert (project.name, project.target.threads) == ("from_env", 3)
    assert "A > 7" in compiled.plan.queries[0].sql.replace("${MORE}", "7")
    assert [v.value for v in _literals(compiled.plan.queries[1].logical)] == [7]
    assert read(text, env={"NAME": "n"}).target.threads == 3


def _literals(node: object) -> list[object]:
    from flowql.compiler.plan.expr import Literal, walk
    from flowql.compiler.plan.logical import walk_nodes
    from flowql.compiler.plan.visit import exprs_of

    return [e for n in walk_nodes(node) for x in exprs_of(n.spec) for e in walk(x) if isinstance(e, Literal)]


def test_variables_of_sql_files_come_from_everywhere() -> None:
    Path("v.sql").write_text("CREATE STREAM V WITH (PARTITIONS=${P}) AS SELECT * FROM S WHERE A > ${TOP:-9} AND B = 1;")
    project = read("name: x\nsql: [s.sql, v.sql]\nvars: {P: 2}\n")
    found = compile_sources(project).diagnostics
    text = Path("v.sql").read_text()
    assert [(d.code, d.span.column) for d in found] == [("FQ2002", text.index("B = 1") + 1)]
    assert found[0].span.line_text == text


def test_asking_for_a_target_that_is_not_there() -> None:
    read("name: x\ntargets: {local: {}}\n")
    with pytest.raises(ProjectError) as caught:
        load_project(Path("."), target="lcal")
    assert caught.value.diagnostics[0].help == "did you mean `local`?"


def test_structured_queries_name_themselves() -> None:
    project = read(
        "name: x\nqueries:\n  - {name: big, into: Large, from: S, select: '*'}\n"
        "  - {name: Large, from: S, select: [K, 'A, A AS B'], kind: stream}\n  - {into: '`Large`', from: S, select: '*'}\n"
    )
    first, second, third = (s for s in project.sources if isinstance(s, QueryDefinition))
    assert (first.name, [p.name for p in first.properties]) == ("LARGE", ["QUERY_ID"])
    assert (second.name, second.kind, len(second.query.select), second.properties) == ("LARGE", "stream", 3, ())
    assert third.name == "Large"


def test_a_target_is_watched_at_a_port_or_an_address() -> None:
    text = "name: demo\ntargets:\n  a: {metrics: 9464}\n  b: {metrics: {port: 9465, address: 0.0.0.0}, log_level: debug}\n  c: {}\n"
    targets = read(text).targets
    assert targets["a"].metrics == MetricsSettings(9464)
    assert targets["b"].metrics == MetricsSettings(9465, "0.0.0.0")
    assert (targets["c"].metrics, targets["c"].log_level, targets["b"].log_level) == (None, "info", "debug")
    settings = settings_of(read(text, target="b"))
    assert Settings.loads(settings.dumps()) == settings


def test_the_rack_of_an_instance_reaches_its_members_and_its_consumers() -> None:
    text = "name: demo\ntargets:\n  a: {log: kafka, kafka: {bootstrap: 'h:1', instances: many, rack: '${R}'}}\n"
    settings = settings_of(read(text, env={"R": "eu-1"}))
    assert Settings.loads(settings.dumps()) == settings
    assert config_of(replace(settings, data_dir=Path("data"))).rack == "eu-1"
    assert settings.kafka is not None
    assert Connection.to(settings.kafka).consumer("c", "g", 1)["client.rack"] == "eu-1"
    unset = settings_of(read(text.replace(", rack: '${R}'", "")))
    assert unset.kafka is not None
    assert "client.rack" not in Connection.to(unset.kafka).consumer("c", "g", 1)


def test_a_setting_that_does_not_exist_is_refused_instead_of_ignored() -> None:
    """`standbys` and `remote_state` existed, and had to be off."""
    found = read("name: demo\ntargets:\n  a: {standbys: 1, remote_state: elsewhere}\n  b: {standbys: 0}\n").diagnostics
    assert [(d.code, d.span.line) for d in found] == [("FQ3003", 3), ("FQ3003", 3), ("FQ3003", 4)]


def test_a_key_of_another_place_is_named_with_its_place() -> None:
    keys = "{instances: many, port: 8321, thread: 2}"
    found = read(f"name: demo\ntargets:\n  a: {keys}\n").diagnostics
    assert [d.help for d in found] == [
        "`instances` is a key of kafka:  kafka: {instances: ...}",
        "`port` is a key of metrics, api, pg and members:  metrics: {port: ...}",
        "did you mean `threads`?",
    ]


def test_a_key_of_a_target_is_shown_where_targets_are() -> None:
    (found,) = read("name: demo\npg: 5432\ntargets: {a: {}}\n").diagnostics
    assert (found.code, found.help) == ("FQ3003", "`pg` is a key of a target:  targets: {NAME: {pg: ...}}")


def test_a_port_that_is_none_is_shown_where_it_stands() -> None:
    (found,) = read("name: demo\ntargets:\n  a: {metrics: none}\n").diagnostics
    assert (found.code, found.span.line) == ("FQ3004", 3)


TOKEN = "a-token-of-24-characters"


def test_a_target_is_reached_from_elsewhere_with_a_token() -> None:
    text = "name: demo\ntargets:\n  a: {api: {port: 8321, token: '${T}'}}\n  b: {}\n"
    project = read(text, env={"T": TOKEN})
    assert not project.diagnostics
    assert project.targets["a"].api == ApiSettings(8321, TOKEN)
    assert project.targets["b"].api is None
    assert TOKEN not in repr(project)
    settings = settings_of(project)
    assert TOKEN not in repr(settings)
    assert Settings.loads(settings.dumps()) == settings
    more = "address: 0.0.0.0, names: shop.example.com, certificate: c.pem, key: k.pem"
    project = read(text.replace("'${T}'", f"'{TOKEN}', {more}"))
    api = project.target.api
    assert api is not None
    assert (api.address, api.names, api.certificate) == ("0.0.0.0", ("shop.example.com",), str(project.root / "c.pem"))
    assert {"0.0.0.0", "shop.example.com"} <= set(api.called)
    assert Settings.loads(settings_of(project).dumps()) == settings_of(project)


def test_a_target_has_tokens_with_roles() -> None:
    more = (
        f"tokens: {{board: {{hash: {'A' * 64}, roles: read, results: [sales]}}, ci: {{hash: '${{H}}', roles: [read, deploy]}}}},"
        " webhooks: {orders: '${S}'}, origins: 'https://shop.example.com/'"
    )
    text = f"name: demo\ntargets:\n  a: {{api: {{port: 8321, token: '{TOKEN}', {more}}}}}\n"
    project = read(text, env={"H": "b" * 64, "S": "shared-with-the-sender"})
    assert not project.diagnostics
    api = project.target.api
    assert api is not None
    assert api.tokens == {
        "board": TokenSettings("a" * 64, ("read",), ("sales",)),
        "ci": TokenSettings("b" * 64, ("read", "deploy")),
    }
    assert (api.webhooks, api.origins) == ({"orders": "shared-with-the-sender"}, ("https://shop.example.com",))
    assert "shared-with" not in repr(project)
    assert Settings.loads(settings_of(project).dumps()) == settings_of(project)


@pytest.mark.parametrize(
    ("more", "code", "title"),
    [
        ("tokens: {x: {hash: geheim, roles: read}}", "FQ3021", "`hash` of the token `x` is not an SHA-256"),
        (f"tokens: {{x: {{hash: {'a' * 64}, roles: all}}}}", "FQ3004", "`roles` must be"),
        (f"tokens: {{x: {{hash: {'a' * 64}}}}}", "FQ3006", "`roles` is missing"),
        ("tokens: {x: {roles: read}}", "FQ3006", "`hash` is missing"),
        (
            f"tokens: {{x: {{hash: {'a' * 64}, roles: [read, deploy], results: y}}}}",
            "FQ3021",
            "role `deploy` concerns the whole target",
        ),
        ("webhooks: {orders: geheim}", "FQ3021", "a secret of `webhooks` has fewer than 16"),
        ("origins: '*'", "FQ3021", "is not an origin"),
        ("origins: https://x.example.com/path", "FQ3021", "is not an origin"),
    ],
)
def test_mistakes_in_tokens_are_shown_where_they_stand(more: str, code: str, title: str) -> None:
    (found,) = read(f"name: demo\ntargets:\n  a:\n    api: {{port: 8321, token: {TOKEN}, {more}}}\n").diagnostics
    assert (found.code, found.span.line) == (code, 4), found
    assert title in found.title
    assert "geheim" not in render([found])


@pytest.mark.parametrize(
    ("api", "code", "title", "help_"),
    [
        ("{port: 8321}", "FQ3006", "`token` is missing in api", "add  token: '${FLOWQL_TOKEN}'"),
        ("{port: 8321, token: '${T}'}", "FQ3008", "variable `T` is not defined", "under `vars`"),
        ("{port: 8321, token: geheim-geheim}", "FQ3013", "has fewer than 16 characters", "${FLOWQL_TOKEN}"),
        ("{port: 8321, token: '${T:-geheim-geheim}'}", "FQ3013", "has fewer than 16 characters", "${FLOWQL_TOKEN}"),
        ("{port: 8321, token: geheim geheim geheim}", "FQ3013", "blanks or characters beyond ASCII", "${FLOWQL_TOKEN}"),
        ("{port: 8321, token: gehäim-geheim-geheim}", "FQ3013", "blanks or characters beyond ASCII", "${FLOWQL_TOKEN}"),
        (f"{{token: {TOKEN}}}", "FQ3006", "`port` is missing in api", "add  port: 8321"),
        (
            f"{{port: 8321, token: {TOKEN}, key: k.pem}}",
            "FQ3006",
            "`certificate` is missing in api",
            "add  certificate",
        ),
        (f"{{port: 0, token: {TOKEN}}}", "FQ3004", "`port` must be a whole number", ""),
        (f"{{port: 8321, tokken: {TOKEN}, token: {TOKEN}}}", "FQ3003", "unknown key `tokken`", "did you mean `token`?"),
    ],
)
def test_mistakes_in_api_are_shown_where_they_stand(api: str, code: str, title: str, help_: str) -> None:
    (found,) = read(f"name: demo\ntargets:\n  a:\n    api: {api}\n").diagnostics
    assert (found.code, found.span.line) == (code, 4)
    assert title in found.title
    assert help_ in found.help
    assert found.span.length > 0
    if code == "FQ3013" and ":-" not in api:
        assert "geh" not in render([found]), "the token is not shown"
