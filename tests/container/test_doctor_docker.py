"""The doctor and a real Docker engine."""

import docker
import pytest

from brokerbed.doctor import examine


@pytest.mark.needs("engine")
def test_doctor_finds_the_engine_and_its_version() -> None:
    client = docker.from_env()
    try:
        expected = client.version()["Version"]
    finally:
        client.close()
    (finding,) = (it for it in examine() if it.what == "Docker engine")
    assert finding.found == expected


def test_doctor_without_an_engine_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    (finding,) = (it for it in examine() if it.what == "Docker engine")
    assert finding.found is None
    assert "docker.io" in finding.advice
