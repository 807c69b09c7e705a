"""File descriptors of an instance."""

import resource
import subprocess
import sys

import pytest

from flowql.server.descriptors import WANTED

PROGRAM = """
import resource, sys
from flowql.server.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize("soft", [256, 1024, 3000])
def test_a_process_may_open_as_many_files_as_the_system_permits(soft):
    hard = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    said = subprocess.run([sys.executable, "-c", PROGRAM, str(soft), str(hard)], capture_output=True, text=True)
    assert said.stdout.split() == [str(hard), str(hard)], said.stderr
    assert hard <= WANTED
