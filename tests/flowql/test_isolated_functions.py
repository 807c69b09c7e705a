"""Functions in processes of their own: what blocks, grows, crashes or exits costs its own call, and no other query."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest

from flowql.cli.monitoring.table import function_lines
from flowql.compiler.functions.bounds import ValueTooLarge, code_of
from flowql.compiler.functions.registry import AggregateFunction, Function, QueryFailure
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import BIGINT
from flowql.config import functions
from flowql.config.functions import load_functions
from flowql.runtime.functions import calls, metrics, workers
from flowql.runtime.functions.metrics import FunctionMetrics, function_metrics
from flowql.runtime.functions.runs import giving_way
from flowql.runtime.functions.workers import Code, FunctionFailed, Request, end_idle_workers
from flowql.server.address import is_alive
from flowql.server.prometheus import exposition
from tests.flowql.projects_with_modules import made, running, state_of, until
from tests.open_files import many_open_files
from tests.processes import children_that_run

pytestmark = pytest.mark.turns("functions")

M = """
import os, time
from flowql import udf

KEPT = []

@udf
def good(a: int) -> int:
    print("printed", a)
    return a + 1

@udf(timeout=0.5)
def bad(a: int) -> int:
    if a == 1:
        os._exit(3)
    if a == 2:
        os.kill(os.getpid(), 11)
    if a == 3:
        while True:
            pass
    if a == 4:
        time.sleep(60)
    if a == 5:
        return len(bytearray(10 << 30))
    if a == 6:
        raise SystemExit
    if a == 7:
        os.close(int(__import__("sys").argv[1]))
        time.sleep(60)
    return a

@udf
def grow(a: int) -> int:
    KEPT.append(bytearray(a))
    return len(KEPT)

@udf
def pid(a: int) -> int:
    return os.getpid()

@udf
def undefined(a: int) -> int:
    return a + not_defined

@udf
def crash(a: int) -> int:
    os._exit(1)

@udf
def large(a: int) -> int:
    return len(bytearray(10 << 30))

@udf
def slow(a: int) -> int:
    return a

@udf
def session(a: int) -> int:
    return os.getsid(0)

@udf
def group(a: int) -> int:
    return os.getpgid(0)

@udf
def priority(a: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)

@udf(isolation="inline")
def inline(a: int) -> int:
    return os.getpid()
"""
BAD = {
    1: "it ended its process (3)",
    2: "its process was killed by signal 11",
    3: "it did not return within 0.5 s",
    4: "it did not return within 0.5 s",
    5: "MemoryError",
    6: "BAD raised SystemExit",
    7: "its process closed what it had open",
}


@pytest.fixture(autouse=True)
def no_worker_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "LOOK_S", 0.1)
    monkeypatch.setattr(workers, "STARTING_CREDIT_S", 1_000.0)
    monkeypatch.setattr(metrics, "_all", {})
    yield
    end_idle_workers()
    assert not of_this_process()


def test_starts_take_no_more_than_their_share_of_a_core() -> None:
    """A function that crashed for every third record took a core by the starts of its processes, from a critical query, too."""
    starts = workers.Starts(Code("m", (), 0))
    now_s = began_s = starts._as_of_s
    credit_s, share, took_s, count = 1.0, workers.STARTING_SHARE, 0.25, 100
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "STARTING_CREDIT_S", credit_s)
        for n in range(count):
            pause_s = starts.pause_s(now_s)
            assert (pause_s > 0) == (n > credit_s / took_s), "some in succession are no reason to wait"
            now_s += pause_s + took_s
            starts.took(took_s, now_s)
        assert count * took_s <= credit_s + took_s + share * (now_s - began_s)
        starts.took(3_600.0, now_s)
        assert starts.pause_s(now_s) == workers.START_PAUSE_S_MAX
        assert starts.pause_s(now_s + 3_700.0 / share) == 0


def test_a_process_shares_the_session_of_its_parent_and_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    """Linux divides time among sessions first (autogroups): in one of its own each start took as much time as all threads of the instance."""
    assert loaded(tmp_path, "SESSION")(1) == os.getsid(0)
    assert loaded(tmp_path, "GROUP")(1) != os.getpgid(0)


def test_processes_of_a_module_whose_processes_do_not_live_long_have_a_lower_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their starts took time from a critical query, which was late by as much."""
    monkeypatch.setattr(workers.Starts, "pause_s", lambda _starts, _now_s: 0.0)
    priority, own = loaded(tmp_path, "PRIORITY"), os.getpriority(os.PRIO_PROCESS, 0)
    lower = min(19, own + workers.LOW_PRIORITY)
    assert priority(1) == own, "the first one"
    with giving_way(True):
        assert priority(1) == lower, "of a query of class batch"
    assert priority(1) == own, "the first one, that of the others"
    end_idle_workers()
    monkeypatch.setattr(workers.Starts, "pause_s", lambda _starts, _now_s: 0.001)
    assert priority(1) == lower


