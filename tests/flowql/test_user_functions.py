"""Functions of a project: Python functions that its queries call, and what becomes of queries when these are edited."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flowql
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import udf
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.plan.types import BIGINT
from flowql.config.compile import compile_sources
from flowql.config.functions import LoadError, load_functions
from flowql.config.load import load_project
from flowql.deploy.functions import check_functions, functions_of
from flowql.errors import CommandError, CompileError
from flowql.runtime.functions.workers import FunctionFailed
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until
from tests.registries import forget_projects

pytestmark = pytest.mark.turns("functions")

YAML = "name: shop\nfunctions: [scoring]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT DOUBLE, COUNTRY STRING, AT TIMESTAMP, TAGS ARRAY<STRING>)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM SCORED AS SELECT ID, score(AMOUNT, COUNTRY) AS SCORE FROM ORDERS;
CREATE STREAM PLAIN AS SELECT ID, AMOUNT FROM ORDERS;
"""
SCORING = """
from flowql import udf
from rates import RATES

@udf
def score(amount: float, country: str | None) -> float:
    if amount < 0:
        raise ValueError(f"a negative amount: {amount}")
    if amount == 13:
        raise SystemExit
    return amount * RATES.get(country, 1.0)
"""
ORDERS = [
    {"id": 1, "amount": 10.0, "country": "DE"},
    {"id": 2, "amount": 10.0, "country": None},
    {"id": 3, "amount": None, "country": "DE"},
    {"id": 4, "amount": -1.0, "country": "DE"},
    {"id": 5, "amount": 13.0, "country": "DE"},
]
SCORES = [{"ID": 1, "SCORE": 20.0}, {"ID": 2, "SCORE": 10.0}, *({"ID": n, "SCORE": None} for n in (3, 4, 5))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, YAML, SQL, scoring=SCORING, rates='RATES = {"DE": 2.0}\n')


def scores(instance: flowql.Connection) -> list[dict[str, Any]]:
    return instance.sql("SELECT ID, SCORE FROM SCORED ORDER BY ID").arrow().to_pylist()


def test_rows_go_through_functions_and_failures_are_dead_letters(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS)
        until(lambda: scores(instance), SCORES)
        letters = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        texts = " ".join(str(row) for row in letters)
        assert "a negative amount: -1.0" in texts
        assert "SCORE raised SystemExit" in texts
        assert len(letters) == 2


@pytest.mark.parametrize("edited", ["scoring.py", "rates.py"])
def test_an_edited_function_is_a_change_of_the_queries_that_call_it(folder: Path, edited: str) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS[:2])
        until(lambda: len(scores(instance)), 2)
        if edited == "rates.py":
            (folder / edited).write_text('RATES = {"DE": 5.0}\n')
            expected = [50.0, 10.0]
        else:
            (folder / edited).write_text(SCORING.replace("return amount", "return 1 + amount"))
            expected = [21.0, 11.0]
        done = instance.deploy()
        assert "SCORED" in str(done)
        until(lambda: [r["SCORE"] for r in scores(instance)], expected)
        assert state_of(instance, "CSAS_PLAIN")["generation"] == 1
        assert state_of(instance, "CSAS_SCORED")["generation"] == 2


def test_a_query_whose_function_is_not_what_was_deployed_fails_and_others_run(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS[:2])
        until(lambda: len(scores(instance)), 2)
    (folder / "rates.py").write_text("RATES = {}\n")
    with resumed(folder) as instance:
        instance.produce("ORDERS", [{"id": 7, "amount": 7.0, "country": "DE"}])
        until(
            lambda: (
                "was deployed in a version that the module scoring does not have"
                in str(state_of(instance, "CSAS_SCORED")["last_error"])
            ),
            True,
        )
        until(lambda: instance.sql("SELECT COUNT(*) FROM PLAIN").one(), 3)
        assert len(scores(instance)) == 2
        instance.deploy()
        until(lambda: [r["SCORE"] for r in scores(instance)], [10.0, 10.0, 7.0])


