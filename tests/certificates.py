"""A certificate that a test makes for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` and its key, as files in PEM."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("needs openssl to make a certificate")
    return certificate, key
