"""The process from which Spark forks its Python workers, with the modules that they need (`spark.python.daemon.module` of a local master).

Each worker would import them for itself, in a second of processor time; a stream of three stages has two workers for each of them. Nothing may have
started a thread before a fork: the libraries are told to start none. pandas is one of these modules, as Arrow imports it with its first array.
"""

from __future__ import annotations

import gc
import importlib
import os

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
MODULES = (
    "pandas",
    "pyspark.worker",
    "flowql.runtime.spark.files",
    "flowql.runtime.spark.log_sink",
    "flowql.runtime.spark.log_source",
    "flowql.runtime.spark.native.topics",
    "flowql.runtime.spark.stage.processor",
)


def prepare() -> None:
    """Imports what workers need."""
    os.environ.update({k: v for k, v in THREADLESS.items() if k not in os.environ})
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # a collection in a worker would copy the memory that it shares


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
