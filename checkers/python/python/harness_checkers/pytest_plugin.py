"""The pytest fixture ``assert_lock_history``: fails a test with the drawing of a violation."""

import pytest

from . import check


@pytest.fixture
def assert_lock_history(tmp_path):
    """A function that checks a history as :func:`harness_checkers.check` does, and fails the test unless it holds.

    The test fails with the drawing of each violation as text, and names a page that draws the operations."""

    def assert_holds(path, **options):
        result = check(path, **options)
        if not result.holds:
            page = tmp_path / "violations.html"
            page.write_text(result.page, encoding="utf-8")
            pytest.fail(f"{path}: {result}\ndrawn in {page}", pytrace=False)
        return result

    return assert_holds
