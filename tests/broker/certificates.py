"""Certificates for tests, made by openssl: a CA, and what it signs."""

import subprocess
from pathlib import Path

SECONDS_MAX = 120


class Authority:
    """A CA; its certificate is NAME.pem in the folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self.name = name
        _openssl(
            folder, "req", "-x509", *_NEW_KEY, "-days", "1", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
            "-out", f"{name}.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def sign(self, file: str, common_name: str) -> None:
        """FILE.pem and FILE.key: for this name, and for the addresses of this machine."""
        (self._folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl(
            self._folder, "req", "-new", *_NEW_KEY, "-subj", f"/CN={common_name}", "-keyout", f"{file}.key",
            "-out", f"{file}.csr",
        )  # fmt: skip
        _openssl(
            self._folder, "x509", "-req", "-in", f"{file}.csr", "-CA", f"{self.name}.pem", "-CAkey",
            f"{self.name}.key", "-CAcreateserial", "-days", "1", "-extfile", "names", "-out", f"{file}.pem",
        )  # fmt: skip


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=SECONDS_MAX)
