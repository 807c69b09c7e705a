"""The process behind `scanned`: reads a store in a copy of the state.

python -m flowql.query.scan_worker FILE-DESCRIPTOR
"""

from __future__ import annotations

import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from flowql.query.relations import StoreRelation
from flowql.query.scanning import Ended, Scan, lower_priority
from flowql.runtime.app.allocator import keep_memory
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.state.copy import StateCopy


def serve(connection: Connection) -> None:
    """Ends with the OSError of a parent that is gone."""
    scan = connection.recv()
    assert isinstance(scan, Scan)
    try:
        with StateCopy(scan.path, scan.owned, remove=False) as snapshot:
            relation = StoreRelation("", scan.make(), snapshot)
            for batch in relation.of_range(scan.range, scan.columns):
                connection.send(batch.serialize().to_pybytes())
    except OSError:
        raise
    except Exception as error:  # the parent tells who asked
        connection.send(Ended(f"{type(error).__name__}: {error}"))
    else:
        connection.send(Ended())


def main() -> None:
    lower_priority()
    leave_pandas_out()
    keep_memory()
    with suppress(EOFError, OSError), Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
