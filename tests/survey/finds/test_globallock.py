"""HL011 grant-stays: written by `harness shrink --as-test` from 20261128-2215-redis-drop-request-0001.

LOCK_CLIENT names another client, HARNESS another harness. Exit code 3 is inconclusive, not a violation.
"""

import os
import subprocess


def test_hl011(tmp_path):
    command = [os.environ.get("HARNESS", "harness"), "run", "--backend", "redis", "--runtime", "virtual", "--lease", "1000ms", "--fault", "drop-request=any:4", "--progress-bound", "5s", "--grants", "6", "--hold", "100ms", "--time", "10000ms", "--clients", "2", "--seed", "00000001", "--no-config"]
    command += ["--client", os.environ.get("LOCK_CLIENT", "tests/survey/globallock.toml==0.2.0")]
    command += ["--results", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 3), ran.stdout + ran.stderr
