"""HL007 orphan-grant: written by `harness shrink --as-test` from 20261128-2231-redis-drop-reply-0001.

LOCK_CLIENT names another client, HARNESS another harness. Exit code 3 is inconclusive, not a violation.
"""

import os
import subprocess


def test_hl007(tmp_path):
    command = [os.environ.get("HARNESS", "harness"), "run", "--backend", "redis", "--runtime", "virtual", "--lease", "1000ms", "--fault", "drop-reply=any:7", "--progress-bound", "5s", "--grants", "6", "--time", "10000ms", "--stop-on-violation", "--clients", "1", "--seed", "00000001", "--no-config"]
    command += ["--client", os.environ.get("LOCK_CLIENT", "tests/survey/sherlock.toml==0.4.1")]
    command += ["--results", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 3), ran.stdout + ran.stderr
