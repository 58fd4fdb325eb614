"""The result of checking a pass.

It has lines for the terminal and, for each error, models that show it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from gehost.diagnose.check_pass.trial import Feeds
from gehost.errors import OutputError
from gehost.ir.files.save import write_bytes_atomic
from gehost.spelling import counted


class Wrong(Enum):
    """The kinds of errors of a pass."""

    DIFFERS = "numbers differ"
    FAILS = "the pass fails"
    NEVER_FIRES = "never fires"
    FIRES_AGAIN = "a second run changes it again"
    NOT_REGISTERED = "not registered"


@dataclass(frozen=True)
class Finding:
    """An error of a pass.

    Attributes:
        wrong: the kind of error.
        instance: the name of the instance, with its mutation.
        kind: the kind of mutation; "" if the instance itself was not mutated.
        message: the worst difference, or the error's message.
        before: the model that shows it.
        after: the result of the pass.
        feeds: inputs on which the two differ.
    """

    wrong: Wrong
    instance: str
    kind: str
    message: str
    before: onnx.ModelProto | None = None
    after: onnx.ModelProto | None = None
    feeds: Feeds | None = None

    def __str__(self) -> str:
        return f"{self.wrong.value}{f': {self.instance}' if self.instance else ''}: {self.message}"


@dataclass
class PassCheck:
    """The tests of one pass, and their results.

    An instance is a small model of the pass's pattern. It is good if it is a valid model that runs
    and on which the pass fires. A mutation is an instance with one change.

    Attributes:
        name: of the pass.
        origin: ``file:line`` of its registration.
        instances: number of good instances, each compared and run a second time.
        patterns: number of patterns with a good instance, and number of all patterns.
        opsets: of the instances.
        refused: number of mutations on which the pass did not fire.
        equal: number of mutations that it rewrote with equal numbers.
        wrong: number of mutations with different numbers, or on which it failed.
        invalid: number of mutations that are not valid models, or do not run.
        findings: the first of each kind.
        notes: parts that could not be checked, which are neither right nor wrong.
        not_varied: forms of the pattern's operators that no model showed, a text for each operator.
        engines: the engines that computed numbers, with counts.
        provider: where the numbers were compared, too.
        elsewhere: operators that another provider ran.
    """

    name: str
    origin: str
    instances: int = 0
    patterns: tuple[int, int] = (0, 0)
    opsets: set[int] = field(default_factory=set[int])
    refused: int = 0
    equal: int = 0
    wrong: int = 0
    invalid: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    notes: list[str] = field(default_factory=list[str])
    not_varied: list[str] = field(default_factory=list[str])
    engines: Counter[str] = field(default_factory=Counter[str])
    provider: str = "cpu"
    elsewhere: set[str] = field(default_factory=set[str])

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def tried(self) -> int:
        """Number of valid mutations that the pass was run on."""
        return self.refused + self.equal + self.wrong

    def summary(self) -> str:
        """Return the tests in one line."""
        if not self.instances:
            return "; ".join(self.notes) if self.ok else "nothing was checked"
        opsets = (
            f"opsets {min(self.opsets)} to {max(self.opsets)}"
            if len(self.opsets) > 1
            else f"opset {min(self.opsets)}"
        )
        patterns = (
            f"{self.patterns[0]} of {self.patterns[1]} patterns, " if self.patterns[1] else ""
        )
        mutations = counted(self.tried, "mutation")
        return (
            f"{counted(self.instances, 'instance')} ({patterns}{opsets}), {mutations}: "
            f"{self.refused} not rewritten, {self.equal} rewritten and "
            f"equal{f', {self.wrong} wrong' if self.wrong else ''}; {self._computed()}"
        )

    def _computed(self) -> str:
        """Return which engines computed how many comparisons, and what ran on no device."""
        ordered = self.engines.most_common()
        item = [name if len(ordered) == 1 else f"{name} ({count})" for name, count in ordered]
        device = ""
        if self.provider != "cpu":
            device = f", also on {self.provider}"
            if self.elsewhere:
                device += f", which left {', '.join(sorted(self.elsewhere))} to the CPU"
        return f"computed by {', '.join(item)}{device}"

    def as_dict(self) -> dict[str, Any]:
        """Return the check as JSON data, without the models of its findings."""
        return {
            "name": self.name,
            "origin": self.origin,
            "verdict": self.verdict,
            "instances": self.instances,
            "patterns": {"found": self.patterns[0], "all": self.patterns[1]},
            "opsets": sorted(self.opsets),
            "mutations": {
                "not_rewritten": self.refused,
                "equal": self.equal,
                "wrong": self.wrong,
                "invalid": self.invalid,
            },
            "findings": [
                {
                    "wrong": finding.wrong.value,
                    "instance": finding.instance,
                    "change": finding.kind,
                    "message": finding.message,
                }
                for finding in self.findings
            ],
            "not_checked": list(self.notes),
            "not_varied": list(self.not_varied),
            "engines": dict(self.engines),
            "provider": self.provider,
            "elsewhere": sorted(self.elsewhere),
        }

    @property
    def verdict(self) -> str:
        """``ok``, ``wrong`` or ``not checked``: without an instance, or without a mutation."""
        return "wrong" if not self.ok else "ok" if self.tried else "not checked"

    def lines(self) -> list[str]:
        """Return the summary, then a line for each finding and note."""
        head = f"{self.name} ({self.origin})"
        findings = [f"{head}: {finding}" for finding in self.findings]
        notes = (
            [f"{head}: not checked: {note}" for note in self.notes]
            if self.instances or not self.ok
            else []
        )
        varied = [f"{head}: not varied: {', '.join(self.not_varied)}"] if self.not_varied else []
        return [f"{head}: {self.verdict}: {self.summary()}", *findings, *notes, *varied]


def save_findings(result: PassCheck, directory: str | os.PathLike[str]) -> list[Path]:
    """Write the models and inputs of each finding; return the directories.

    Each gets ``before.onnx`` and, if there are any, ``after.onnx`` and ``feeds.npz``, in
    ``finding-<n>`` with the first free n: names of passes need not be valid names of files.

    Raises:
        OutputError: a file cannot be written.
    """
    files: list[Path] = []
    for finding in result.findings:
        if finding.before is None:
            continue
        home = _free_directory(Path(directory))
        files.append(home)
        for name, model in (("before.onnx", finding.before), ("after.onnx", finding.after)):
            if model is not None:
                write_bytes_atomic(home / name, model.SerializeToString(deterministic=True))
        if finding.feeds is not None:
            packed = io.BytesIO()
            arrays: dict[str, Any] = dict(finding.feeds)
            np.savez(packed, **arrays)
            write_bytes_atomic(home / "feeds.npz", packed.getvalue())
    return files


def _free_directory(root: Path) -> Path:
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (root / f"finding-{number}").mkdir()
                return root / f"finding-{number}"
    except OSError as error:
        raise OutputError(f"cannot make the directory: {error.strerror}", where=root) from error
    raise AssertionError