def of_this_process() -> list[int]:
    """Processes of functions."""
    return [c.pid for c in children_that_run(workers.PROGRAM)]


def loaded(folder: Path, name: str, source: str = M) -> Any:
    (folder / "m.py").write_text(source)
    function = load_functions(folder, ["m"])[name]
    assert isinstance(function, Function)
    return function.reference(Resolution((), BIGINT))


@pytest.mark.parametrize("value", list(BAD))
def test_what_harms_the_process_fails_its_call_alone(tmp_path: Path, value: int) -> None:
    bad = loaded(tmp_path, "BAD")
    assert bad(8) == 8
    with pytest.raises(FunctionFailed) as caught:
        bad(value)
    assert BAD[value] in f"{type(caught.value).__name__}: {caught.value}"
    assert bad(9) == 9


def test_what_earlier_calls_left_does_not_fail_a_call(tmp_path: Path) -> None:
    grow = loaded(tmp_path, "GROW")
    found = [grow(400 << 20) for _ in range(5)]
    assert found[:3] == [1, 2, 1], "the third does not fit beside two, and has a new process"
    with pytest.raises(FunctionFailed, match="MemoryError"):
        grow(2 << 30)


LARGE = """
import pyarrow as pa
import flowql
from flowql import udf, udtf

@udf
def wide(n: int) -> str:
    return "x" * n

@udf(isolation="inline")
def wide_here(n: int) -> str:
    return "x" * n

@udf(vectorized=True)
def wide_column(n: pa.Int64Array) -> pa.StringArray:
    return pa.array(["x" * each for each in n.to_pylist()])

@udtf
def wide_rows(n: int) -> list[str]:
    return ["x" * (n // 16)] * 16

@flowql.udaf
class WideSum:
    def init(self) -> list[str]:
        return []

    def add(self, kept: list[str], n: int) -> None:
        kept.append("x" * n)

    def result(self, kept: list[str]) -> str:
        return "".join(kept)
"""


@pytest.mark.parametrize("name", ["WIDE", "WIDE_HERE", "WIDE_COLUMN", "WIDE_ROWS"])
def test_a_value_of_a_function_has_the_limit_of_a_value(tmp_path: Path, name: str) -> None:
    wide = loaded(tmp_path, name, LARGE)
    assert len("".join(wide(160))) == 160
    with pytest.raises(ValueTooLarge, match="16 MiB") as error:
        wide((16 << 20) + 16)
    assert code_of(error.value, "") == "FQ4072"
    assert len("".join(wide(160))) == 160


def test_what_a_process_gives_in_one_call_has_a_limit(tmp_path: Path) -> None:
    """The accumulator of a group; its own limit is checked when it is stored."""
    (tmp_path / "m.py").write_text(LARGE.replace("@flowql.udaf", '@flowql.udaf(isolation="process")'))
    found = load_functions(tmp_path, ["m"]).values()
    aggregate = next(f for f in found if isinstance(f, AggregateFunction))
    resolution = Resolution((), BIGINT)
    begun, add = aggregate.initial(resolution, ()), aggregate.add(resolution, ())
    assert "xxx" in repr(add(begun, 3))
    with pytest.raises(FunctionFailed, match="results of one call would have"):
        add(begun, 65 << 20)


ARROW = """
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udf

@udf(vectorized=True)
def repeated(a: pa.Int64Array) -> pa.Int64Array:
    n = pc.max(a).as_py()
    found = pa.concat_arrays([pa.array(range(1_000_000))] * n) if n else a
    return pc.add(a, len(found) - len(found))

@udf(vectorized=True)
def threaded(a: pa.Int64Array) -> pa.Int64Array:
    table = pa.table({"a": list(range(1000))})
    return pc.add(a, table.group_by("a").aggregate([("a", "count")]).num_rows)
"""


def test_a_parent_with_thousands_of_open_files_has_processes(tmp_path: Path) -> None:
    """Their descriptors have numbers that `select` does not take."""
    with many_open_files():
        assert loaded(tmp_path, "GOOD")(1) == 2
        end_idle_workers()


