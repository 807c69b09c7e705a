"""One line says what went wrong, wherever in Spark it did."""

from __future__ import annotations

import pytest

from flowql.runtime.errors import LogError
from flowql.runtime.spark.engine.causes import LENGTH_MAX, cause_of

IN_A_WORKER = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
TypeError: unsupported operand type(s) for +: 'int' and 'dict'

=== Streaming Query ===
Identifier: CSAS_BIG [id = b5676398]
"""
OF_THE_LOG = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Traceback (most recent call last):
  File "log_source.py", line 12, in read
flowql.runtime.errors.OffsetOutOfRange: orders-0: offset 3 is below the log's start 9: records 3 to 8 are gone
\tat org.apache.spark.api.python.BasePythonRunner
"""
OF_A_LATE_WORKER = """Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, most recent failure: Lost task 1.3 in stage 2.0 (TID 9) (10.0.0.7 executor 3): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "serializers.py", line 458, in loads
ModuleNotFoundError: No module named 'flowql'
"""
OF_A_WORKER_THAT_DIED = """Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most recent failure: Lost task 0.3 in stage 7.0 (TID 31) \
(10.0.0.8 executor 1): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner
"""
OF_A_MICRO_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "files_sink.py", line 181, in _write_epoch_folder
flowql.runtime.spark.errors.FilesUnfit: out does not exist
help: put it back

=== Streaming Query ===
"""
OF_JAVA = """An error occurred while calling o160.save.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler
Caused by: org.apache.spark.rpc.RpcEndpointNotFoundException: Cannot find endpoint: StateStoreCoordinator
\t... 16 more
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Exception(IN_A_WORKER), "TypeError: unsupported operand type(s) for +: 'int' and 'dict'"),
        (
            Exception(OF_THE_LOG),
            "OffsetOutOfRange: orders-0: offset 3 is below the log's start 9: records 3 to 8 are gone",
        ),
        (Exception(OF_A_LATE_WORKER), "WorkersUnfit (FQ4118): worker 10.0.0.7 has no FlowQL"),
        (Exception(OF_A_WORKER_THAT_DIED), "on 10.0.0.8: SparkException: Python worker exited unexpectedly (crashed)"),
        (
            Exception(OF_A_WORKER_THAT_DIED.replace("executor 1", "executor driver")),
            "SparkException: Python worker exited unexpectedly (crashed)",
        ),
        (Exception(OF_A_MICRO_BATCH), "FilesUnfit (FQ4116): out does not exist; put it back"),
        (Exception(OF_JAVA), "RpcEndpointNotFoundException: Cannot find endpoint: StateStoreCoordinator"),
        (
            Exception("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred"),
            "CANNOT_LOAD_STATE_STORE.UNCATEGORIZED: An error occurred",
        ),
        (LogError("topic a has 2 partitions"), "LogError: topic a has 2 partitions"),
        (ValueError("plain"), "plain"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_cause(error: Exception, expected: str) -> None:
    assert cause_of(error) == expected


def test_it_stays_a_line() -> None:
    text = cause_of(Exception("x" * 10_000))
    assert len(text) == LENGTH_MAX
    assert "\n" not in cause_of(Exception(OF_JAVA))
