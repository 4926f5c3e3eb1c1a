"""Passwords against hashes that other programs made: mosquitto_passwd, the RFC of scrypt, and passlib's documentation."""

import base64

import pytest

from brokerbed.broker.core.access import AccessError
from brokerbed.broker.core.passwords import Users, parse_users, password_line, scrypt

# mosquitto_passwd 2.0.11 -b FILE alice secret, and the same with -H sha512
PBKDF2 = "alice:$7$101$Ddm9U7tSCKk+MCuF$V+kGpb0xLVUWWJRj9+hNGsdtUlfbKasuUoHok7JOII6O55jp9iK+X2LAXh7gaK+eM4kMymvA+d1c4eh3nTUu/A=="
SHA512 = (
    "alice:$6$SQjyqjAa3tw/NP31$DCA6McEc7SQmPP4bjMGJTrrDiwAiD681w4EjgudSBsloXjCaYjdhlULc5cxRjM/n/vREyrMVhKyjAGgJewDEqA=="
)
# An example in the documentation of passlib.hash.scrypt, whose password is "password"
SCRYPT = "alice:$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"


@pytest.mark.parametrize(("line", "password"), [(PBKDF2, b"secret"), (SHA512, b"secret"), (SCRYPT, b"password")])
def test_hash_of_another_program_is_understood(line: str, password: bytes) -> None:
    users = parse_users(line)
    assert users.accepts("alice", password)
    assert not users.accepts("alice", password.title())
    assert not users.accepts("alice", b"")
    assert not users.accepts("bob", password)


def test_scrypt_is_that_of_rfc_7914() -> None:
    expected = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    assert scrypt(b"pleaseletmein", b"SodiumChloride", ln=14, r=8, p=1, size=64).hex() == expected


def test_line_that_we_write_is_read() -> None:
    line = password_line("bob", "pass word", b"0123456789abcdef")
    assert line.startswith("bob:$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$")
    users = parse_users("# comment\n\n" + line + "\n")
    assert users.accepts("bob", b"pass word")
    assert not users.accepts("bob", b"pass")
    assert not users.accepts("eve", b"pass word")


@pytest.mark.parametrize(
    "line",
    ["alice", "alice:plain", "alice:$6$a$b", "alice:$6$QQ==", "alice:$7$x$aa$bb", "alice:$7$0$QQ==$QQ==", ":" + PBKDF2[6:],
     "alice:$7$1000001$QQ==$QQ==", "alice:$7$101$!$QQ==", "alice:$scrypt$ln=0,r=8,p=1$QUFBQQ$QUFBQQ",
     "alice:$scrypt$ln=17,r=8,p=1$QUFBQQ$QUFBQQ",  # 128 MiB for one check
     "alice:$scrypt$ln=14,r=8,p=99$QUFBQQ$QUFBQQ", "alice:$scrypt$ln=14,r=8,p=1$Q$QUFBQQ"],
)  # fmt: skip
def test_line_that_cannot_be_used_is_named(line: str) -> None:
    with pytest.raises(AccessError, match="line 2 "):
        parse_users("# first\n" + line)


def test_name_that_is_no_users_costs_as_much_as_some_user() -> None:
    """Counted by calls, not by a clock: one hash is computed, and a name always has the same one."""
    computed: list[str] = []
    users = parse_users("\n".join(f"user{at}:{PBKDF2[6:]}" for at in range(8)), b"key")
    for name, stored in users.passwords.items():
        object.__setattr__(stored, "compute", lambda _, name=name: _noted(computed, name))
    for name in ("user3", "mallory", "mallory", "user3"):
        assert not users.accepts(name, b"x")
    assert computed[0] == computed[3] == "user3"
    assert computed[1] == computed[2]
    assert len(computed) == 4
    stand_ins = {users._stand_in(f"nobody{at}").text for at in range(3)}
    assert len(stand_ins) == 1  # all lines are alike


def _noted(computed: list[str], name: str) -> bytes:
    computed.append(name)
    return b""


def test_stand_ins_are_spread_over_all_kinds_of_hashes() -> None:
    """... so that the time of an answer tells nobody whether a name is a user's, where hashes differ in cost."""
    salt = base64.b64encode(b"salt").decode()
    lines = [f"user{at}:$7${100 + at}${salt}${salt}" for at in range(4)]
    users = parse_users("\n".join(lines), b"key")
    found = {users._stand_in(f"nobody{at}").text for at in range(200)}
    assert found == {line.partition(":")[2] for line in lines}


def test_without_any_user_a_check_still_costs_one_hash() -> None:
    assert not Users({}).accepts("alice", b"secret")
    assert len(Users({})._hashes) == 1