def test_a_module_has_the_most_memory_that_a_function_of_it_asks_for(tmp_path: Path) -> None:
    source = "from flowql import udf\n@udf(memory_mb=300)\ndef f(a: int) -> int:\n    return len(bytearray(a << 20))\n"
    assert loaded(tmp_path, "F", source)(250) == 250 << 20
    with pytest.raises(FunctionFailed):
        loaded(tmp_path, "F", source)(350)
    more = source + "@udf(memory_mb=600)\ndef g(a: int) -> int:\n    return a\n"
    assert loaded(tmp_path, "F", more)(350) == 350 << 20


def test_arrow_has_its_memory_and_no_more(tmp_path: Path) -> None:
    """Its allocators, and those of threads, reserve more addresses than they use."""
    (tmp_path / "m.py").write_text(ARROW)
    found = load_functions(tmp_path, ["m"])
    repeated, threaded = (f.arrow for f in (found["REPEATED"], found["THREADED"]) if isinstance(f, Function))
    assert repeated is not None
    assert threaded is not None
    assert threaded.call([pa.array([1, 2])]).to_pylist() == [1001, 1002]
    assert repeated.call([pa.array([0, 50])]).to_pylist() == [0, 50], "400 MB"
    with pytest.raises(FunctionFailed, match="alloc"):
        repeated.call([pa.array([0, 150])])
    assert repeated.call([pa.array([0, 50])]).to_pylist() == [0, 50]


def test_a_process_that_is_gone_while_nobody_calls_it_is_replaced(tmp_path: Path) -> None:
    pid = loaded(tmp_path, "PID")
    first = pid(1)
    assert first != os.getpid()
    assert pid(1) == first, "one process serves many calls"
    os.kill(first, signal.SIGKILL)
    assert pid(1) not in (first, os.getpid())
    assert loaded(tmp_path, "INLINE")(1) == os.getpid()


def test_calls_at_once_have_a_process_each(tmp_path: Path) -> None:
    pid, slow = loaded(tmp_path, "PID"), loaded(tmp_path, "SLOW")
    first = pid(1)
    thread = threading.Thread(target=lambda: [slow(1) for _ in range(100)])
    thread.start()
    until(lambda: pid(1) != first, True)
    thread.join()
    assert len(of_this_process()) == 2


def test_a_process_that_nobody_calls_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "Code", partial(Code, idle_s=0.3))
    pid = loaded(tmp_path, "PID")
    first = pid(1)
    until(of_this_process, [])
    assert pid(1) != first


def test_a_name_that_is_not_defined_fails_the_query(tmp_path: Path) -> None:
    with pytest.raises(QueryFailure, match="UNDEFINED: NameError: name 'not_defined' is not defined"):
        loaded(tmp_path, "UNDEFINED")(1)


@pytest.mark.parametrize("name", ["CRASH", "LARGE"])
def test_code_that_crashes_for_all_values_fails_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(workers, "LOST_MAX", 3)
    crash, good = loaded(tmp_path, name), loaded(tmp_path, "GOOD")
    for _ in range(2):
        with pytest.raises(FunctionFailed):
            crash(1)
    good(1)  # it is not all values
    for _ in range(2):
        with pytest.raises(FunctionFailed):
            crash(1)
    with pytest.raises(QueryFailure, match="as did the 2 calls before"):
        crash(1)


def test_a_batch_of_slow_calls_is_not_one_that_hangs(tmp_path: Path) -> None:
    """The timeout is of a call: each one that a process begins starts it anew."""
    now = [0.0]
    begun = memoryview(bytearray(8)).cast("Q")
    patience = workers._Patience(begun, 1.5, lambda: now[0])
    for call in range(1, 100):
        begun[0] = call
        patience.look()
        now[0] += 1.0
        patience.look()
    now[0] += 1.0
    with pytest.raises(TimeoutError, match=r"did not return within 1\.5 s"):
        patience.look()
    (tmp_path / "m.py").write_text(M)
    function = load_functions(tmp_path, ["m"])["SLOW"]
    assert isinstance(function, Function)
    assert function.arrow is not None
    assert function.arrow.failures is not None
    function.arrow.failures.begin()
    assert function.arrow.call([pa.array(range(100))]).to_pylist() == list(range(100))
    (worker,) = [worker for pool in workers._known.values() for worker in pool._idle[False]]
    assert worker.page[0] == 100


