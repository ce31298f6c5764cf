"""The library for adapters, workloads/adapters/python/harness_client.py, for the clients of this folder."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workloads/adapters/python"))

from harness_client import Fail, LibraryLock, Lock, serve  # noqa: E402, F401
