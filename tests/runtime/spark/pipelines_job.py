"""`spark-pipelines` of the PySpark here: `python -m tests.runtime.spark.pipelines_job run SPEC`. SPARK_HOME names that PySpark."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    verb, specification = sys.argv[1:]
    program = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-pipelines"
    os.execv(program, [str(program), "--remote", "local[2]", verb, "--spec", specification])


if __name__ == "__main__":
    main()