def test_an_instance_starts_without_a_module_that_cannot_be_imported(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS[:1])
        until(lambda: len(scores(instance)), 1)
    (folder / "rates.py").unlink()
    with pytest.raises(CompileError, match="No module named 'rates'"):
        flowql.connect(folder).deploy()
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS[1:2])
        until(lambda: instance.sql("SELECT COUNT(*) FROM PLAIN").one(), 2)
        assert len(scores(instance)) == 1


def test_a_new_process_loads_what_its_plan_calls(folder: Path) -> None:
    with running(folder) as instance:
        instance.produce("ORDERS", ORDERS[:1])
        until(lambda: len(scores(instance)), 1)
    with resumed(folder) as instance:
        instance.produce("ORDERS", ORDERS[1:2])
        until(lambda: scores(instance), SCORES[:2])


def test_projects_may_have_functions_of_the_same_name(tmp_path: Path) -> None:
    one = made(tmp_path / "one", YAML, SQL, scoring=SCORING, rates='RATES = {"DE": 2.0}\n')
    two = made(tmp_path / "two", YAML, SQL, scoring=SCORING, rates='RATES = {"DE": 3.0}\n')
    with running(one) as first, running(two) as second:
        for instance in (first, second):
            instance.produce("ORDERS", ORDERS[:1])
        until(lambda: scores(first), [{"ID": 1, "SCORE": 20.0}])
        until(lambda: scores(second), [{"ID": 1, "SCORE": 30.0}])
    assert "scoring" not in sys.modules
    assert "rates" not in sys.modules


def test_what_a_project_brings_is_no_built_in_function(folder: Path) -> None:
    before = set(all_functions())
    assert functions_of(compile_sources(load_project(folder)).plan)
    assert set(all_functions()) == before


def test_a_version_stands_for_the_source(folder: Path) -> None:
    source = SCORING.replace("@udf", '@udf(version="7")')
    (folder / "scoring.py").write_text(source)
    before = functions_of(compile_sources(load_project(folder)).plan)
    (folder / "scoring.py").write_text(source + "\n# edited\n")
    assert functions_of(compile_sources(load_project(folder)).plan) == before == {"SCORE@scoring:7"}
    (folder / "scoring.py").write_text(source.replace('"7"', '"8"'))
    assert functions_of(compile_sources(load_project(folder)).plan) == {"SCORE@scoring:8"}


