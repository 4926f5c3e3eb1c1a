"""One browser for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.browser.opening import Viewer, browser


@pytest.fixture(scope="module")
def viewer() -> Iterator[Viewer]:
    with browser() as it:
        yield it
