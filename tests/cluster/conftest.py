"""One cluster for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.cluster.standalone import Cluster
from tests.needs import require


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers that have registered with it."""
    require("java")
    it = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        it.begin(workers=2)
        yield it
    finally:
        it.end()
