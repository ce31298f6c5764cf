"""HL001 foreign-release: written by `harness shrink --as-test` from 20261128-2227-redis-delay-request-0001.

LOCK_CLIENT names another client, HARNESS another harness. Exit code 3 is inconclusive, not a violation.
"""

import os
import subprocess


def test_hl001(tmp_path):
    command = [os.environ.get("HARNESS", "harness"), "run", "--backend", "redis", "--runtime", "virtual", "--lease", "1000ms", "--fault", "delay-request=any:10:1250ms", "--progress-bound", "5s", "--clients", "3", "--grants", "6", "--time", "10000ms", "--stop-on-violation", "--seed", "00000001", "--no-config"]
    command += ["--client", os.environ.get("LOCK_CLIENT", "tests/survey/celery-singleton.toml==0.3.1")]
    command += ["--results", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 3), ran.stdout + ran.stderr
