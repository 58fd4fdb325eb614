"""Every name that GE publishes is there, or raises the documented error."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from google.protobuf import text_format

import gehost_ge
from gehost import Host, HostOptions

from .conftest import model, replaced

PUBLISHED = {
    "ge.passes": """
        DecomposePass FusionBasePass MatchResult NodeIo PassContext PassStage Pattern
        PatternFusionPass PatternMatcherConfig PatternMatcherConfigBuilder SubgraphBoundary
        SubgraphInput SubgraphOutput SubgraphRewriter can_fuse capture_tensor
        clear_registered_passes create_pattern create_replacement
        get_registered_pass_by_descriptor_key get_registered_pass_dicts get_registered_passes
        pattern register_decompose_pass register_fusion_pass report_fuse report_match""",
    "ge.es": "GraphBuilder InputType TensorHolder attr_scope control_dependency_scope",
    "ge.es.graph_builder": "GraphBuilder InputType TensorHolder",
    "ge.es.math": """
        Abs Add BatchMatMul BatchMatMulV2 Cast Concat ConcatV2 Div Equal Exp GEMM Log MatMul
        MatMulV2 Max Maximum Min Minimum Mul Neg Pow RealDiv ReduceMax ReduceMean ReduceMeanD
        ReduceSum ReduceSumD Rsqrt Split Sqrt Square Sub Tanh Transpose""",
    "ge.es.nn": """
        BatchNorm BiasAdd Conv Conv2D Gelu GeluV2 LeakyRelu Relu Sigmoid Softmax SoftmaxV2 TopK TopKV2""",
    "ge.es.all": "Identity Reshape SelectV2 TensorMove Where",
    "ge.graph": "DataType DumpFormat Format Graph Node Shape Tensor TensorDesc",
    "ge.graph.types": "DataType DumpFormat Format",
    "ge.graph.node": "Node",
    "ge.utils": "GeUtils",
    "ge.error": "GeError",
}
METHODS = {
    ("ge.passes", "PassContext"): """
        get_error_message get_option_value get_pass_name set_error_message set_pass_name""",
    ("ge.passes", "MatchResult"): """
        get_captured_tensor get_matched_nodes get_pattern_graph_name""",
    ("ge.passes", "Pattern"): "capture_tensor get_captured_tensors",
    ("ge.passes", "PatternFusionPass"): "meet_requirements patterns replacement",
    ("ge.passes", "DecomposePass"): "meet_requirements replacement",
    ("ge.passes", "FusionBasePass"): "run",
    ("ge.passes", "PatternMatcherConfigBuilder"): """
        build enable_const_value_match enable_ir_attr_match""",
    ("ge.passes", "PatternMatcherConfig"): """
        is_enable_const_value_match is_enable_ir_attr_match""",
    ("ge.passes", "SubgraphInput"): "add_input",
    ("ge.passes", "SubgraphOutput"): "set_output",
    ("ge.passes", "SubgraphBoundary"): "add_input add_output",
    ("ge.passes", "SubgraphRewriter"): "replace",
    ("ge.passes", "PassStage"): """
        AFTER_BUILTIN_FUSION_PASS AFTER_INFER_SHAPE AFTER_ORIGIN_GRAPH_OPTIMIZE
        BEFORE_INFER_SHAPE""",
    ("ge.es", "GraphBuilder"): """
        add_control_dependency build_and_reset create_const_float create_const_int32
        create_const_int64 create_const_uint32 create_const_uint64 create_input create_inputs
        create_scalar_float create_scalar_int32 create_scalar_int64 create_scalar_uint32
        create_scalar_uint64 create_variable create_vector_int64 set_graph_attr_bool
        set_graph_attr_int64 set_graph_attr_string set_graph_output set_node_attr_bool
        set_node_attr_int64 set_node_attr_string set_tensor_attr_bool set_tensor_attr_int64
        set_tensor_attr_string""",
    ("ge.es", "TensorHolder"): "add div mul name set_data_type set_format set_shape sub",
    ("ge.graph", "Node"): """
        get_attr get_in_data_nodes_and_port_indexes get_input_attr get_input_desc get_inputs_size
        get_out_data_nodes_and_port_indexes get_output_attr get_output_desc get_outputs_size
        has_attr name set_attr set_input_attr set_output_attr type update_input_desc
        update_output_desc""",
    ("ge.graph", "Graph"): """
        add_control_edge add_data_edge add_subgraph dump_to_file dump_to_stream find_node_by_name
        get_all_nodes get_all_subgraphs get_attr get_direct_nodes get_subgraph load_from_air name
        remove_edge remove_node remove_subgraph save_to_air set_attr""",
    ("ge.graph", "Tensor"): """
        data data_type format get_data get_data_type get_format get_shape shape""",
    ("ge.graph", "TensorDesc"): """
        data_type format get_data_type get_format get_origin_format get_origin_shape get_shape
        origin_format origin_shape set_data_type set_format set_origin_format set_origin_shape
        set_shape shape""",
    ("ge.passes", "NodeIo"): "index node",
    ("ge.graph", "Shape"): "get_shape_size is_unknown_shape",
    ("ge.graph", "DumpFormat"): "kOnnx kReadable kTxt",
    ("ge.utils", "GeUtils"): "check_node_support_on_aicore infer_shape",
}
NUMBERS = {
    "DT_FLOAT": 0, "DT_FLOAT16": 1, "DT_INT8": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 6,
    "DT_UINT16": 7, "DT_UINT32": 8, "DT_INT64": 9, "DT_UINT64": 10, "DT_DOUBLE": 11,
    "DT_BOOL": 12, "DT_STRING": 13, "DT_BF16": 27, "DT_UNDEFINED": 28, "DT_INT4": 29,
}  # fmt: skip
FORMATS = {"FORMAT_NCHW": 0, "FORMAT_NHWC": 1, "FORMAT_ND": 2, "FORMAT_NCDHW": 30}


@contextmanager
def importable() -> Iterator[None]:
    """Import ge as pass files do."""
    path = gehost_ge.gehost_import_path()
    sys.path.insert(0, path)
    _forget()
    try:
        yield
    finally:
        sys.path.remove(path)
        _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ge"]:
        del sys.modules[name]


def test_a_star_imports_the_operators() -> None:
    names: dict[str, Any] = {}
    with importable():
        exec("from ge.es.math import *\nfrom ge.es.custom import *", names)
    assert "__getattr__" not in names
    assert {"Add", "GEMM", "MatMul", "TopKV2"} <= set(names)


def test_each_published_name_is_there() -> None:
    with importable():
        missing = [
            f"{module}.{name}"
            for module, names in PUBLISHED.items()
            for name in names.split()
            if not hasattr(import_module(module), name)
        ]
        missing += [
            f"{module}.{cls}.{name}"
            for (module, cls), names in METHODS.items()
            for name in names.split()
            if not hasattr(getattr(import_module(module), cls), name)
            and not _is_set_by_constructor(cls, name)
        ]
    assert missing == []


def _is_set_by_constructor(cls: str, name: str) -> bool:
    return cls in ("Tensor", "TensorDesc", "NodeIo") and not name.startswith(("get_", "set_"))


MODEL = """<ir_version: 9, opset_import: ["" : 20]>
g (bool c, float[2,4] x) => (float[2,4] y, float[2,4] z, float[2,4] g) {
  y = Relu(x)
  z = If(c) <
    then_branch = t () => (float[2,4] p) { p = Neg(x) },
    else_branch = e () => (float[2,4] q) { q = Exp(x) }
  >
  s = Sigmoid(x)
  g = Mul(s, x)
}"""


def test_each_published_name_is_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name of the tables is in a pass that runs, or its documented error is asserted."""
    here = Path(__file__).parent
    monkeypatch.chdir(tmp_path)
    Path("every.py").write_text((here / "every_name.py.txt").read_text())
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    report = Host(HostOptions(pass_paths=["every.py"], verify=True)).compile("m.onnx", "out.onnx")
    assert replaced(report) == {"Operators": 1, "Captured": 1}
    assert Path("ge_readable_1.txt").read_text().startswith('graph("g"):')
    onnx.checker.check_model(
        text_format.Parse(Path("ge_onnx.pbtxt").read_text(), onnx.ModelProto())
    )
    names = {name for items in (*PUBLISHED.values(), *METHODS.values()) for name in items.split()}
    files = [path for path in here.iterdir() if path.is_file() and path.name != "test_names.py"]
    used = set(re.findall(r"\w+", "".join(path.read_text() for path in files)))
    used |= {f"{set_or_get}_{name}" for set_or_get in ("get", "set") for name in _DESCRIBED}
    used |= {f"set_{of}_attr_{kind}" for of in ("graph", "tensor") for kind in _KINDS}
    assert sorted(names - used - _ELSEWHERE) == []


