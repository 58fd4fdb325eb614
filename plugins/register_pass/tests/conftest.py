"""Runs a registered function, or one pair of functions, on a small model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

from gehost import Host, HostOptions, PassRecord
from gehost.testing import parse
from gehost_register_pass import RegisteredPass, RegisterPass
from tests.conftest import interpreted, no_default_vendors, vendors  # noqa: F401 - fixtures

Run = Callable[..., tuple[onnx.ModelProto, PassRecord]]


@pytest.fixture
def run() -> Run:
    def compiled(
        model: str | onnx.ModelProto, rule: Any, **specs: Any
    ) -> tuple[onnx.ModelProto, PassRecord]:
        """Compile with one rule alone: what ``RegisterPass`` made, or (pattern, replace) with the ``specs`` of arguments."""

        def pair() -> Any:
            return rule

        registered = (
            rule if isinstance(rule, RegisteredPass) else RegisterPass(input_specs=specs)(pair)
        )
        host = Host(HostOptions(plugins=False, cleanup=False))
        host.passes.add(registered.spec())
        result, report = host.run(parse(model) if isinstance(model, str) else model)
        return result, report.passes[0]

    return compiled


@pytest.fixture
def ops() -> Callable[[onnx.ModelProto], list[str]]:
    return lambda model: [node.op_type for node in model.graph.node]
