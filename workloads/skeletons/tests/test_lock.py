"""@ABOUT@

@HINT@
"""

import os
import subprocess


def test_@NAME@(tmp_path):
    command = [os.environ.get("HARNESS", "harness"), @WORDS@]
    command += ["--client=" + os.environ.get("LOCK_CLIENT", @CLIENT@)]
    command += ["--results", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 3), ran.stdout + ran.stderr