_DESCRIBED = ("data_type", "format", "origin_format", "origin_shape", "shape")
_KINDS = ("bool", "int64", "string")
_ELSEWHERE = {
    "clear_registered_passes",
    "get_registered_pass_by_descriptor_key",
    "get_registered_pass_dicts",
    "get_registered_passes",
}
"""Used in this file."""


def test_types_and_formats_have_ges_numbers() -> None:
    with importable():
        graph: Any = import_module("ge.graph")
        assert {dtype.name: dtype.value for dtype in graph.DataType} == NUMBERS
        assert {form.name: form.value for form in graph.Format} == FORMATS


def test_shapes_and_tensors() -> None:
    with importable():
        graph: Any = import_module("ge.graph")
        shape = graph.Shape([2, -1])
        assert (shape.get_shape_size(), shape.is_unknown_shape()) == (-1, True)
        assert graph.Shape([]).get_shape_size() == 0
        assert graph.Shape([2, 3]).get_shape_size() == 6
        assert graph.Shape([-2]).get_dim_num() == -1
        tensor = graph.Tensor([[1, 2]], data_type=graph.DataType.DT_INT64)
        assert (tensor.data, list(tensor.shape)) == ([[1, 2]], [1, 2])
        assert tensor.array.dtype == np.int64
        desc = graph.TensorDesc(graph.Shape([2]), data_type=graph.DataType.DT_BOOL)
        desc.set_shape(graph.Shape([3]))
        assert (list(desc.get_shape()), list(desc.origin_shape)) == ([3], [2])


