"""What the README shows works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import gehost_register_pass
from gehost.testing import assert_equal_numbers, parse, random_weights

README = Path(__file__).parents[3] / "plugins/register_pass/README.md"


@pytest.mark.parametrize(
    ("text", "shapes", "name", "ops"),
    [
        (
            "main (float[64, 256] x) => (float[64, 3] y) { p = MatMul(x, w) y = Add(b, p) }",
            {"w": [256, 3], "b": [3]},
            "matmul",
            ["Gemm"],
        ),
        (
            "main (float[2, 3, 4] x) => (float[4, 2, 3] y) { t = Transpose<perm = [1, 0, 2]>(x) y = Transpose<perm = [2, 1, 0]>(t) }",
            {},
            "transposes",
            ["Transpose"],
        ),
    ],
)
def test_the_vendor_file(
    vendors: Any, text: str, shapes: dict[str, Any], name: str, ops: list[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    vendors.write_raw("acme/custom_fusion_passes/a.py", code)
    before = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}', random_weights(shapes))
    after, report = vendors.host(plugins=[("register_pass", gehost_register_pass)]).run(before)
    assert [record.name for record in report.passes if record.replaced] == [
        name_ for name_ in _names(code) if name_.startswith(name)
    ]
    assert [node.op_type for node in after.graph.node] == ops
    assert_equal_numbers(before, after)


def _names(code: str) -> list[str]:
    return re.findall(r"@RegisterPass.*\ndef (\w+)", code)
