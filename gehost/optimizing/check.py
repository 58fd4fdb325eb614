"""Compare numbers, and leave out the pass that changes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from gehost.errors import ModelError
from gehost.half import Rounding, rounding, too_large
from gehost.optimizing.build import Builder, Candidate
from gehost.optimizing.target import Target, reason_of
from gehost.verify import Baseline, Runner, Verification, compare_outputs
from gehost.verify.rounded import rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

_RTOL, _ATOL = 1e-3, 1e-4
"""Of a run that the target optimizes as it likes, beside the rules for the file."""


@dataclass
class Checker:
    """Compares candidates with the original, and remembers the results."""

    baseline: Baseline
    target: Target
    original: Candidate
    half: Baseline | None = None
    """Of the original in float16, where candidates are converted."""
    results: dict[str, Verification] = field(default_factory=dict[str, Verification])
    """Of the files; of those that are converted, beside the original's conversion."""
    wide: dict[str, Verification] = field(default_factory=dict[str, Verification])
    """Of the files before their conversion to float16, beside the original."""
    _roundings: dict[str, Rounding | None] = field(default_factory=dict[str, "Rounding | None"])
    _there: list[tuple[Feeds, Feeds]] | None = None
    """Inputs and the original's outputs on the target's own runtime."""
    _failure_there: str = ""
    """What that runtime raised for the original, the first time."""

    def problem(self, candidate: Candidate) -> str:
        """Return why a file is no replacement for the original, or "".

        Of one that is converted, the function is that of the file before, and its rounding may be
        eight times as far off as that of the original's conversion: folded weights and exact
        constants round otherwise.
        """
        if candidate.path not in self.results:
            self.results[candidate.path] = self._compared(candidate)
        result = self.results[candidate.path]
        if not result.equal:
            return result.summary()
        off = self.rounding(candidate) if candidate.half is not None else None
        return off.error if off is not None and off.error else self._problem_there(candidate)

    def numbers(self, candidate: Candidate) -> str:
        """Return what was compared for a file, and how far apart its numbers are."""
        if candidate.half is None:
            if candidate.path not in self.results:  # it replaces one that differs or is slower
                self.results[candidate.path] = self._compared(candidate)
            result = self.results[candidate.path]
            return _largest(result) if result.equal else result.summary()
        result, wide = self.results.get(candidate.path), self.wide.get(candidate.path)
        if result is None:
            return f"of the original in float16; {self._off(candidate)}"
        before = f"{_largest(wide)} before float16, then " if wide is not None else ""
        return f"{before}{_largest(result)} beside the original in float16; {self._off(candidate)}"

    def data(self, candidate: Candidate) -> dict[str, Any]:
        """Return the comparison of a file as JSON data, {} where there was none."""
        result = self.results.get(candidate.path)
        return result.as_dict() if result is not None else {}

    def _off(self, candidate: Candidate) -> str:
        off = self.rounding(candidate)
        if off is None:
            model = onnx.ModelProto.FromString(Path(candidate.path).read_bytes())
            return f"not compared with float32: {too_large(model)}"
        return off.note

    def rounding(self, candidate: Candidate) -> Rounding | None:
        """Return how far float16 is off the original in float32; None of a model too large."""
        if candidate.path not in self._roundings:
            self._roundings[candidate.path] = self._rounding(candidate)
        return self._roundings[candidate.path]

    def _rounding(self, candidate: Candidate) -> Rounding | None:
        model = onnx.ModelProto.FromString(Path(candidate.path).read_bytes())
        if too_large(model):
            return None
        directory = os.path.dirname(os.path.abspath(candidate.path))
        half = Runner(
            rounded(model, directory), base_dir=directory, libraries=self._libraries(candidate)
        )
        return rounding(self.baseline.runs, half)

    def uncompared(self) -> str:
        """Return why no numbers were compared on the target's own runtime, or ""."""
        if self._expected_there() or not self._failure_there:
            return ""
        title = self.target.title()
        return f"the original runs on none of the inputs in {title}: {self._failure_there}"

    def _compared(self, candidate: Candidate) -> Verification:
        if self.half is None:
            return self.baseline.against(self._model_of(candidate))
        if candidate.wide:
            result = self.before_half(candidate)
            if not result.equal:
                return result
        return self.half.against(self._model_of(candidate))

    def before_half(self, candidate: Candidate) -> Verification:
        """Compare a file before its conversion to float16 with the original."""
        if candidate.path not in self.wide:
            self.wide[candidate.path] = self.baseline.against(candidate.wide)
            os.unlink(candidate.wide)  # each is as large as the model
        return self.wide[candidate.path]

    def _model_of(self, candidate: Candidate) -> str | Runner:
        """Return the file, with its own library where it has one."""
        if not candidate.library:
            return candidate.path
        libraries = self._libraries(candidate)
        return Runner(candidate.path, libraries=libraries, role="result", widens=True)

    def _libraries(self, candidate: Candidate) -> tuple[str, ...]:
        own = (candidate.library,) if candidate.library else ()
        return (*self.baseline.runner.libraries, *own)

    def _problem_there(self, candidate: Candidate) -> str:
        """Return how the outputs on the target's own runtime differ, or ""."""
        expected = self._expected_there()
        if not expected:
            return ""
        try:
            run = self.target.loaded(candidate.path)
            assert run is not None  # it loaded the original
            for feeds, outputs in expected:
                for output in compare_outputs(outputs, run(feeds), rtol=_RTOL, atol=_ATOL):
                    if not output.equal:
                        why = output.reason or f"{output.a} and {output.b}"
                        return f"differs in {self.target.title()} at {output.place}: {why}"
        except Exception as error:  # noqa: BLE001 - runtimes raise exceptions of many types
            return f"does not run in {self.target.title()}: {reason_of(error)}"
        return ""

    def _expected_there(self) -> Sequence[tuple[Feeds, Feeds]]:
        """Return the original's outputs on the target's own runtime, where it runs there."""
        if self._there is None:
            self._there = []
            run = self.target.loaded(self.original.path)
            if run is None:
                return self._there
            for feeds, _ in self.baseline.runs:
                try:
                    self._there.append((feeds, run(feeds)))
                except Exception as error:  # noqa: BLE001 - of many types, as above
                    self._failure_there = self._failure_there or reason_of(error)
        return self._there


