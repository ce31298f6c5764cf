"""Decides from a recorded history whether a distributed lock did what a lock must do."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Optional

from . import _native

__all__ = ["Finding", "Result", "Violation", "check"]


@dataclass(frozen=True)
class Violation:
    """One violation with its proof."""

    id: str
    """``HL001-1``: stable within a history."""
    summary: str
    """The violation in one line."""
    lock: str
    clients: list[int]
    at_ns: int
    """The time at which it became certain, in nanoseconds of the history."""
    drawing: str = field(repr=False)
    """The holds, the events of the proof and the explanation, as text."""
    events: list[dict] = field(repr=False)
    """The fewest events that prove it, in the order of the history."""


@dataclass(frozen=True)
class Finding:
    """The finding of one property."""

    id: str
    """``HL001``"""
    verdict: str
    """``holds``, ``violated``, ``inconclusive`` or ``not-applicable``."""
    evidence: str
    """One line for a person."""
    violations: list[Violation]
    violation_count: int
    """The number of all violations, described or not."""


@dataclass(frozen=True)
class Result:
    """The findings of all properties."""

    model: str
    findings: dict[str, Finding]
    """By id, ``HL001`` to ``HL011``."""
    notes: list[str]
    page: str = field(repr=False, default="")
    """An HTML page with a drawing of each violation's operations."""

    @property
    def verdict(self) -> str:
        """The worst of all verdicts: violated, then inconclusive, then holds."""
        verdicts = [finding.verdict for finding in self.findings.values()]
        return next((worst for worst in ("violated", "inconclusive", "holds") if worst in verdicts), "not-applicable")

    @property
    def holds(self) -> bool:
        """Whether no property is violated or could not be decided."""
        return self.verdict in ("holds", "not-applicable")

    @property
    def violations(self) -> list[Violation]:
        return [violation for finding in self.findings.values() for violation in finding.violations]

    def __str__(self) -> str:
        lines = [f"{self.verdict}  (model {self.model})"]
        for finding in self.findings.values():
            if finding.verdict in ("violated", "inconclusive"):
                lines.append(f"{finding.id} {finding.verdict}: {finding.evidence}")
        lines.extend(violation.drawing for violation in self.violations)
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)


def check(
    path: str | os.PathLike[str],
    *,
    model: Optional[str] = None,
    lock_key: Optional[str] = None,
    init: Optional[str] = None,
) -> Result:
    """Reads a history (JSON lines, Jepsen's EDN or JSON, also gzip and zstd) and decides all properties.

    ``model`` judges by another model than the one in the header, ``lock_key`` is the field that names the lock in Jepsen's
    histories, and ``init`` the value of a register before the first write.

    Raises ``OSError`` when the file cannot be read, and ``ValueError`` when it is no well-formed history; the text has the line.
    """
    text, drawings, page = _native.check(os.fspath(path), model, lock_key, init)
    found = json.loads(text)
    drawn = dict(drawings)
    findings = {}
    for finding in found["findings"]:
        violations = [
            Violation(
                id=violation["id"],
                summary=violation["summary"],
                lock=violation["lock"],
                clients=violation["clients"],
                at_ns=violation["at_ns"],
                drawing=drawn.get(violation["id"], violation["summary"]),
                events=violation["events"],
            )
            for violation in finding.get("violations", [])
        ]
        findings[finding["property"]] = Finding(
            id=finding["property"],
            verdict=finding["verdict"],
            evidence=finding["evidence"],
            violations=violations,
            violation_count=finding["violation_count"],
        )
    return Result(model=found["model"], findings=findings, notes=found["notes"], page=page)
