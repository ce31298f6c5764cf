"""Tests of the wheel, on histories of the crate's own tests: run by `make wheel` with the wheel installed."""

import gzip
import pathlib

import pytest

import harness_checkers

GOLDEN = pathlib.Path(__file__).parents[2] / "tests" / "golden"
HOLDS = GOLDEN / "hl001_holds.jsonl"
DOUBLE = GOLDEN / "hl001_stale_holder.jsonl"

pytest_plugins = ["pytester"]


def test_a_history_that_holds():
    result = harness_checkers.check(HOLDS)
    assert result.findings["HL001"].verdict == "holds"
    assert not result.findings["HL001"].violations


def test_a_violation_has_its_drawing():
    result = harness_checkers.check(DOUBLE)
    violation = result.findings["HL001"].violations[0]
    assert not result.holds and result.verdict == "violated"
    assert "####" in violation.drawing and "got the lock" in violation.drawing


def test_compressed_histories_are_read(tmp_path):
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(gzip.compress(DOUBLE.read_bytes()))
    assert harness_checkers.check(path).findings == harness_checkers.check(DOUBLE).findings


def test_errors_have_the_line(tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text(HOLDS.read_text() + '{"index":1}\n')
    with pytest.raises(ValueError, match="line 62: found no `process`"):
        harness_checkers.check(path)
    with pytest.raises(OSError):
        harness_checkers.check(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="chubby"):
        harness_checkers.check(HOLDS, model="chubby")


def test_the_fixture_fails_with_the_drawing(pytester):
    pytester.makepyfile(
        f"""
        def test_lock(assert_lock_history):
            assert_lock_history({str(DOUBLE)!r})

        def test_good_lock(assert_lock_history):
            assert_lock_history({str(HOLDS)!r})
        """
    )
    outcome = pytester.runpytest()
    outcome.assert_outcomes(failed=1, passed=1)
    outcome.stdout.fnmatch_lines(["*HL001-1*two clients held*", "*|*####*|*"])
