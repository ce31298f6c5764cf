"""The pytest fixture ``assert_lock_history``: fails a test with the drawing of what a lock did wrong."""

import pytest

from . import check


@pytest.fixture
def assert_lock_history():
    """A function that checks a history as :func:`harness_checkers.check` does, and fails the test unless it holds."""

    def assert_holds(path, **options):
        result = check(path, **options)
        if not result.holds:
            pytest.fail(f"{path}: {result}", pytrace=False)
        return result

    return assert_holds