@pytest.mark.parametrize("dialect", ["ksql", "standard"])
def test_every_type_goes_in_and_comes_out(tmp_path: Path, dialect: str) -> None:
    source = """
from datetime import date, datetime, time
from flowql import udf

@udf
def all_types(b: bool, n: int, f: float, s: str, d: date, t: time, ts: datetime, tags: list[str], sizes: dict[str, int]) -> str:
    return repr((b, n, f, s, d, t, ts, tags, sizes))

@udf
def day(ts: datetime) -> date:
    return ts.date()

@udf
def clock(ts: datetime) -> time:
    return ts.time()

@udf
def later(ts: datetime) -> datetime:
    return ts.replace(year=2030)

@udf
def days(ts: datetime, n: int) -> list[date]:
    return [ts.date()] * n

@udf
def named(n: int) -> dict[str, float]:
    return {"half": n / 2, "none": None}

@udf
def data(s: str) -> bytes:
    return s.encode()

@udf
def yes(n: int) -> bool:
    return n > 1
"""
    calls = (
        "all_types(b, n, f, s, d, t, ts, tags, sizes) AS x, day(ts) AS a1, clock(ts) AS a2, later(ts) AS a3, days(ts, 2) AS a4,"
        " named(n) AS a5, data(s) AS a6, yes(n) AS a7"
    )
    if dialect == "ksql":
        sql = f"""CREATE STREAM I (k BIGINT KEY, b BOOLEAN, n BIGINT, f DOUBLE, s STRING, d DATE, t TIME, ts TIMESTAMP, tags ARRAY<STRING>,
          sizes MAP<STRING, BIGINT>) WITH (KAFKA_TOPIC='i', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
        CREATE STREAM O AS SELECT k, {calls} FROM I;"""
    else:
        sql = f"""CREATE STREAM i (k BIGINT KEY, b BOOLEAN, n BIGINT, f DOUBLE PRECISION, s TEXT, d DATE, t TIME, ts TIMESTAMP, tags TEXT[],
          sizes MAP<STRING, BIGINT>) WITH (KAFKA_TOPIC='i', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
        CREATE VIEW o AS SELECT k, {calls} FROM i;"""
    made(tmp_path, YAML + f"dialect: {dialect}\n", sql, scoring=source)
    at = datetime(2026, 3, 4, 5, 6, 7, 89_000)
    row = {
        "k": 1,
        "b": True,
        "n": 3,
        "f": 0.5,
        "s": "é",
        "d": at.date(),
        "t": at.time(),
        "ts": at,
        "tags": ["x"],
        "sizes": {"y": 2},
    }
    with running(tmp_path) as instance:
        instance.produce("i" if dialect == "standard" else "I", [row])
        until(lambda: instance.sql("SELECT COUNT(*) FROM o").one(), 1)
        (found,) = instance.sql("SELECT * FROM o").arrow().to_pylist()
        found = {k.lower(): v for k, v in found.items()}
    assert found["x"] == repr((True, 3, 0.5, "é", at.date(), at.time(), at, ["x"], {"y": 2}))
    assert found["a1"] == date(2026, 3, 4)
    assert found["a2"] == at.time()
    assert found["a3"] == at.replace(year=2030)
    assert found["a4"] == [date(2026, 3, 4)] * 2
    assert dict(found["a5"]) == {"half": 1.5, "none": None}
    assert found["a6"] == "é".encode()
    assert found["a7"] is True


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("def f(a: int) -> float:\n    return 'x'", "it returned str, but DOUBLE is declared"),
        ("def f(a: int) -> int:\n    return True", "it returned bool, but BIGINT is declared"),
        ("def f(a: int) -> int:\n    return 1 << 63", "is beyond 64 bits"),
        ("def f(a: int) -> list[int]:\n    return (1,)", "it returned tuple, but ARRAY<BIGINT> is declared"),
        ("def f(a: int) -> list[int]:\n    return ['1']", "it returned str, but BIGINT is declared"),
        ("def f(a: int) -> dict[str, int]:\n    return {1: 1}", "a dict with a key of type int"),
        ("def f(a: int) -> date:\n    return datetime(2020, 1, 1)", "it returned datetime, but DATE is declared"),
        ("def f(a: int) -> str:\n    raise KeyboardInterrupt", "F raised KeyboardInterrupt"),
        ("class E(BaseException): ...\n@udf\ndef f(a: int) -> str:\n    raise E", "F raised E"),
        ("def f(a: int) -> str:\n    return '\\ud800'", "it returned a string with half of a surrogate pair"),
        ("def f(a: int) -> dict[str, int]:\n    return {'\\ud800': 1}", "half of a surrogate pair"),
        ("def f(a: int) -> time:\n    return time(1, tzinfo=timezone.utc)", "it returned a time with a zone"),
        ("def f(a: int) -> Annotated[Decimal, 4, 2]:\n    return Decimal('NaN')", "it returned NaN where DECIMAL"),
        (
            "class E(Exception):\n    def __str__(self):\n        return 1\n@udf\ndef f(a: int) -> str:\n    raise E",
            "its text cannot be made",
        ),
        ("def f(a: int) -> str:\n    raise ValueError('x' * 9999)", "^x{2000}[.]{3}"),
    ],
)
def test_a_value_of_another_type_is_a_failure_of_the_row(tmp_path: Path, body: str, title: str) -> None:
    imports = (
        "from datetime import *\nfrom decimal import Decimal\nfrom typing import Annotated\nfrom flowql import udf\n"
    )
    (tmp_path / "m.py").write_text(imports + ("" if "@udf" in body else "@udf\n") + body + "\n")
    function = load_functions(tmp_path, ["m"])["F"]
    with pytest.raises(FunctionFailed, match=title.replace("(", r"\(")):
        function.reference(Resolution((), BIGINT))(1)


