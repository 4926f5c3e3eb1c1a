"""One Spark session for all tests of the analysis."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.jobs.session import session
from tests.analysis.commands import Commands
from tests.analysis.frames import Small
from tests.analysis.real import Real, real_run
from tests.needs import require

FOR_SMALL_FRAMES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt to, and each step costs a plan
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    require("java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brokerbed.analysis.jobs.session.DRIVER_MEMORY", "4g")  # one Java for more than a hundred tests
        with session("local[2]", 0) as it:
            for key, value in FOR_SMALL_FRAMES.items():
                it.conf.set(key, value)
            yield it


@pytest.fixture(scope="module", autouse=True)
def nothing_kept(spark: SparkSession) -> Iterator[None]:
    """What a module's tests have cached goes with them."""
    yield
    spark.catalog.clearCache()


@pytest.fixture
def one_java(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """`analyse` uses this session, and does not end it."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("brokerbed.analysis.jobs.analyse.session", shared)


@pytest.fixture
def command(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Commands:
    """`brokerbed ...` with this session."""
    return Commands(spark, capfd)


@pytest.fixture(scope="session")
def small(spark: SparkSession) -> Small:
    return Small(spark)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    return real_run(tmp_path_factory.mktemp("real"))
