"""Passes that walk the graph, on models where each inner tensor in turn is an output, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import Host, HostOptions
from gehost.diagnose.check_pass.mutations import mutated, readers
from gehost.diagnose.check_pass.sources import instances_of
from gehost.diagnose.check_pass.trial import Reference, Trial
from gehost.errors import ModelError

HOST = Host(HostOptions(vendors=[Path(__file__).parents[2] / "vendors"]))
WALKING = {spec.name: spec for spec in HOST.passes if spec.kind == "fusion" and spec.vendor}


@pytest.mark.parametrize("name", WALKING)
def test_an_inner_tensor_that_is_an_output_keeps_its_numbers(name: str):
    spec = WALKING[name]
    trial = Trial(HOST, spec)
    with HOST.vendor_code():
        planted = [
            (mutation.what, changed)
            for model in instances_of(spec, HOST)
            for mutation in readers(model)
            if mutation.what.endswith("is an output")
            for changed in mutated(model, mutation)
        ]
        assert planted
        for what, model in planted:
            outcome = trial.run(model)
            if not outcome.replaced:
                continue
            try:
                reference = Reference(model, 0)
            except ModelError:  # it does not run before the pass either
                continue
            assert (what, reference.compare(outcome.model).difference) == (what, "")
            assert (what, trial.run(outcome.model).replaced) == (what, 0)