def test_the_code_is_what_was_loaded(tmp_path: Path) -> None:
    """A process that starts later runs what was deployed, with the modules and packages that it imported, and shows its lines in tracebacks."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rates.py").write_text("RATE = 2\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .more import MORE\n")
    (tmp_path / "pack" / "more.py").write_text("MORE = 100\n")
    text = "import traceback\nfrom flowql import udf\nfrom lib.rates import RATE\nfrom pack import MORE\n"
    text += "@udf\ndef f(a: int) -> int:\n    import lib.rates\n    return a * RATE + MORE\n"
    text += "@udf\ndef g(a: int) -> str:\n    return traceback.format_stack()[-1]\n"
    f = loaded(tmp_path, "F", text)
    g = load_functions(tmp_path, ["m"])["G"]
    (tmp_path / "lib" / "rates.py").write_text("RATE = 3\n")
    (tmp_path / "pack" / "more.py").unlink()
    (tmp_path / "m.py").write_text("this is no Python")
    assert f(4) == 108
    assert isinstance(g, Function)
    assert "return traceback.format_stack()" in g.reference(Resolution((), BIGINT))(1)


def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    """Also while a function holds the interpreter lock."""
    (tmp_path / "m.py").write_text(
        "import os, re\nfrom flowql import udf\n"
        "@udf\ndef f(a: int) -> int:\n    open('pid', 'w').write(str(os.getpid()))\n    re.match(r'(a+)+$', 'a' * 64 + 'b')\n    return a\n"
    )
    program = "from pathlib import Path\nfrom flowql.compiler.plan.types import BIGINT\nfrom flowql.config.functions import load_functions\n"
    program += "f = load_functions(Path('.').resolve(), ['m'])['F']\nf.reference(f.resolve((BIGINT,)))(1)"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", True)
        worker = psutil.Process(int((tmp_path / "pid").read_text()))
        assert worker.is_running()
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs([worker], timeout=10)
    assert not any(is_alive(worker.pid) for worker in alive)


YAML = "name: shop\nfunctions: [m]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM I (K BIGINT KEY, A BIGINT)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O AS SELECT K, bad(A) AS B, good(A) AS G FROM I WHERE A <> 99 AND good(A) > 0;
CREATE STREAM NOT_ALL AS SELECT K, undefined(A) AS U FROM I;
CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM I GROUP BY K;
"""


@pytest.mark.parametrize("at_once", [True, False], ids=["batch", "row-by-row"])
def test_one_bad_value_of_each_kind_is_one_dead_letter(tmp_path: Path, at_once: bool) -> None:
    made(tmp_path, YAML, SQL, m=M)
    values = [8, 1, 9, 2, 3, 99, 5, 6, *range(10, 60)]
    with running(tmp_path) as instance:
        records = [{"K": i, "A": a} for i, a in enumerate(values)]
        for part in [records] if at_once else [[r] for r in records[:12]]:
            instance.produce("I", part)
        expected = [{"K": r["K"], "B": None if r["A"] < 8 else r["A"], "G": r["A"] + 1} for r in records]
        expected = [r for r in (expected if at_once else expected[:12]) if r["G"] != 100]
        until(lambda: instance.sql("SELECT K, B, G FROM O ORDER BY K").arrow().to_pylist(), expected)
        letters = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert sorted(next(n for n, why in BAD.items() if n != 4 and why in str(r)) for r in letters) == [1, 2, 3, 5, 6]
        assert instance.sql("SELECT COUNT(*) FROM N").one() == (len(values) if at_once else 12)
        assert "NameError" in str(state_of(instance, "CSAS_NOT_ALL")["last_error"])
        found = {f["function"]: f for f in instance.status()["instance"]["functions"]}
        assert found["BAD"]["failures"] == 5
        assert 0 <= found["BAD"]["calls"] - len(expected) <= 3, (
            "of a run that ended with a process some are called again"
        )
        assert found["BAD"]["lost_processes"] >= 3
        assert found["BAD"]["seconds"] > 0.5
        assert (found["GOOD"]["failures"], found["GOOD"]["lost_processes"]) == (0, 0)
        shown = " ".join(function_lines(instance.status()))
        assert "BAD" in shown
        metrics = exposition(instance.status()).decode()
        assert f'flowql_function_calls_total{{function="BAD",module="m"}} {found["BAD"]["calls"]}.0' in metrics


