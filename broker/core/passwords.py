"""Password files, and the check of a password against one. It reads no files and draws no random numbers.

A line of a password file is a user name, a colon and a hash in one of these forms; salts and hashes are in base64:

- `$scrypt$ln=14,r=8,p=1$salt$hash`, as `brokerbed passwd` writes it (2 to the power of ln blocks in memory);
- `$7$iterations$salt$hash`: PBKDF2 with SHA-512, as mosquitto_passwd writes it;
- `$6$salt$hash`: SHA-512 once, as mosquitto_passwd wrote it before version 2.

Only the first is hard to invert for somebody who has the file. What a line may cost is limited, as anybody can have
passwords checked.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from brokerbed.broker.core.access import AccessError

ITERATIONS_MAX = 1_000_000  # of PBKDF2: half a second
SCRYPT_BYTES_MAX = 64 * 2**20  # memory of one check
SCRYPT_WORK_MAX = 128 * 2**20  # memory times p: about half a second
LN, R, P = 14, 8, 1  # 16 MiB and some 50 ms per check: as much as a small machine can afford for each CONNECT
SALT_BYTES, HASH_BYTES = 16, 32
BLOCK_BYTES = 128  # of scrypt, times r
OVERHEAD_BYTES = 2**20  # that OpenSSL counts beside the blocks
_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_PBKDF2 = re.compile(r"\$7\$(\d{1,9})\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})")
_SHA512 = re.compile(r"\$6\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True)
class PasswordHash:
    digest: bytes = field(repr=False)
    compute: Callable[[bytes], bytes] = field(repr=False, compare=False)
    text: str = field(repr=False)  # as it stands in the file

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(self.compute(password), self.digest)


def scrypt(password: bytes, salt: bytes, ln: int = LN, r: int = R, p: int = P, size: int = HASH_BYTES) -> bytes:
    memory = BLOCK_BYTES * r * ((1 << ln) + p) + OVERHEAD_BYTES
    return hashlib.scrypt(password, salt=salt, n=1 << ln, r=r, p=p, dklen=size, maxmem=memory)


@dataclass(frozen=True)
class Users:
    passwords: dict[str, PasswordHash] = field(repr=False)  # by user name
    key: bytes = field(default=b"", repr=False, compare=False)  # nobody else can tell which hash stands in for a name

    def accepts(self, name: str, password: bytes) -> bool:
        """Whether this is the user's password. For a name that is no user's, the answer takes as long."""
        stored = self.passwords.get(name)
        is_right = (stored or self._stand_in(name)).matches(password)
        return is_right and stored is not None

    @cached_property
    def _hashes(self) -> list[PasswordHash]:
        return list(self.passwords.values()) or [PasswordHash(b"", lambda password: scrypt(password, b"no user"), "")]

    def _stand_in(self, name: str) -> PasswordHash:
        """The hash of some user, always the same one for a name: where users' hashes differ in cost, so do these."""
        number = hashlib.blake2b(name.encode(errors="replace"), digest_size=8, key=self.key).digest()
        return self._hashes[int.from_bytes(number, "big") % len(self._hashes)]


def parse_users(text: str, key: bytes = b"") -> Users:
    """`key`: random bytes."""
    passwords = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, given = line.strip().partition(":")
        parsed = _parsed(given) if name and colon else None
        if parsed is None:
            writers = "as brokerbed passwd or mosquitto_passwd writes it"
            raise AccessError(f"line {number} is not a user name, a colon and the hash of a password, {writers}")
        passwords[name] = parsed
    return Users(passwords, key)


def _parsed(text: str) -> PasswordHash | None:
    try:
        if parts := _SCRYPT.fullmatch(text):
            return _scrypt_hash(text, *map(int, parts.groups()[:3]), *map(_unpadded, parts.groups()[3:]))  # type: ignore[arg-type]
        if parts := _PBKDF2.fullmatch(text):
            return _pbkdf2_hash(text, int(parts[1]), _base64(parts[2]), _base64(parts[3]))
        if parts := _SHA512.fullmatch(text):
            salt = _base64(parts[1])
            return PasswordHash(_base64(parts[2]), lambda password: hashlib.sha512(password + salt).digest(), text)
    except binascii.Error:
        pass
    return None


def _scrypt_hash(text: str, ln: int, r: int, p: int, salt: bytes, digest: bytes) -> PasswordHash | None:
    memory = BLOCK_BYTES * r << ln
    if not (ln and r and p) or memory > SCRYPT_BYTES_MAX or memory * p > SCRYPT_WORK_MAX:
        return None
    return PasswordHash(digest, lambda password: scrypt(password, salt, ln, r, p, len(digest)), text)


def _pbkdf2_hash(text: str, iterations: int, salt: bytes, digest: bytes) -> PasswordHash | None:
    if not 0 < iterations <= ITERATIONS_MAX:
        return None
    size = len(digest)
    return PasswordHash(
        digest, lambda password: hashlib.pbkdf2_hmac("sha512", password, salt, iterations, size), text
    )  # fmt: skip


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _unpadded(text: str) -> bytes:
    return _base64(text + "=" * (-len(text) % 4))


def password_line(name: str, password: str, salt: bytes) -> str:
    """The line for a user in a password file."""
    hashed = scrypt(password.encode(), salt)
    encoded = (base64.b64encode(part).decode().rstrip("=") for part in (salt, hashed))
    return f"{name}:$scrypt$ln={LN},r={R},p={P}${'$'.join(encoded)}"
