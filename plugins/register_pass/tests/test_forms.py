"""A rule prints as the Python that gives it again, and goes to JSON and back; what is read never runs code unless it may."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import Any

import pytest

import gehost_register_pass
from gehost import CustomPassStage, PatternError
from gehost_register_pass import (
    InputSpec,
    MappedPattern,
    ParamAttr,
    PassDesc,
    RegisteredPass,
    RegisterPass,
    from_json,
    native,
    op,
    to_json,
)

OUR = __name__


@native
def undoes(first: list[int], second: list[int]) -> bool:
    return [first[axis] for axis in second] == sorted(first)


@RegisterPass
def deletes():
    def pattern(x):
        first = PassDesc.OP.Transpose(data=x)
        second = PassDesc.OP.Transpose(data=first)
        undoes(first.Attr("perm"), second.Attr("perm")).Holds()
        return second

    return pattern, lambda x: x


@RegisterPass(
    input_specs={"w": ParamAttr(), "x": InputSpec([None, 4], "float32")},
    stage=CustomPassStage.kAfterBuiltinFusionPass,
    min_opset=13,
    max_opset=20,
    shape_proven=True,
    default=False,
)
def computes():
    def fused(x, w, b):
        total = op.Add(op.MatMul(x, w), b).Commutative()
        x.Attr("shape")[0].Mod(32).EQ(0)
        w.shape[-1] >= 2  # noqa: B015 - states a condition
        total.Output("C").shape == [x.shape[0], w.shape[1]]  # noqa: B015 - states a condition
        b.dtype == "float32"  # noqa: B015 - states a condition
        return op.LeakyRelu(total, alpha=0.25)

    def replace(x, w, b):
        gemm = PassDesc.OP.Gemm(A=x, B=w, C=b)
        gemm.SetAttr("beta", (x.shape.Size() - 1) / 1)
        leaky = op.LeakyRelu(gemm, alpha=MappedPattern("LeakyRelu", 0, "alpha") * 1)
        return op.Reshape(leaky, [x.shape[0], 1])

    def split(x):
        parts = op.Split(op("acme::Say")(x, text="a \"quoted\" 'text'\n"), num_outputs=2, axis=1)
        return parts.Output(1), parts.Output(0)

    def join(x):
        return op.Relu(x), op.Clip(x, None, 6.0)

    return [(fused, replace), (split, join)]


class Axis(IntEnum):
    FIRST = 0


@RegisterPass(name="Odd names & numbers")
def odd():
    stored: list[Any] = []

    def pattern(op, relu_0):
        relu = PassDesc.OP.Relu(op)
        gate = PassDesc.OP("acme::a-gate")(relu, relu_0, text="\u00e9\U0001f600")
        stored.append(relu.Output().shape[0])
        return PassDesc.OP.Add(gate, op)

    def replace(op, relu_0):
        lifted = PassDesc.OP.Squeeze(
            PassDesc.OP.Unsqueeze(relu_0, axes=[Axis.FIRST]), axes=[Axis.FIRST]
        )
        return PassDesc.OP.LeakyRelu(PassDesc.OP.Add(lifted, stored[0]), alpha=float("-inf"))

    return pattern, replace


RULES = [deletes, computes, odd]


@pytest.mark.parametrize("registered", RULES, ids=lambda rule: rule.name)
def test_what_is_printed_is_traced_to_the_same_rule(registered: RegisteredPass) -> None:
    scope: dict[str, Any] = {"CustomPassStage": CustomPassStage, "undoes": undoes}
    exec(f"from gehost_register_pass import *\n{registered}", scope)
    again: RegisteredPass = next(
        item for item in scope.values() if isinstance(item, RegisteredPass)
    )
    assert _without_lines(str(again)) == _without_lines(str(registered))
    assert _without_origins(to_json(again)) == _without_origins(to_json(registered))


def _without_lines(text: str) -> str:
    return text.partition("\n")[2]


def _without_origins(text: str) -> Any:
    return json.loads(text, object_hook=lambda read: None if read.get("is") == "Origin" else read)


def test_print_is_readable() -> None:
    text = _without_lines(str(deletes))
    assert text == (
        "@RegisterPass(stage=CustomPassStage.kAfterInferShape)\n"
        "def deletes():\n"
        "    def pattern(x):\n"
        "        transpose_0 = op.Transpose(data=x)\n"
        "        transpose_1 = op.Transpose(data=transpose_0)\n"
        '        undoes(transpose_0.Attr("perm"), transpose_1.Attr("perm")).Holds()\n'
        "        return transpose_1\n"
        "\n"
        "    def replace(x):\n"
        "        return x\n"
        "\n"
        "    return pattern, replace\n"
    )


@pytest.mark.parametrize("registered", RULES, ids=lambda rule: rule.name)
def test_json_and_back(registered: RegisteredPass, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, OUR, sys.modules.get(OUR) or _module())
    text = to_json(registered)
    again = from_json(text, allow_native=True)
    assert again.rule == registered.rule
    assert to_json(again) == text
    assert again.module == OUR


def test_what_is_read_rewrites_as_what_was_written(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, OUR, sys.modules.get(OUR) or _module())
    model = """<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 4, 3] z) {
        a = Transpose<perm = [1, 2, 0]>(x) b = Transpose<perm = [2, 0, 1]>(a) y = Abs(b)
        c = Transpose<perm = [1, 2, 0]>(x) z = Transpose<perm = [2, 1, 0]>(c)
    }"""
    again = from_json(to_json(deletes), allow_native=True)
    (first_model, first), (read, second) = run(model, deletes), run(model, again)
    assert first.replaced == second.replaced == 1
    assert first.rejected == second.rejected == {"condition": 1}
    assert read == first_model


def _module() -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(undoes=undoes)


def test_a_rule_that_is_off_by_default_stays_so_in_every_form() -> None:
    again = from_json(to_json(computes), allow_native=True)
    assert [item.spec().default for item in (computes, again, deletes)] == [False, False, True]


def test_only_rules_that_call_python_are_native() -> None:
    assert [json.loads(to_json(registered))["native"] for registered in RULES] == [
        True,
        False,
        False,
    ]
    path = f"{OUR}:undoes"
    assert to_json(deletes).count(path) == 1
    assert "[first[axis]" not in to_json(deletes)


def test_loading_runs_no_code_unless_it_may(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "says_hello.py").write_text("print('hello')\ndef undoes(a, b): return True\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = to_json(deletes).replace(OUR, "says_hello")
    with pytest.raises(PatternError, match=r"says_hello:undoes; allow_native=True imports it"):
        from_json(text)
    assert "says_hello" not in sys.modules
    try:
        assert from_json(text, allow_native=True).rule.is_native
        assert "says_hello" in sys.modules
    finally:
        sys.modules.pop("says_hello", None)


@pytest.mark.parametrize("path", ["no_such_module:f", f"{OUR}:no_such_function", "math"])
def test_a_function_that_cannot_be_imported(path: str) -> None:
    text = to_json(deletes).replace(f"{OUR}:undoes", path)
    with pytest.raises(PatternError, match="cannot be imported"):
        from_json(text, allow_native=True)


def test_a_function_without_an_import_path_is_not_written() -> None:
    def rule():
        def pattern(x):
            transpose = op.Transpose(x)
            native(lambda perm: True)(transpose.Attr("perm")).Holds()
            return transpose

        return pattern, lambda x: x

    with pytest.raises(
        PatternError, match=r"which cannot be imported; write it at the top of a module"
    ):
        to_json(RegisterPass(rule))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"format": "other"}',
        '{"format": "gehost_register_pass/1"}',
        '{"format": "gehost_register_pass/1", "rule": 5}',
        '{"format": "gehost_register_pass/1", "rule": {"is": "os.system"}}',
        '{"format": "gehost_register_pass/1", "rule": {"is": "Constant", "value": 1}}',
        '{"format": "gehost_register_pass/1", "rule": {"is": "Rule", "name": "x"}}',
        lambda: to_json(computes).replace('"index": 0', '"index": 9'),
        lambda: to_json(computes).replace('"op": 0', '"op": 7'),
        lambda: to_json(computes).replace('"type": "MatMul"', '"type": 5'),
        lambda: to_json(computes).replace('"Gemm"', '"Gem"'),
        lambda: to_json(computes).replace('"kAfterBuiltinFusionPass"', '"kNever"'),
        lambda: to_json(computes).replace('"name": "computes"', '"name": 5'),
        lambda: to_json(computes).replace('"name": "computes"', '"name": ""'),
        lambda: to_json(computes).replace('"relation": "=="', '"relation": "~"'),
        lambda: to_json(computes).replace('"sign": "*"', '"sign": "**"'),
        lambda: to_json(computes).replace('"name": "shape"', '"name": "size"'),
        lambda: to_json(computes).replace('"name": "alpha"', '"name": 1'),
        lambda: to_json(computes).replace('"name": "w"', '"name": "b"'),
        lambda: to_json(computes).replace('"name": "w"', '"name": "not a name"'),
        lambda: to_json(computes).replace('"dtype": "float32"', '"dtype": "float"'),
        lambda: to_json(computes).replace('"index": -1', '"index": "last"'),
        lambda: to_json(computes).replace('"index": 0', '"index": -1'),
        lambda: to_json(computes).replace('"min_opset": 13', '"min_opset": "13"'),
        lambda: to_json(computes).replace('"shape_proven": true', '"shape_proven": "yes"'),
        lambda: to_json(computes).replace('"outputs": 2', '"outputs": 1000000000'),
        lambda: to_json(computes).replace('"value": 0.25', '"value": null'),
        lambda: to_json(computes).replace('"is": "Stage",', ""),
        lambda: to_json(deletes).replace('"op": 0', '"op": true'),
        lambda: to_json(odd).replace('"op": 0', '"op": -1'),
        lambda: to_json(odd).replace('"index": 1', '"index": -1'),
        lambda: to_json(deletes).replace('"op": 1,\n         "name"', '"op": 2,\n         "name"'),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, OUR, sys.modules.get(OUR) or _module())
    source = text if isinstance(text, str) else text()
    assert source not in map(to_json, RULES)
    with pytest.raises(PatternError) as caught:
        from_json(source, allow_native=True, source="rule.json")
    assert "\n" not in str(caught.value)


def test_a_vendor_file_may_load_its_rule(vendors: Any) -> None:
    file = vendors.write(
        "acme/a.py",
        """
        from pathlib import Path
        from gehost_register_pass import from_json
        RULE = from_json(Path(__file__).with_suffix(".json").read_text())
        """,
    )
    file.with_suffix(".json").write_text(to_json(computes))
    host = vendors.host(plugins=[("register_pass", gehost_register_pass)])
    assert host.passes.names() == ["computes"]
