"""Which Java is taken, and what setup says where there is none."""

from pathlib import Path

import pytest

from brokerbed.analysis import java


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "FETCHED", tmp_path / "fetched")


def test_find_java_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert java.find_java() is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java.find_java() is None


def test_find_java_skips_what_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    fetched = fake_java(tmp_path / "fetched" / "jdk-17.0.15+6-jre", "17.0.15")
    assert java.find_java() == java.Java(fetched, 17)


def test_find_java_prefers_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "fetched" / "jdk-17", "17")
    home = fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == java.Java(home, 21)


def test_fetch_says_in_one_sentence_what_to_install_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there, so nothing leaves the machine
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use
    said = java.fetch()
    assert said.startswith("no Java, and none could be fetched")
    assert said.endswith(".")
    assert "openjdk-17-jre-headless" in said
    assert "\n" not in said


def test_fetch_is_content_with_what_is_there(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "fetched" / "jdk-17", "17.0.1")
    assert java.fetch() == f"Java 17: {program}"