MISTAKES = {
    "no_type": ("@udf\ndef f(a) -> int:\n    return a", "F does not say the type of its parameter a"),
    "no_result": ("@udf\ndef f(a: int):\n    return a", "F does not say the type of its result"),
    "decimal": (
        "from decimal import Decimal\n@udf\ndef f(a: int) -> Decimal:\n    return 1",
        "annotation Decimal, which has no SQL type",
    ),
    "digits": (
        "from decimal import Decimal\nfrom typing import Annotated\n@udf\ndef f(a: int) -> Annotated[Decimal, 2, 12]:\n    return 1",
        "annotation Annotated[Decimal, 2, 12], which is not a valid DECIMAL",
    ),
    "object": ("@udf\ndef f(a: object) -> int:\n    return 1", "F has the annotation object, which has no SQL type"),
    "recursive": (
        'from dataclasses import dataclass\n\n@dataclass\nclass Node:\n    n: int\n    next: "Node"\n\n@udf\n'
        "def f(a: Node) -> int:\n    return a.n",
        "F: next has Node, which is within itself",
    ),
    "value": (
        "@udf\ndef f(a: [int]) -> int:\n    return 1",
        "F has the annotation [<class 'int'>], which has no SQL type",
    ),
    "star": ("@udf\ndef f(*a: int) -> int:\n    return 1", "F has parameters that are not positional"),
    "generator": ("@udf\ndef f(a: int) -> list[int]:\n    yield a", "F is a generator"),
    "asynchronous": ("@udf\nasync def f(a: int) -> int:\n    return a", "F is asynchronous"),
    "isolation": (
        "@udf(isolation='thread')\ndef f(a: int) -> int:\n    return a",
        'isolation="thread" is not known',
    ),
    "memory": (
        "@udf(memory_mb='1 GB')\ndef f(a: int) -> int:\n    return a",
        "memory_mb='1 GB' is not a number of megabytes",
    ),
    "timeout": ("@udf(timeout=0)\ndef f(a: int) -> int:\n    return a", "timeout=0 is not a number of seconds"),
    "name": ("@udf(name='my f')\ndef f(a: int) -> int:\n    return a", "'MY F' cannot be called in SQL"),
    "version": ("@udf(version='1.2')\ndef f(a: int) -> int:\n    return a", "other characters than letters and digits"),
    "version of another type": ("@udf(version=2)\ndef f(a: int) -> int:\n    return a", "version=2 is not a string"),
    "argument without a name": (
        "@udf('score')\ndef f(a: int) -> int:\n    return a",
        "@udf has the argument 'score', which has no name",
    ),
    "fields of one name": (
        "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x: int\n    X: int\n\n@udf\n"
        "def f(a: int) -> Point:\n    return Point(a, a)",
        "F has Point with several fields x, whose case SQL does not tell apart",
    ),
    "fields that are not given": (
        "from dataclasses import dataclass, field\n\n@dataclass\nclass Point:\n    x: int = field(init=False)\n\n@udf\n"
        "def f(a: list[Point]) -> int:\n    return len(a)",
        "F takes Point, which cannot be made from its fields alone",
    ),
    "built_in": ("@udf\ndef abs(a: int) -> int:\n    return a", "ABS is a built-in function"),
    "aggregate": ("@udf(name='sum')\ndef f(a: int) -> int:\n    return a", "SUM is a built-in function"),
    "raises": ("1 / 0", "m cannot be imported: ZeroDivisionError: division by zero"),
    "exits": ("import sys\nsys.exit(3)", "m cannot be imported: SystemExit: 3"),
    "syntax": ("def f(:", "m cannot be imported: SyntaxError"),
    "imports": ("import not_there", "m cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_named_with_their_line(tmp_path: Path, name: str) -> None:
    source, title = MISTAKES[name]
    made(tmp_path, "name: x\nfunctions: m\n", "", m=f"from flowql import udf\n\n\n{source}\n")
    found = [d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012"]
    assert len(found) == 1
    assert title in found[0].title
    assert found[0].span.path.endswith("m.py")
    assert found[0].span.line >= 4
    assert found[0].span.line_text


def test_a_module_that_is_not_there_is_named_in_the_project_file(tmp_path: Path) -> None:
    made(tmp_path, "name: x\nfunctions: [m, sub.n]\n", "", m="")
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert found.title == "there is no sub/n.py in the project's folder"
    assert found.span.line == 2


def test_the_file_of_a_module_is_not_its_name(tmp_path: Path) -> None:
    """It said that there is no m/py.py."""
    made(tmp_path, "name: x\nfunctions: [m.py]\n", "", m="")
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert (found.title, found.help) == ("`m.py` is the name of a file", "a name without .py:  functions: [m]")


def test_a_function_that_two_modules_have_is_refused(tmp_path: Path) -> None:
    for name in ("m", "n"):
        (tmp_path / f"{name}.py").write_text("from flowql import udf\n@udf\ndef f(a: int) -> int:\n    return a\n")
    with pytest.raises(LoadError, match="F is in m, too"):
        load_functions(tmp_path, ["m", "n"])


def test_an_unknown_function_is_corrected_to_one_of_the_project(folder: Path) -> None:
    (folder / "shop.sql").write_text(SQL.replace("score(", "scoer("))
    (found,) = (d for d in compile_sources(load_project(folder)).diagnostics if d.severity == "error")
    assert found.code == "FQ2006"
    assert "SCORE" in found.help


def test_wrong_arguments_are_a_mistake_of_the_statement(folder: Path) -> None:
    (folder / "shop.sql").write_text(SQL.replace("score(AMOUNT, COUNTRY)", "score(COUNTRY)"))
    (found,) = (d for d in compile_sources(load_project(folder)).diagnostics if d.severity == "error")
    assert found.code == "FQ2005"
    assert "SCORE" in found.title
    assert "@" not in found.title + found.help


def test_what_is_installed_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    package = tmp_path / ".venv" / "lib" / "site-packages" / "installed_here"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 1\n")
    (tmp_path / "m.py").write_text(
        "import installed_here\nfrom flowql import udf\n@udf\ndef f(a: int) -> int:\n    return a\n"
    )
    sys.path.insert(0, str(package.parent))
    try:
        import installed_here  # type: ignore[import-not-found]

        load_functions(tmp_path, ["m"])
        assert sys.modules["installed_here"] is installed_here
    finally:
        sys.path.remove(str(package.parent))
        del sys.modules["installed_here"]


def test_another_thread_may_import_while_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(ModuleType):
        """Each look at its file adds a module, as the import of another thread may at that moment."""

        looks = 0

        @property
        def __file__(self) -> str:  # type: ignore[override]
            Busy.looks += 1
            monkeypatch.setitem(sys.modules, f"busy_{Busy.looks}", ModuleType("busy"))
            return "elsewhere.py"

    (tmp_path / "m.py").write_text("from flowql import udf\n@udf\ndef f(a: int) -> int:\n    return a\n")
    monkeypatch.setitem(sys.modules, "busy", Busy("busy"))
    assert set(load_functions(tmp_path, ["m"])) == {"F"}
    assert Busy.looks


def test_tests_of_a_project_call_them(folder: Path) -> None:
    (folder / "tests").mkdir()
    case = """name: a rate doubles
given:
  ORDERS: [{ID: 1, AMOUNT: 4.0, COUNTRY: DE}, {ID: 2, AMOUNT: 4.0}]
expect:
  SCORED: [{ID: 1, SCORE: %s}, {ID: 2, SCORE: 4.0}]
"""
    for value, exit_code in (("8.0", 0), ("9.0", 1)):
        (folder / "tests" / "rates.yaml").write_text(case % value)
        done = subprocess.run([sys.executable, "-m", "flowql", "test"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == exit_code, done.stdout + done.stderr


def test_a_decorated_function_stays_a_function() -> None:
    @udf(deterministic=False)
    def twice(n: int) -> int:
        return 2 * n

    assert twice(4) == 8
    with pytest.raises(DefinitionError):
        udf(len)


def test_an_instance_with_another_version_refuses_a_deployment(folder: Path, tmp_path: Path) -> None:
    plan = compile_sources(load_project(folder)).plan
    other = made(tmp_path / "other", YAML, SQL, scoring=SCORING, rates="RATES = {}\n")
    forget_projects()
    with pytest.raises(CommandError, match="the instance has another version of SCORE than this project"):
        check_functions(plan, str(other))
    check_functions(plan, str(folder))


def test_decimals_are_exact(tmp_path: Path) -> None:
    """A parameter takes every DECIMAL as it is; a result has the digits that its annotation says, half up."""
    source = """
from decimal import Decimal
from typing import Annotated
from flowql import udaf, udf

@udf
def with_vat(net: Decimal, rate: Decimal | None) -> Annotated[Decimal, 7, 2]:
    return net * (1 + (rate or Decimal("0.19")))

@udf
def shown(net: Decimal) -> str:
    return repr(net)

@udaf
class Largest:
    def init(self) -> Decimal | None:
        return None

    def add(self, seen: Decimal | None, price: Decimal) -> Decimal:
        return price if seen is None else max(seen, price)

    def result(self, seen: Decimal | None) -> Annotated[Decimal, 12, 3] | None:
        return seen
"""
    sql = """
CREATE STREAM I (K BIGINT KEY, A DECIMAL(20, 10), N BIGINT) WITH (KAFKA_TOPIC='i', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM O AS SELECT K, with_vat(A, 0.005) AS V, with_vat(N, NULL) AS W, shown(A) AS S FROM I;
CREATE TABLE L AS SELECT K, LARGEST(A) AS A FROM I GROUP BY K;
"""
    made(tmp_path, YAML, sql, scoring=source)
    with running(tmp_path) as instance:
        rows = [
            {"K": k, "A": Decimal(a), "N": n} for k, a, n in ((1, "1.0000000001", 3), (2, "99999", 1), (3, "-0.5", 0))
        ]
        instance.produce("I", rows)
        until(lambda: instance.sql("SELECT COUNT(*) FROM O").one(), 3)
        found = instance.sql("SELECT V, W, S FROM O ORDER BY K").arrow().to_pylist()
        assert found[0] == {"V": Decimal("1.01"), "W": Decimal("3.57"), "S": "Decimal('1.0000000001')"}
        assert found[1] == {"V": None, "W": Decimal("1.19"), "S": "Decimal('99999.0000000000')"}
        assert found[2] == {"V": Decimal("-0.50"), "W": Decimal("0.00"), "S": "Decimal('-0.5000000000')"}
        until(lambda: instance.sql("SELECT COUNT(*) FROM L").one(), 3)
        largest = instance.sql("SELECT A FROM L ORDER BY K").arrow().to_pylist()
        assert largest == [{"A": Decimal(a)} for a in ("1.000", "99999.000", "-0.500")]
        (letter,) = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert "does not fit DECIMAL(7, 2)" in str(letter)
