"""Finds of the survey, each cut down to one act on one message by `harness shrink --as-test`.

Each test fails on the version that it names. Here such a test passes if the violation is found, so that a night tells when one is not.
With LOCK_CLIENT, another client is under test, and a test passes if that client has no violation.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def installed(request):
    """The client that a test names, with its library."""
    named = re.search(r"tests/survey/[\w.-]+\.toml(==[\w.]+)?", Path(request.fspath).read_text())
    subprocess.run([os.environ.get("HARNESS", "harness"), "adapters", named.group()], check=True, capture_output=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and "LOCK_CLIENT" not in os.environ:
        violated = item.name.removeprefix("test_").upper()
        if report.failed and f"report.html#{violated}-" in report.longreprtext:
            report.outcome = "passed"
        elif report.passed:
            report.outcome, report.longrepr = "failed", f"{violated} was not found"
    return report