def _largest(result: Verification | None) -> str:
    outputs = result.outputs if result is not None else ()
    worst = max((output.max_abs for output in outputs), default=0.0)
    return f"equal (largest difference {worst:.2g})" if worst else "equal to the bit"


def right_candidate(
    builder: Builder,
    passes: frozenset[str],
    problem: Callable[[Candidate], str],
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Candidate, dict[str, str]]:
    """Return the file of the passes that keep the numbers, and the reasons for the others.

    A pass that changes them is found by halving the list of those that rewrote something: with
    those before it the numbers are right, with it they are not.

    Raises:
        ModelError: the original does not run.
    """
    dropped: dict[str, str] = {}
    while True:
        candidate = builder.build(passes)
        progress(f"compare the numbers of {len(candidate.effective)} passes")
        reason = problem(candidate)
        if not reason:
            return candidate, dropped
        effective = candidate.effective
        right, wrong = -1, len(effective)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            progress(f"find the pass that changes numbers: {middle} of {len(effective)}")
            other = problem(builder.build(effective[:middle]))
            if other:
                wrong, reason = middle, other
            else:
                right = middle
        if wrong == 0:
            dropped["the clean-up"] = reason
            shrunk = builder.shrunk()
            if problem(shrunk):
                raise ModelError(f"the model cannot be compared with itself: {reason}")
            return shrunk, dropped
        dropped[effective[wrong - 1]] = reason
        passes -= {effective[wrong - 1]}
