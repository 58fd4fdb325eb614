"""Models and hosts for passes of GE's Python interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from gehost import Host, HostOptions, Report

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
IMPORTS = """\
from ge.error import GeError
from ge.es import GraphBuilder, InputType, TensorHolder
from ge.es.math import Add, Cast, Concat, Exp, Gather, MatMul, Max, Mul, ReduceSum, Round, Split
from ge.es.nn import BiasAdd, LeakyRelu, MaxPool, Relu, Transpose
from ge.graph import DataType, DumpFormat, Format, Shape, Tensor, TensorDesc
from ge.passes import *
from ge.utils import GeUtils
"""

Compiled = tuple[onnx.ModelProto, Report]


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


@pytest.fixture
def compile_with(tmp_path: Path) -> Callable[..., Compiled]:
    """Compile a model with a file of this source, compare numbers, return model and report."""

    def compile_model(source: str, model: onnx.ModelProto, **options: Any) -> Compiled:
        file = tmp_path / "passes.py"
        file.write_text(IMPORTS + source)
        host = Host(HostOptions(pass_paths=[file], verify=True, **options))
        onnx.save(model, tmp_path / "in.onnx")
        report = host.compile(tmp_path / "in.onnx", tmp_path / "out.onnx")
        return onnx.load(tmp_path / "out.onnx"), report

    return compile_model


def replaced(report: Report) -> dict[str, int]:
    return {record.name: record.replaced for record in report.passes if record.matched}
