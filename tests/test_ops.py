"""Operators of vendors: marked in their module, kept by a host."""

from __future__ import annotations

import contextlib
import inspect

import onnx
import pytest

from gehost import ops
from gehost.errors import VendorError
from gehost.ops import MARK, OpDef, OpRegistry


def module(code: str) -> dict[str, object]:
    namespace: dict[str, object] = {"ops": ops}
    exec(compile(code, "vendor.py", "exec"), namespace)
    return namespace


def definition(code: str) -> OpDef:
    (actual,) = module(code)[MARK].values()
    return actual


def test_a_body_s_signature_is_the_operator_s():
    actual = definition(
        "@ops.register('acme::Scale', outputs=('y', 'z'), traits=['random'], version=2)\n"
        "def scale(x, bias=None, *, by, twice=0):\n    return x\n"
    )
    assert (actual.name, actual.version, actual.inputs, actual.required, actual.outputs) == (
        "acme::Scale",
        2,
        ("x", "bias"),
        1,
        ("y", "z"),
    )
    assert actual.attributes == {"by": inspect.Parameter.empty, "twice": 0}
    assert actual.defaults == {"twice": 0}
    assert (actual.traits, actual.origin, actual.shape) == ({"random"}, "vendor.py:1", None)
    assert actual.body is not None
    assert actual.body("in", by=1) == "in"


def test_without_a_body_it_is_said():
    actual = definition(
        "ops.register('acme::Scale', inputs=['x'], attributes={'by': 1.0}, shape=print)"
    )
    assert (actual.inputs, actual.required, actual.outputs, actual.attributes, actual.body) == (
        ("x",),
        1,
        ("output",),
        {"by": 1.0},
        None,
    )
    assert actual.shape is print


def test_the_decorated_function_stays_what_it_was():
    namespace = module("@ops.register('acme::F')\ndef f(x):\n    return x + 1\n")
    assert namespace["f"](2) == 3


def test_registering_touches_nothing_but_the_module():
    before = len(onnx.defs.get_all_schemas())
    first, second = OpRegistry(), OpRegistry()
    first.add_marked(module("ops.register('acme::F', inputs=['x'])"))
    assert len(onnx.defs.get_all_schemas()) == before
    assert [actual.name for actual in first] == ["acme::F"]
    assert list(second) == []
    second.add_marked({})
    assert (first.get("acme::F").inputs, second.get("acme::F")) == (("x",), None)


@pytest.mark.parametrize("name", ["GEMM", "::GEMM", "ai.onnx::GEMM"])
def test_a_domain_is_needed(name):
    with pytest.raises(
        VendorError,
        match=r'vendor.py:2: operator ".*GEMM" needs a domain of its own, as in "acme::GEMM"',
    ):
        module(f"\nops.register('{name}')")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "ops.register('a::F')\nops.register('a::F')",
            'vendor.py:2: operator "a::F" is registered already at vendor.py:1',
        ),
        (
            "@ops.register('a::F')\ndef f(*xs):\n    return xs",
            r"vendor.py:1: the body of a::F must name its inputs and attributes",
        ),
        (
            "@ops.register('a::F')\ndef f(x, **more):\n    return x",
            "the body of a::F must name its inputs and attributes",
        ),
    ],
)
def test_what_is_no_declaration_is_refused_with_its_line(code, message):
    with pytest.raises(VendorError, match=message):
        module(code)


def test_one_operator_of_one_name():
    registry = OpRegistry()
    registry.add_marked(module("ops.register('a::F')"))
    with pytest.raises(
        VendorError, match='vendor.py:3: operator "a::F" is declared differently at vendor.py:1'
    ):
        registry.add_marked(module("\n\nops.register('a::F', version=2)"))


BODY = """
import numpy as np
WEIGHT = np.asarray([1.0, {weight}], np.float32)
FACTOR = {factor}

def scaled(x):
    return [each for each in (lambda: x * FACTOR,)][0]()

def made(weight):
    @ops.register("a::F")
    def f(x, y=None):
        return scaled(x) * weight
    return f

f = made(WEIGHT)
"""


@pytest.mark.parametrize(("weight", "factor", "same"), [(2, 3, True), (2, 4, False), (1, 3, False)])
def test_declarations_are_compared_by_what_their_bodies_use(weight, factor, same):
    registry = OpRegistry()
    registry.add_marked(module(BODY.format(weight=2, factor=3)))
    second = module(BODY.format(weight=weight, factor=factor))
    with contextlib.nullcontext() if same else pytest.raises(VendorError, match="differently"):
        registry.add_marked(second)


def test_a_bare_name_is_found_when_it_is_the_only_one():
    registry = OpRegistry()
    registry.add_marked(module("ops.register('a::F')\nops.register('a::G')\nops.register('b::G')"))
    assert (registry.resolve("F"), registry.resolve("G"), registry.resolve("H")) == (
        "a::F",
        None,
        None,
    )


@pytest.mark.parametrize(
    "annotation", ["list[int]", "Sequence[int]", "tuple[int, ...]", "typing.List[int]"]
)
def test_an_annotation_of_a_list_checks_its_entries(annotation):
    actual = definition(
        "import typing\n@ops.register('acme::Ordered')\n"
        f"def ordered(x, *, perm: {annotation}):\n    return x\n"
    )
    assert actual.problem({"perm": [0, 1]}) == ""
    assert "must be a list, each entry an integer, got" in actual.problem({"perm": [0.0, 1.0]})
    assert "must be a list" in actual.problem({"perm": 1})


@pytest.mark.parametrize(
    "annotation",
    ["int | None", "None | int", "typing.Optional[int]", "Optional[int]", "t.Optional[int]"],
)
def test_an_optional_annotation_checks_what_is_given(annotation):
    actual = definition(
        "import typing\n@ops.register('acme::Maybe')\n"
        f"def maybe(x, *, k: {annotation} = None):\n    return x\n"
    )
    assert actual.problem({"k": 1}) == actual.problem({"k": None}) == ""
    assert 'attribute "k" must be an integer' in actual.problem({"k": "1"})
    lists = definition(
        "import typing\n@ops.register('acme::Maybe')\n"
        "def maybe(x, *, k: typing.Optional[list[int]] = None):\n    return x\n"
    )
    assert "must be a list, each entry an integer" in lists.problem({"k": 1})


def test_outputs_that_are_no_list():
    with pytest.raises(VendorError, match="outputs must be a list of names, got 2"):
        definition("ops.register('acme::Two', outputs=2)\n")