@pytest.mark.parametrize("vectorized", [False, True])
def test_calls_in_the_threads_of_the_engine_are_counted(tmp_path: Path, vectorized: bool) -> None:
    source = "from flowql import udf\nimport pyarrow as pa\nimport time\n"
    if vectorized:
        source += "@udf(isolation='inline', vectorized=True)\ndef f(a: pa.Int64Array) -> pa.Int64Array:\n    time.sleep(0.01)\n    return a\n"
    else:
        source += "@udf(isolation='inline')\ndef f(a: int) -> int:\n    time.sleep(0.001)\n    return 1 // a\n"
    (tmp_path / "m.py").write_text(source)
    function = load_functions(tmp_path, ["m"])["F"]
    assert isinstance(function, Function)
    if vectorized:
        assert function.arrow is not None
        function.arrow.call([pa.array(range(100))])
    else:
        call = function.reference(Resolution((), BIGINT))
        assert sum(call(n) for n in range(1, 101)) == 1
        with pytest.raises(ZeroDivisionError):
            call(0)
    (found,) = function_metrics([function.name])
    assert (found["calls"], found["failures"]) == ((100, 0) if vectorized else (101, 1))
    assert 0.005 < found["seconds"] < 5


def test_calls_that_fail_of_a_batch_query_are_followed_by_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that wake each other thousands of times a second made a critical query late."""
    pauses: list[float] = []
    monkeypatch.setattr(calls, "time", SimpleNamespace(sleep=pauses.append, perf_counter=time.perf_counter))
    half = loaded(tmp_path, "HALF", FAILING)
    for batch in (False, True):
        with giving_way(batch):
            assert half(8) == 4.0
            with pytest.raises(FunctionFailed):
                half(7)
        assert [0 < p <= calls.PAUSE_S_MAX for p in pauses] == [True] * batch


def test_calls_of_several_threads_add_up() -> None:
    counts = FunctionMetrics()
    threads = [
        threading.Thread(target=lambda: [counts.here().add(1, 0.5, failures=1) for _ in range(1000)]) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (counts.total().calls, counts.total().seconds, counts.total().failures) == (4000, 2000.0, 4000)


FAILING = """
from flowql import udf

@udf
def half(a: int) -> float:
    if a % 100 == 7:
        raise ValueError(f"{a} has no half")
    return a / 2

@udf
def weight(b: float) -> float:
    if b != b or str(b) == "-0.0":
        raise ValueError(f"{b} weighs nothing")
    return b
"""
HALVES = """
CREATE STREAM I (K BIGINT KEY, A BIGINT, B DOUBLE)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O AS SELECT K, half(A) + half(A + 1) AS H, weight(B * 0) AS W FROM I WHERE A <> 307 AND half(A + 2) >= 0 AND K < 900;
"""


def test_only_rows_that_fail_are_called_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch of columns. Rows that a filter drops are not called at all, those of a failing condition are dropped with a dead letter."""
    alone: list[Request] = []

    def counted(self: workers.Workers, request: Request, timeout_s: float) -> Any:
        if isinstance(request.given, tuple):
            alone.append(request)
        return ask(self, request, timeout_s)

    ask = workers.Workers.ask
    monkeypatch.setattr(workers.Workers, "ask", counted)
    made(tmp_path, YAML, HALVES, m=FAILING)
    with running(tmp_path) as instance:
        instance.produce("I", [{"K": i, "A": i, "B": -1.0 if i == 50 else 1.0} for i in range(1000)])
        until(lambda: instance.sql("SELECT COUNT(*) FROM O").one(), 890)
        found = {r["K"]: (r["H"], r["W"]) for r in instance.sql("SELECT K, H, W FROM O").arrow().to_pylist()}
        kept = [i for i in range(900) if i != 307 and i % 100 != 5]
        assert sorted(found) == kept
        for i in kept:
            assert found[i] == (None if i % 100 in (6, 7) else i + 0.5, None if i == 50 else 0.0)
        letters = [str(r) for r in instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()]
        assert len(letters) == 10 + 9 + 8 + 1, "also of the condition for K >= 900, which stands before that"
        assert sum("-0.0 weighs nothing" in r for r in letters) == 1
        assert len(alone) < 10 * 4 + 9 * 4 + 8 * 4 + 4


SEEN = """
from flowql import udf

SEEN = []

@udf
def seen(a: int) -> int:
    SEEN.append(a)
    return len(SEEN)
"""
FILTERED = """
CREATE STREAM I (K BIGINT KEY, A BIGINT)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O AS SELECT K, seen(A) AS N FROM I WHERE A < 500 AND (seen(A) > 0 OR A = 1) AND A < 400;
"""


