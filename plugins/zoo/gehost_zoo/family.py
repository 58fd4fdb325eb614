"""``gehost tune-zoo``: one switch file for a family of models, with evidence for each model.

Each model is tuned by itself. A kind of fusion is on for the family where it pays on a model and
costs time, fails or changes outputs on none; a switch of the runtime where every model that keeps
anything keeps it. The models are measured one after another, as two at a time would disturb each
other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gehost import tune


@dataclass(frozen=True)
class Choice:
    """A family's choice for one kind of fusion."""

    kind: str
    on: bool
    verdicts: dict[str, list[str]]
    """Names of models by verdict: keep, drop, noise, same, failed, unmeasured."""

    @property
    def line(self) -> str:
        """The choice in one line, with the models that decided it."""
        counts = ", ".join(f"{len(names)} {verdict}" for verdict, names in self.verdicts.items())
        against = [*self.verdicts.get("drop", []), *self.verdicts.get("failed", [])]
        why = f"; not for {against[0]}" if against and not self.on else ""
        return f"{'on ' if self.on else 'off'} {self.kind}: {counts}{why}"


def choose(tunings: Mapping[str, tune.Tuning]) -> list[Choice]:
    """Decide on each kind of fusion, by the trials of all models."""
    kinds = dict.fromkeys(
        trial.name for tuning in tunings.values() for trial in tuning.trials if trial.passes
    )
    choices: list[Choice] = []
    for kind in kinds:
        verdicts: dict[str, list[str]] = {}
        for model, tuning in tunings.items():
            for trial in tuning.trials:
                if trial.name == kind:
                    # a gain beside other kinds counts only where the whole pays
                    pays_alone = trial.verdict == "keep" and not tuning.pays
                    verdict = "noise" if pays_alone else trial.verdict
                    verdicts.setdefault(verdict, []).append(model)
        on = "keep" in verdicts and not verdicts.keys() & {"drop", "failed"}
        choices.append(Choice(kind, on, verdicts))
    return choices


def family_file(tunings: Mapping[str, tune.Tuning], choices: list[Choice]) -> str:
    """The switch file of a family; ``Evidence.models`` has the measurements on each model."""
    files = {model: tuning.as_dict() for model, tuning in tunings.items()}
    chosen = {choice.kind for choice in choices if choice.on}
    passes = {
        name
        for tuning in tunings.values()
        for trial in tuning.trials
        if trial.name in chosen
        for name in trial.passes
    }
    first = next(iter(files.values()))
    names = dict.fromkeys(name for tuning in tunings.values() for name in tuning.passes)
    runtimes = [
        files[model]["Switch"]["Runtime"] for model, tuning in tunings.items() if tuning.pays
    ]
    agreed = bool(runtimes) and all(runtime == runtimes[0] for runtime in runtimes)
    quiet = {"model", "versions", "cpu", "threads", "clock"}
    evidence: dict[str, Any] = {
        key: first["Evidence"][key] for key in ("versions", "cpu", "threads", "clock")
    }
    evidence["kinds"] = {
        choice.kind: {"on": choice.on, "models": choice.verdicts} for choice in choices
    }
    evidence["models"] = {
        model: {key: value for key, value in file["Evidence"].items() if key not in quiet}
        for model, file in files.items()
    }
    requires = [needed for tuning in tunings.values() for needed in tuning.requires]
    if requires and passes:
        evidence["requires"] = list(dict.fromkeys(requires))
    switches = {name: "on" if name in passes else "off" for name in names}
    content: dict[str, Any] = {"Switch": {"GraphFusion": switches}, "Evidence": evidence}
    if agreed:
        content["Switch"]["Runtime"] = runtimes[0]
    return json.dumps(content, indent=2) + "\n"
