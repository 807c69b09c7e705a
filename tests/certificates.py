"""A certificate that a test makes for itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` and 127.0.0.1, and its key, as files in PEM."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, capture_output=True, check=True)
    return certificate, key