def test_a_function_is_called_once_for_each_row_that_the_conditions_before_it_leave(tmp_path: Path) -> None:
    made(tmp_path, YAML, FILTERED, m=SEEN)
    with running(tmp_path) as instance:
        instance.produce("I", [{"K": i, "A": i} for i in range(1000)])
        until(lambda: instance.sql("SELECT COUNT(*) FROM O").one(), 400)
        assert instance.sql("SELECT MAX(N) FROM O").one() == 500 + 400


TOTAL = """
import os
from flowql import udaf

@udaf(isolation="process")
class Total:
    def init(self) -> int:
        return 0

    def add(self, total: int, a: int) -> int:
        if a == 13:
            os._exit(7)
        if a == 14:
            raise ValueError("14 is not added")
        return total + a

    def undo(self, total: int, a: int) -> int:
        return total - a

    def result(self, total: int) -> int:
        if total == 21:
            os._exit(8)
        return total
"""
TOTALS = """
CREATE STREAM I (K BIGINT KEY, G BIGINT, A BIGINT)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE LAST AS SELECT K, LATEST_BY_OFFSET(G) AS G, LATEST_BY_OFFSET(A) AS A FROM I GROUP BY K;
CREATE TABLE OF_STREAM AS SELECT G, TOTAL(A) AS T, COUNT(*) AS N FROM I GROUP BY G;
CREATE TABLE OF_TABLE AS SELECT G, TOTAL(A) AS T FROM LAST GROUP BY G;
"""


def test_an_aggregate_that_crashes_leaves_its_group_as_it_was(tmp_path: Path) -> None:
    made(tmp_path, YAML, TOTALS, m=TOTAL)
    sent = [(1, 1, 1), (2, 1, 13), (3, 1, 2), (4, 2, 14), (5, 2, 20), (6, 2, 1), (7, 1, 4), (1, 2, 5)]
    with running(tmp_path) as instance:
        for k, g, a in sent:
            instance.produce("I", [{"K": k, "G": g, "A": a}])
        of_stream, of_table = ({"G": [1, 2], "T": totals} for totals in ([7, 26], [6, 26]))
        until(lambda: instance.sql("SELECT G, T FROM OF_STREAM ORDER BY G").arrow().to_pydict(), of_stream)
        until(lambda: instance.sql("SELECT G, T FROM OF_TABLE ORDER BY G").arrow().to_pydict(), of_table)
        letters = " ".join(map(str, instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()))
        assert "aggregate failed: ProcessLost: TOTAL: it ended its process (7)" in letters
        assert "aggregate failed: ValueError: 14 is not added" in letters
        assert "the result of TOTAL failed: ProcessLost: TOTAL: it ended its process (8)" in letters


HANGING = """
from flowql import udf
import time

@udf(timeout=0.3)
def hanging(a: int) -> int:
    return time.sleep(60) if a % 3 == 0 else a
"""
HANGS = """
CREATE STREAM I (K BIGINT KEY, A BIGINT) WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM PLAIN AS SELECT K, A FROM I;
"""
HANGS_QUERY = "CREATE STREAM O AS SELECT K, hanging(A) AS H FROM I;\n"


def test_a_query_whose_function_hangs_for_many_records_can_be_removed(tmp_path: Path) -> None:
    """A run of thousands of records, each of which takes its timeout, is not waited for: its records are processed one by one."""
    made(tmp_path, YAML, HANGS + HANGS_QUERY, m=HANGING)
    with running(tmp_path) as instance:
        instance.produce("I", [{"K": i, "A": i} for i in range(6000)])
        until(lambda: instance.sql("SELECT COUNT(*) FROM PLAIN").one(), 6000)
        until(lambda: instance.sql("SELECT COUNT(*) > 5 FROM O").one(), True)
        found = instance.sql("SELECT K, H FROM O ORDER BY K").arrow().to_pylist()
        assert found == [{"K": k, "H": None if k % 3 == 0 else k} for k in range(len(found))]
        letters = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert "did not return within 0.3 s" in str(letters[0])
        (tmp_path / "shop.sql").write_text(HANGS)
        instance.deploy(prune=True)  # which gives up after 60 s: 2,000 timeouts take 600
        assert [q["id"] for q in instance.status()["queries"]] == ["CSAS_PLAIN"]
