"""The host collects what its own vendor files register, under the switches, reports and order of every other pass."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import gehost_register_pass
from gehost import VendorError
from gehost.testing import parse

RULE = """
from gehost_register_pass import RegisterPass, op

@RegisterPass
def to_abs():
    return lambda x: op.Neg(op.Neg(x)), lambda x: op.Identity(x)
"""
MODEL = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }'
PLUGINS = [("register_pass", gehost_register_pass)]


def test_a_vendor_file_is_claimed(vendors: Any) -> None:
    file = vendors.write("acme/a.py", RULE)
    result, report = vendors.host(plugins=PLUGINS).run(parse(MODEL))
    (record,) = report.passes
    assert (record.name, record.vendor, record.kind, record.replaced) == (
        "to_abs",
        "acme",
        "register_pass",
        1,
    )
    assert record.origin == f"{file}:5"
    (node,) = result.graph.node
    assert {entry.key: entry.value for entry in node.metadata_props}["gehost.pass"] == "to_abs"


def test_it_runs_beside_classes(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    vendors.write("acme/b.py", vendors.swap("Second", "Identity", "Abs"))
    result, report = vendors.host(plugins=PLUGINS).run(parse(MODEL))
    assert [(record.name, record.replaced) for record in report.passes] == [
        ("to_abs", 1),
        ("Second", 1),
    ]
    assert [node.op_type for node in result.graph.node] == ["Abs"]


def test_what_is_imported_is_registered_where_it_was_written_alone(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    vendors.write("acme/b.py", "from .a import to_abs\nagain = to_abs\n")
    assert vendors.host(plugins=PLUGINS).passes.names() == ["to_abs"]


def test_a_function_of_a_helper_is_registered_by_the_file_that_registers_it(vendors: Any) -> None:
    vendors.write("acme/_rules.py", RULE.replace("@RegisterPass\n", ""))
    vendors.write(
        "acme/b.py",
        "from gehost_register_pass import RegisterPass\nfrom ._rules import to_abs\nb = RegisterPass(to_abs)\n",
    )
    vendors.write("acme/c.py", "from .b import b\n")
    assert vendors.host(plugins=PLUGINS).passes.names() == ["to_abs"]


def test_switches_hold_for_it(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    _, report = vendors.host(plugins=PLUGINS, disable=["to_abs"]).run(parse(MODEL))
    assert report.passes[0].status == "disabled"


def test_two_of_one_name_are_refused(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    vendors.write("acme/b.py", RULE)
    with pytest.raises(
        VendorError, match=r"b\.py:5: a pass called to_abs is registered already at .*a\.py:5"
    ):
        vendors.host(plugins=PLUGINS)


def test_without_the_plugin_nobody_claims_it(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    assert vendors.host().passes.names() == []


def test_it_works_in_nested_bodies(vendors: Any) -> None:
    vendors.write("acme/a.py", RULE)
    model = """<ir_version: 8, opset_import: ["" : 17]> main (bool c, float[2] x) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] p) { a = Neg(x) p = Neg(a) },
            else_branch = e () => (float[2] q) { q = Relu(x) }
        >
    }"""
    _, report = vendors.host(plugins=PLUGINS).run(parse(model))
    assert report.passes[0].replaced == 1


def test_a_native_function_that_fails_fails_the_pass_with_its_line(vendors: Any) -> None:
    from gehost import PassError

    file = vendors.write(
        "acme/a.py",
        """
        from gehost_register_pass import RegisterPass, native, op

        @native
        def fails(size):
            return size / 0

        @RegisterPass
        def rule():
            def pattern(x):
                fails(x.shape[0]).Holds()
                return op.Neg(x)
            return pattern, lambda x: x
        """,
    )
    with pytest.raises(
        PassError, match=rf"rule \({file}:7\): MeetRequirements .*ZeroDivisionError"
    ):
        vendors.host(plugins=PLUGINS).run(parse(MODEL))


def test_it_loads_nothing_heavy() -> None:
    code = "import sys, gehost_register_pass; print([m for m in ('onnx', 'numpy', 'networkx', 'rich') if m in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"


def test_every_published_name_is_there() -> None:
    for name in gehost_register_pass.__all__:
        assert getattr(gehost_register_pass, name) is getattr(gehost_register_pass, name)
    with pytest.raises(AttributeError, match="nothing"):
        gehost_register_pass.nothing
