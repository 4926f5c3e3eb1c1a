"""No secret is written anywhere: brokers run with secrets, and everything that they wrote or showed is searched."""

import signal
import urllib.request
from pathlib import Path

from brokerbed.broker.core.passwords import password_line
from tests.broker.running import WAIT_S, Running, broker, metric, until
from tests.local.commands import brokerbed
from tests.mqtt.dial import Dial

PASSWORD, WRONG, PARENT = "correct-horse-battery", "wrong-horse-battery", "parent-horse-battery"
SECRET = "a-link-secret-of-thirty-two-bytes"
RUN_S_MAX = 300.0
SCENARIO = """
scenario: 1
name: secret
clock: {warmup: 1s, measure: 20s, speedup: 5}
topology: {tree: line, brokers: 2}
classes: 2
subscriptions: {mean_active: 4, lifetime: {mean: 10s}}
publications: {rate: 10/s}
"""


def shown(running: Running) -> bytes:
    """What others can see of a broker while it runs."""
    process = Path(f"/proc/{running.process.pid}")
    with urllib.request.urlopen(f"http://127.0.0.1:{running.ports['metrics']}/", timeout=WAIT_S) as answer:
        return b"".join([(process / "cmdline").read_bytes(), (process / "environ").read_bytes(), answer.read()])


def written(folder: Path) -> bytes:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return b"".join(file.read_bytes() for file in files)


def test_brokers_show_and_write_no_secret(tmp_path: Path) -> None:
    line = password_line("alice", PASSWORD, b"0123456789abcdef")
    (tmp_path / "users").write_text(f"{line}\n{password_line('leaf', PARENT, b'0123456789abcdef')}\n")
    (tmp_path / "link.secret").write_text(SECRET)
    (tmp_path / "leaf.password").write_text(PARENT)
    common = 'password_file = "users"\nlink_secret_file = "link.secret"\n'
    (tmp_path / "root.toml").write_text(common)
    (tmp_path / "leaf.toml").write_text(common + '[parent]\nuser = "leaf"\npassword_file = "leaf.password"\n')
    seen = []
    root_options = ("--name", "root", "--config", tmp_path / "root.toml", "--data", tmp_path / "data" / "root")
    leaf_options = ("--name", "leaf", "--config", tmp_path / "leaf.toml", "--data", tmp_path / "data" / "leaf")
    with broker(*root_options, "--metrics-port", "0") as root:
        address = f"127.0.0.1:{root.ports['mqtt']}"
        with broker(*leaf_options, "--metrics-port", "0", "--parent", address) as leaf:
            until(lambda: metric(leaf, "brokerbed_link_connected") == 1, "the link")
            dial = Dial(leaf.ports["mqtt"])
            client = dial.v5("kept", username="alice", password=PASSWORD.encode(), session_expiry_interval=1000)
            client.subscribe("t")
            client.publish("t", b"hello", 1)
            refused = dial.open5()
            refused.send(_connect(WRONG))
            assert b"\x86" in refused.closed()
            (tmp_path / "users").write_text(f"{line}\nbroken {PASSWORD}\n")
            leaf.process.send_signal(signal.SIGHUP)
            until(lambda: metric(leaf, "brokerbed_connections") >= 1, "an answer")
            seen += [shown(root), shown(leaf)]
            client.publish("t", b"hello", 1)
            dial.close()
    assert "line 2 is not a user name" in leaf.errors
    found = b"".join([*seen, written(tmp_path / "data"), root.errors.encode(), leaf.errors.encode()])
    assert b"kept" in found  # it was searched where things are written
    secrets = [PASSWORD, WRONG, PARENT, SECRET, line.rpartition("$")[2]]
    assert [secret for secret in secrets if secret.encode() in found] == []


def _connect(password: str) -> bytes:
    import mqtt5

    return mqtt5.ConnectPacket("x", clean_start=True, username="alice", password=password.encode()).write()


def test_run_directory_and_processes_of_a_run_show_no_secret(tmp_path: Path) -> None:
    """The secret of a run's links is in a folder for its owner only while the run goes on, and nowhere afterwards."""
    (tmp_path / "secret.yaml").write_text(SCENARIO)
    process = brokerbed(
        tmp_path, "run", tmp_path / "secret.yaml", "--on", "local", "--no-analyse", "--out", tmp_path / "runs"
    )

    def files() -> list[Path]:
        return [file for file in tmp_path.rglob("link.secret") if file.stat().st_size]

    until(lambda: len(files()) == 2 or process.poll() is not None, "the start", RUN_S_MAX)
    held = files()
    assert {file.parent.stat().st_mode & 0o777 for file in held} == {0o700}
    (secret,) = {file.read_bytes() for file in held}
    until(lambda: b"broker.runtime.command" in _command_lines() or process.poll() is not None, "brokers", RUN_S_MAX)
    lines = _command_lines()
    output, errors = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 0, errors
    assert secret not in lines
    assert b"broker.runtime.command" in lines
    everything = b"".join([written(tmp_path), output.encode(), errors.encode()])
    assert b"warmup" in everything
    assert secret not in everything


def _command_lines() -> bytes:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return b"\n".join(found)
