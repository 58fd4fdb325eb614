"""No pass of any vendor takes a Dropout that may drop: what it draws is no function of its input."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import Host, HostOptions
from gehost.testing import parse

VENDORS = Path(__file__).parents[2] / "vendors"
NORM = """r0 = Add (DROPPED, k) m = ReduceMean <axes = [-1]> (r0) c = Sub (r0, m) s = Mul (c, c)
    v = ReduceMean <axes = [-1]> (s) e = Add (v, eps) d = Sqrt (e) n = Div (c, d) w = Mul (n, g)
    y = Add (w, b)"""
GELU = """h = Div (DROPPED, root) f = Erf (h) o = Add (f, one) t = Mul (q, o) y = Mul (t, half)"""
ATTENTION = """kt = Transpose <perm = [0, 2, 1]> (k) s0 = MatMul (q, kt) s = Mul (s0, half)
    p = Softmax <axis = -1> (s) {} y = MatMul (DROPPED, k)"""
BODIES = {
    "probabilities": ATTENTION.format("z = Dropout (p, ratio, MODE)").replace("DROPPED", "z"),
    "keys": "z = Dropout (k, ratio, MODE) "
    + ATTENTION.format("").replace("DROPPED", "p").replace("(k) s0", "(z) s0"),
    "residual": "z = Dropout (q, ratio, MODE) " + NORM.replace("DROPPED", "z"),
    "gelu": "z = Dropout (q, ratio, MODE) " + GELU.replace("DROPPED", "z"),
    "product": "a0 = MatMul (q, a) z = Dropout (a0, ratio, MODE) y = Add (z, b)",
}
MODES = {
    "on": ("on", ""),
    "cast": ("mode", "mode = Cast <to = 9> (number)"),
    "of the caller": ("training", ""),
    "off": ("off", ""),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BODIES)
def test_it_stays_unless_it_is_off(name: str, mode: str) -> None:
    value, nodes = MODES[mode]
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8, 8] q, float[2, 8, 8] k,
        bool training) => (float[2, 8, 8] y) <float ratio = {{0.5}}, bool on = {{1}},
        bool off = {{0}}, int64 number = {{1}}, float half = {{0.5}}, float one = {{1}},
        float root = {{1.4142135}}, float eps = {{0.00001}}, float[8] g = {{1,2,3,4,5,6,7,8}},
        float[8] b = {{1,2,3,4,5,6,7,8}}, float[8, 8] a = {{{",".join(map(str, range(64)))}}}> {{
        {nodes} {BODIES[name].replace("MODE", value)} }}"""
    )
    every = Host(HostOptions(vendors=[VENDORS], plugins=False)).passes
    options = HostOptions(vendors=[VENDORS], plugins=False, enable=[spec.name for spec in every])
    result, _ = Host(options).run(model)
    ops = [node.op_type for node in result.graph.node]
    assert ops.count("Dropout") == (mode != "off")
