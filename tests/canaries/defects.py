"""Which defect is planted: `--defect NAME`, of those that a file lists in `DEFECTS` with what goes wrong; without it the lock is right."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "strangers"))


def planted(defects):
    """The name after `--defect`, or None."""
    if "--list" in sys.argv:
        for name, what in defects.items():
            print(f"{name}\t{what}")
        sys.exit()
    if "--defect" not in sys.argv:
        return None
    name = sys.argv[sys.argv.index("--defect") + 1]
    if name not in defects:
        sys.exit(f"no defect {name!r}: {', '.join(defects)}")
    return name
