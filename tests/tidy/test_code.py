"""House rules about code that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import CODE, ROOT, modules, text_of

MAX_LINES = 600

# Modules that bring a clock, chance, a thread, a process or the network: replay breaks if they are used in passing.
OUTSIDE_WORLD = {
    "_thread", "asyncio", "multiprocessing", "random", "sched", "secrets", "select", "selectors", "signal", "socket",
    "subprocess", "threading", "time", "uuid",
}  # fmt: skip
LOCKS = {"Condition", "Lock", "RLock", "get_ident"}  # get_ident: owner assertions
SEEDED = {"random.Random"}  # a generator of one's own, made from a seed
THREAD_POOLS = {"ThreadPoolExecutor", "ProcessPoolExecutor"}

# The drivers: what runs the loops, and the ports they see the world through. Path -> modules it may use.
DRIVERS = {
    "runtime/app/threads.py": {"threading"},
    # time: of the monotonic clock, which several processes compare; subprocess: `ps`, where there is no /proc
    "runtime/app/beat_file.py": {"subprocess", "time"},
    "runtime/app/freeze.py": {"time"},  # the watchdog process calls it, too
    "runtime/app/watchdog_process.py": {"signal", "time"},  # the process that ends a frozen instance
    "runtime/clock.py": {"time"},
    "runtime/log/kafka/versions.py": {"socket"},  # asks a broker for its release, which its client does not tell
    "runtime/log/kafka/producer.py": {"threading"},  # calls of a client that may never come back
    "runtime/app/restore_process.py": {
        "socket",
        "subprocess",
        "multiprocessing",
    },  # starts the one below, and talks to it
    "runtime/app/restore_worker.py": {"multiprocessing"},
    "runtime/functions/workers.py": {
        "socket",
        "subprocess",
        "time",
        "threading",
    },  # starts the one below, and talks to it
    "runtime/functions/worker.py": {"asyncio", "multiprocessing", "socket", "time"},
    # threading.local: what a statement of a thread has failed for; time: what calls cost
    "runtime/functions/calls.py": {"threading", "time"},
    "runtime/functions/async_workers.py": {
        "selectors",
        "socket",
        "threading",
        "time",
    },  # a thread talks to each process
    "runtime/functions/async_worker.py": {"asyncio", "socket", "threading", "time"},  # a thread watches the event loop
    # the loop and calls that block have threads; time: what calls cost
    "runtime/functions/call_results.py": {"asyncio", "threading", "time"},
    "runtime/functions/metrics.py": {"threading"},  # threading.local: each thread counts its own calls
    "runtime/functions/texts.py": {"threading"},  # modules are imported one version at a time
    "runtime/spark/function_counts.py": {"threading"},  # queries that commit at once take counts of one accumulator
    "runtime/functions/shipping.py": {"threading"},  # tasks of Spark in one worker register the same functions
    "runtime/spark/stage/program.py": {"threading"},  # a call of an asynchronous function ends in another thread
    "runtime/functions/runs.py": {"threading"},  # threading.local: of the run of this thread
    # threading: a pool that waits for the disk, as several files are made durable at once; time: a lock is waited for with a limit
    "runtime/log/files.py": {"threading", "time"},
    "runtime/remote/readers.py": {"threading"},  # a pool that waits for an object store
    "runtime/spark/engine/thread.py": {"threading"},
    "runtime/spark/storage.py": {"threading"},  # a call into Java that may not come back for minutes
    "runtime/spark/store_check.py": {"socket"},  # whether a server listens, before Spark is started
    "runtime/spark/workers.py": {"threading"},  # a thread cancels a job that no worker takes
    "runtime/spark/java.py": {"subprocess"},  # asks a Java for its version
    "runtime/secret.py": {"subprocess"},  # secrets that a command prints
    "runtime/topology/table_groups.py": {"threading"},  # statements wait for the one that owns their table
    "runtime/topology/table_writer.py": {"threading"},  # clients' threads wait for the one that owns the table
    "runtime/operators/kernels.py": {"threading"},  # threading.local: a DuckDB connection belongs to one thread
}
# Shared structures that are guarded by a named lock (LOCKS and nothing else of threading).
LOCK_HOLDERS = {
    "runtime/app/consistent_snapshot.py",
    "runtime/app/restoration.py",
    "runtime/topology/row_store.py",
    "runtime/topology/scans.py",
    "runtime/client/fetch_buffer.py",
    "runtime/log/embedded/ledger.py",
    "runtime/log/embedded/segment.py",
    "tests/simulated_disk.py",
    "runtime/log/kafka/reading.py",
    "runtime/log/kafka/admin.py",
    "runtime/log/memory.py",
    "runtime/log/repairs.py",
    "runtime/metrics.py",
    "runtime/operators/asynchronous/operator.py",
    "runtime/placement/step.py",
    "runtime/scheduler/manager.py",
    "runtime/state/locks.py",
    "runtime/state/rocks.py",
    "runtime/state/physical.py",
    "runtime/task/input_buffer.py",
    "runtime/task/sizing.py",
}


def uses(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of what a module uses of OUTSIDE_WORLD; `name` is empty where only the module is imported."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                if top in OUTSIDE_WORLD:
                    aliases[alias.asname or top] = top
                    if top not in ("random", "threading"):  # of these it depends on what is used
                        yield node.lineno, top, ""
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                if node.module.split(".")[0] in OUTSIDE_WORLD:
                    yield node.lineno, node.module.split(".")[0], alias.name
                elif node.module == "concurrent.futures" and alias.name in THREAD_POOLS:
                    yield node.lineno, "threading", alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = aliases.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if module in ("random", "threading"):
                yield node.lineno, module, node.attr
            elif node.attr in ("now", "utcnow", "today") and ast.unparse(node.value) in (
                "datetime",
                "date",
                "datetime.datetime",
            ):
                yield node.lineno, "time", f"datetime.{node.attr}"
            elif node.attr in THREAD_POOLS:
                yield node.lineno, "threading", node.attr


def breaches(path: str, source: str) -> list[str]:
    """Uses of the outside world that the lists above do not allow in the file."""
    allowed = DRIVERS.get(path, set())
    return [
        f"{path}:{line}: {module}{'.' + name if name else ''}"
        for line, module, name in uses(ast.parse(source))
        if module not in allowed
        and f"{module}.{name}" not in SEEDED
        and not (module == "threading" and name in LOCKS and path in LOCK_HOLDERS)
    ]


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("runtime/task/x.py", "import time", 1),
        ("runtime/task/x.py", "from random import random", 1),
        ("runtime/task/x.py", "import random\nrandom.random()", 1),
        ("runtime/log/x.py", "import random\nrandom.Random(7).random()", 0),
        ("runtime/task/x.py", "import datetime\ndatetime.datetime.now()", 1),
        ("runtime/task/x.py", "import threading\nlock = threading.Lock()", 1),
        ("runtime/metrics.py", "import threading\nlock = threading.Lock()", 0),
        ("runtime/metrics.py", "import threading as t\nt.Thread(target=f)", 1),
        ("runtime/clock.py", "import time\ntime.time()", 0),
        ("runtime/task/x.py", "from concurrent.futures import Future", 0),
        ("runtime/task/x.py", "from concurrent.futures import ThreadPoolExecutor", 1),
    ],
)
def test_the_rule_finds_what_it_should(path: str, source: str, expected: int) -> None:
    assert len(breaches(path, source)) == expected


def test_the_runtime_sees_the_world_through_its_drivers_only() -> None:
    wrong = [b for path in modules("runtime") for b in breaches(str(path), text_of(path) or "")]
    assert not wrong, "\n".join(wrong)


def scheduling(path: str, source: str) -> list[str]:
    """Calls that tell a task manager whether a query may run."""
    calls = [n.func for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    return [
        f"{path}:{f.lineno}: {ast.unparse(f)}"
        for f in calls
        if isinstance(f, ast.Attribute)
        and f.attr in ("hold", "resume")
        and ast.unparse(f.value).rpartition(".")[2].lstrip("_").endswith("manager")
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("self._manager.hold(query)", 1),
        ("host.manager.resume(query)", 1),
        ("manager.hold(query)", 1),
        ("log.hold(name)", 0),
        ("instance.resume()", 0),
        ("manager.remove(task)", 0),
    ],
)
def test_the_rule_of_one_caller_finds_what_it_should(source: str, expected: int) -> None:
    assert len(scheduling("x.py", source)) == expected


def test_one_place_says_whether_a_query_runs() -> None:
    found = {str(path): scheduling(str(path), text_of(path) or "") for path in modules("runtime", "flowql")}
    found = {path: calls for path, calls in found.items() if calls}
    assert found.keys() == {"runtime/app/query_state.py"}, found


# What the reconciler's coroutines do, and nobody else: functions and methods that start tasks and queries, stop, hold or release them.
LIFE_CYCLE = {
    "stopped",
    "handed_over",
    "hold_for_swap",
    "release_after_swap",
    "set_paused",
    "set_hung",
    "end",
    "forget",
    "reinstate",
}
RECONCILER = {
    "runtime/app/single_instance.py",
    "runtime/app/deployment.py",
    "runtime/app/draining.py",
    "runtime/app/forwarding.py",
    "runtime/app/group.py",
    "runtime/app/group_swap.py",
    "runtime/app/hung.py",
    "runtime/app/query_tasks.py",
    "runtime/app/rebuilding.py",
}
LAST = "runtime/app/instance.py"  # ends all queries when it stops


def life_cycle_calls(source: str) -> set[str]:
    """Which of them a module calls: functions by their names, methods of query states and of who has tasks."""
    found = set()
    for call in (n.func for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)):
        if isinstance(call, ast.Name) and call.id in ("stopped", "handed_over"):
            found.add(call.id)
        if isinstance(call, ast.Attribute):
            owner = ast.unparse(call.value).rpartition(".")[2].lstrip("_")
            if owner == "query_states" and call.attr in LIFE_CYCLE:
                found.add(call.attr)
            if owner in ("manager", "restoration") and call.attr in ("add", "remove"):
                found.add(f"{owner}.{call.attr}")
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("yield from stopped(host, tasks)", {"stopped"}),
        ("self._host.query_states.hold_for_swap(old)", {"hold_for_swap"}),
        ("host.restoration.remove(task)", {"restoration.remove"}),
        ("self._query_states.fail(query, why)", set()),
        ("self._asked.add(x); done.stopped()", set()),
    ],
)
def test_the_rule_of_the_life_cycle_finds_what_it_should(source: str, expected: set[str]) -> None:
    assert life_cycle_calls(source) == expected


def test_the_reconciler_alone_starts_stops_holds_and_releases() -> None:
    calls = {str(path): life_cycle_calls(text_of(path) or "") for path in modules("runtime")}
    calls = {path: found for path, found in calls.items() if found}
    assert calls.pop(LAST) == {"end", "manager.add"}, "the end of all, and the hand-over of a restored task"
    assert calls.pop("runtime/app/coroutines.py") == {
        "manager.add",
        "manager.remove",
        "restoration.add",
        "restoration.remove",
    }
    assert calls.keys() <= RECONCILER, calls.keys() - RECONCILER
    assert not any(c.startswith(("manager.", "restoration.")) for found in calls.values() for c in found), calls


def test_coroutines_are_carried_out_by_the_reconciler_alone() -> None:
    """A generator that another thread drove with `send` would start and stop queries beside it."""
    driven = {
        str(path)
        for path in modules("runtime", "flowql")
        for n in ast.walk(ast.parse(text_of(path) or ""))
        if isinstance(n, ast.Attribute) and n.attr in ("send", "throw") and "coroutine" in ast.unparse(n.value)
    }
    assert driven == {"runtime/app/reconciler.py"}


def test_files_have_one_subject() -> None:
    long = {str(p): n for p in modules(*CODE) if (n := len((text_of(p) or "").splitlines())) > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines: {long}"


def test_no_module_is_a_drawer() -> None:
    drawers = [str(p) for p in modules(*CODE) if p.stem in ("utils", "util", "helpers", "misc", "common")]
    assert not drawers, drawers


def packages() -> list[Path]:
    """Every folder of the packages that holds Python files, and their parents."""
    return sorted({parent for p in modules(*CODE) for parent in p.parents if parent != Path(".")})


def test_every_package_says_its_job() -> None:
    silent = []
    for package in packages():
        init = ROOT / package / "__init__.py"
        if not init.exists() or not ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))):
            silent.append(str(package))
    assert not silent, f"no docstring in __init__.py of {silent}"


def test_packages_of_compiler_and_runtime_import_nothing() -> None:
    """So that importing flowql.compiler.plan never loads the parser. The two themselves refuse to be imported under another name."""
    busy = [
        str(package)
        for package in packages()
        if package.parts[0] in ("compiler", "runtime")
        and len(ast.parse(text_of(package / "__init__.py") or "").body) > (2 if len(package.parts) == 1 else 1)
    ]
    assert not busy, f"more than a docstring in __init__.py of {busy}"