@pytest.mark.parametrize(
    "call",
    [
        lambda es: es.GraphBuilder().create_variable(0, "v"),
        lambda es: es.GraphBuilder().add_control_dependency(None, []),
        lambda es: es.GraphBuilder().set_graph_attr_int64("a", 1),
        lambda es: es.attr_scope({"a": 1}).__enter__(),
        lambda es: es.control_dependency_scope([]).__enter__(),
    ],
)
def test_what_onnx_lacks_is_a_ge_error(call: Any) -> None:
    with importable():
        error = import_module("ge.error").GeError
        with pytest.raises(error):
            call(import_module("ge.es"))
        assert issubclass(error, RuntimeError)


def test_an_unknown_operator_is_an_import_error() -> None:
    with importable(), pytest.raises(ImportError, match="FlashAttention"):
        exec("from ge.es.nn import FlashAttention")


def test_registered_passes_are_listed() -> None:
    with importable():
        passes: Any = import_module("ge.passes")
        passes.clear_registered_passes()

        @passes.register_fusion_pass(name="Listed", stage=passes.PassStage.AFTER_INFER_SHAPE)
        class Listed(passes.PatternFusionPass):
            @passes.pattern
            def relu(self, inputs: Any) -> Any:
                return inputs[0]

            def replacement(self, inputs: Any) -> Any:
                return inputs[0]

        (result,) = passes.get_registered_passes()
        assert result is Listed.__ge_pass_descriptor__
        assert (result.name, result.kind) == ("Listed", "pattern_fusion")
        assert passes.get_registered_pass_by_descriptor_key(f"{__name__}:Listed:Listed") is result
        assert passes.get_registered_pass_dicts() == [
            {
                "name": "Listed",
                "stage": "AFTER_INFER_SHAPE",
                "kind": "pattern_fusion",
                "module": __name__,
                "class_name": "Listed",
                "op_types": [],
                "descriptor_key": result.key,
            }
        ]
        passes.clear_registered_passes()
        assert passes.get_registered_passes() == []


@pytest.mark.parametrize(
    "call",
    [
        "MatMul(x, x, None, False, True)",
        "MatMulV2(x, x, None, None, False, True)",
        "GEMM(x, x, x, 1.0, 1.0, False, True)",
        "BatchMatMulV2(x, x, None, None, False, False)",
        'Conv2D(x, x, None, None, [1] * 4, [0] * 4, [1] * 4, 1, "NCHW", 0)',
        "Transpose(x, b.create_vector_int64([1, 0]))",
    ],
)
def test_attributes_may_be_given_by_position(call: str) -> None:
    names = {"Conv2D": "ge.es.nn"}
    name = call.partition("(")[0]
    code = f"from {names.get(name, 'ge.es.math')} import {name}\nfrom ge.es import GraphBuilder\n"
    code += f"b = GraphBuilder('g')\nx = b.create_input(0)\nb.build_and_reset([{call}])"
    with importable():
        exec(code, {})


def test_without_a_file_that_uses_ge_nothing_of_it_loads(tmp_path: Path) -> None:
    onnx.save(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    code = (
        "import sys; from gehost import Host, HostOptions; "
        f"Host(HostOptions()).compile({str(tmp_path / 'm.onnx')!r}, {str(tmp_path / 'o.onnx')!r}); "
        "print([name for name in sys.modules if name.startswith('gehost_ge.')])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
