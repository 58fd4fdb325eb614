"""The parsed tree as plain values and as lines."""

from __future__ import annotations

import json

from gehost_hlo import parse
from gehost_hlo.printer import as_lines, as_tree, computation_text, instruction_text

TEXT = """HloModule m, is_scheduled=true

ENTRY %e (p: (f32[2], s32[])) -> (f32[2], f32[2]) {
  %p = (f32[2]{0}, s32[]) parameter(0)
  %a = f32[2]{0:T(128)} get-tuple-element((f32[2]{0}, s32[]) %p), index=0
  ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%a, %a), metadata={op_name="x"}
}
"""


def test_the_tree() -> None:
    tree = as_tree(parse(TEXT))
    assert json.loads(json.dumps(tree)) == tree
    (computation,) = tree["computations"]
    assert (computation["name"], computation["is_entry"]) == ("e", True)
    plain = {"type": "f32", "dimensions": [2], "layout": None}
    laid_out = {"type": "f32", "dimensions": [2], "layout": {"minor_to_major": [0], "rest": None}}
    scalar = {"type": "s32", "dimensions": [], "layout": None}
    assert computation["parameters"] == [
        {"name": "p", "shape": {"type": "tuple", "elements": [plain, scalar]}}
    ]
    assert computation["result_shapes"] == [plain, plain]
    parameter, element, root = computation["instructions"]
    assert parameter["operands"] == [{"shape": None, "literal": "0"}]
    assert element["shape"] == {
        "type": "f32",
        "dimensions": [2],
        "layout": {"minor_to_major": [0], "rest": "T(128)"},
    }
    assert element["operands"] == [
        {"shape": {"type": "tuple", "elements": [laid_out, scalar]}, "name": "p"}
    ]
    assert (root["is_root"], root["opcode"], root["attributes"]) == (
        True,
        "tuple",
        {"metadata": '{op_name="x"}'},
    )
    assert root["operands"] == [{"shape": None, "name": "a"}] * 2


def test_lines() -> None:
    module = parse(TEXT)
    assert as_lines(module, module.computations).splitlines()[:6] == [
        "module m",
        "  computation e entry",
        "    parameter p tuple(f32 dimensions=[2], s32 dimensions=[])",
        "    result f32 dimensions=[2]",
        "    result f32 dimensions=[2]",
        "    instruction p parameter tuple(f32 dimensions=[2] layout=[0], s32 dimensions=[])",
    ]


def test_parts() -> None:
    module = parse(TEXT)
    assert computation_text(module.entry) == TEXT.partition("\n\n")[2]
    assert (
        instruction_text(module.entry.root)
        == '%t = (f32[2]{0}, f32[2]{0}) tuple(%a, %a), metadata={op_name="x"}'
    )
