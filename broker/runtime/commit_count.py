"""A file beside the store with the number of its last commit, by which a store is recognised that has lost commits.

SQLite takes a log (WAL) that was cut at the end of a transaction, or removed, for a whole one. The number in this file
does not depend on that log, so a store that has a lower one has lost something that was acknowledged. The file is
written after each commit and not forced to the disk: it may be behind the store, never before it. The lock on it
belongs to the broker that uses the folder.
"""

import fcntl
import os
import zlib
from pathlib import Path

FILE = "store.sqlite.count"
_NUMBER_BYTES, _CRC_BYTES = 8, 4


class InUseError(OSError):
    """Another process uses the folder."""


class CommitCount:
    def __init__(self, folder: Path) -> None:
        """Raises InUseError if another broker uses the folder."""
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise InUseError(None, "another broker uses this folder") from None
        except OSError:
            os.close(self._file)
            raise

    def read(self) -> int | None:
        """The number of the last commit, 0 if none is known; None: the file is damaged."""
        data = os.pread(self._file, _NUMBER_BYTES + _CRC_BYTES + 1, 0)
        if not data:
            return 0
        number = int.from_bytes(data[:_NUMBER_BYTES], "little")
        return number if data == _written(number) else None

    def write(self, number: int) -> None:
        os.pwrite(self._file, _written(number), 0)

    def close(self) -> None:
        os.close(self._file)


def _written(number: int) -> bytes:
    data = number.to_bytes(_NUMBER_BYTES, "little")
    return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "little")
