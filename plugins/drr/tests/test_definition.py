"""Rules that are not well-formed are refused where they are defined: one line, with the file and line at fault."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import Host, HostOptions, PatternError, VendorError
from gehost_drr import DrrPatternBase, DrrPatternContext, attr, drr

import gehost_drr  # isort: skip


def no_operator(pat: Any, res: Any) -> None:
    res.y = res.x


def two_parts(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.z = pat.Neg(pat.other)
    res.y = res.x
    res.z = res.x


def unknown_operator(pat: Any, res: Any) -> None:
    pat.y = pat.Transposed(pat.x)
    res.y = res.x


def unknown_parameter(pat: Any, res: Any) -> None:
    pat.y = pat.Transpose(perms=[1, 0])(pat.x)
    res.y = res.x


def unknown_parameter_of_the_result(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Transpose(perms=lambda m: [1, 0])(res.x)


def too_many_operands(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x, pat.z)
    res.y = res.x


def too_many_operands_of_the_result(pat: Any, res: Any) -> None:
    pat.y = pat.Add(pat.x, pat.z)
    res.y = res.Relu(res.x, res.z)


def unbound_input(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.input)
    res.y = res.Neg(res.inputs)


def removed_input(pat: Any, res: Any) -> None:
    pat.t = pat.Relu(pat.x)
    pat.y = pat.Neg(pat.t)
    res.y = res.Abs(res.t)


def unbound_forward(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.z


def unproduced_output(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.z = res.Neg(res.x)


def forward_to_nothing(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Neg(res.x)
    res.z = res.x


def unwanted_result(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Neg(res.x)
    res.t = res.Abs(res.x)


def unwanted_result_without_a_name(pat: Any, res: Any) -> None:
    pat.y = pat.Neg(pat.Relu(pat.x))
    res.Abs(res.x)
    res.y = res.x


def remade_input(pat: Any, res: Any) -> None:
    pat.y = pat.Add(pat.x, pat.w)
    res.x = res.Neg(res.w)
    res.y = res.Abs(res.x)


def unbound_variable(pat: Any, res: Any) -> None:
    pat.y = pat.Transpose(perm=attr.perm)(pat.x)
    res.y = res.Transpose(perm=attr.prem)(res.x)


def unbound_in_where(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.where(pat.z.rank == 2)
    res.y = res.x


def unbound_in_a_part_of_a_not(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.where(~(pat.z.shape[1:] == [2]))
    res.y = res.x


def no_expression(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.where(True)


def expression_as_attribute(pat: Any, res: Any) -> None:
    pat.y = pat.Softmax(axis=pat.x.rank)(pat.x)
    res.y = res.x


def unbound_in_an_index(pat: Any, res: Any) -> None:
    pat.y = pat.Softmax(axis=attr.axis)(pat.x)
    pat.where(pat.x.shape[attr.axes] == 2)
    res.y = res.x


def no_condition(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.where(pat.x.rank)


def no_function(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.RequireNativeCall(pat.x.rank == 2)


def no_function_for_an_attribute(pat: Any, res: Any) -> None:
    pat.y = pat.Softmax(axis=attr.axis)(pat.x)
    res.y = res.Softmax(axis=res.Attr("axis"))(res.x)


def no_function_for_a_constant(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Add(res.x, res.Const(3.0))


def no_reason(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.where(pat.x.rank == 2, 3)


def capital_tensor(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.X)
    res.y = res.x


def operator_as_operand(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.Cast(to=1))
    res.y = res.x


def names_for_outputs(pat: Any, res: Any) -> None:
    pat.Op("Relu")([pat.Tensor("x")], ["y"])


def names_for_inputs(pat: Any, res: Any) -> None:
    pat.Op("Relu")(["x"], [pat.Tensor("y")])


def expression_as_operand(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Reshape(res.x, res.x.shape)


def computed_constant_in_the_source(pat: Any, res: Any) -> None:
    pat.y = pat.Add(pat.x, res.Const(lambda m: 1))


def tensor_as_attribute(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Softmax(axis=res.x)(res.x)


def object_as_attribute(pat: Any, res: Any) -> None:
    pat.y = pat.Transpose(perm={1: 0})(pat.x)


def no_name(pat: Any, res: Any) -> None:
    pat.Op("Relu")([pat.Tensor(1)], [pat.Tensor("y")])


def no_operator_name(pat: Any, res: Any) -> None:
    pat.y = pat.Op([])(pat.x)


def no_mapping(pat: Any, res: Any) -> None:
    pat.y = pat.Op("Softmax", ["axis"])(pat.x)


def swapped_in_the_other_pattern(pat: Any, res: Any) -> None:
    pat.y = pat.Add(pat.x, pat.z)
    pat.Commutative(res.y)


def made_twice(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.y = pat.Neg(pat.x)


def two_names(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    pat.z = pat.y


def a_name_like_ours(pat: Any, res: Any) -> None:
    pat.y = pat.Tensor("%x")


def no_tensor(pat: Any, res: Any) -> None:
    pat.y = pat.Relu
    res.y = res.x


def other_pattern(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Neg(pat.x)


def forward_of_the_other_pattern(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = pat.x


def name_of_a_method(pat: Any, res: Any) -> None:
    pat.where = pat.Relu(pat.x)


def nothing_to_swap(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.Commutative(pat.x))


def does_not_commute(pat: Any, res: Any) -> None:
    pat.y = pat.Commutative(pat.Sub(pat.x, pat.z))
    res.y = res.x


def circle(pat: Any, res: Any) -> None:
    pat.Op("Relu")([pat.a], [pat.b])
    pat.Op("Neg")([pat.b], [pat.a])
    res.b = res.x


def several_operators_in_the_result(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.Op(["Neg", "Abs"])(res.x)


def forwarded_twice(pat: Any, res: Any) -> None:
    pat.y = pat.Relu(pat.x)
    res.y = res.x
    res.y = res.Neg(res.x)


@pytest.mark.parametrize(
    ("define", "message", "at"),
    [
        (no_operator, "no_operator: the source pattern has no operator", "def no_operator"),
        (two_parts, "Neg shares no tensor with the rest of two_parts", "pat.Neg"),
        (
            unknown_operator,
            "ONNX has no operator Transposed; did you mean Transpose?",
            "pat.Transposed",
        ),
        (unknown_parameter, 'Transpose has no parameter "perms"', "perms="),
        (
            unknown_parameter_of_the_result,
            'Transpose has no parameter "perms"; did you mean perm?',
            "perms=",
        ),
        (too_many_operands, "Relu takes at most 1 inputs, got 2", "pat.Relu"),
        (too_many_operands_of_the_result, "Relu takes at most 1 inputs, got 2", "res.Relu"),
        (unbound_input, 'no tensor "inputs"; did you mean input?', "res.Neg"),
        (removed_input, 'the result reads "t", which a matched operator makes', "res.Abs"),
        (unbound_forward, 'the source pattern has no tensor "z"', "res.z"),
        (
            unproduced_output,
            "the result makes no tensor of the source pattern",
            "def unproduced_output",
        ),
        (forward_to_nothing, 'the source pattern has no tensor "z"', "res.z ="),
        (unwanted_result, "what Abs of the result makes is neither read nor replaced", "res.Abs"),
        (
            unwanted_result_without_a_name,
            "what Abs of the result makes is neither read nor replaced",
            "res.Abs",
        ),
        (remade_input, 'the result makes "x", which the source pattern does not make', "res.Neg"),
        (unbound_variable, 'no attribute variable "prem"; did you mean perm?', "attr.prem"),
        (unbound_in_where, 'the source pattern has no tensor "z"', "pat.where"),
        (unbound_in_a_part_of_a_not, 'the source pattern has no tensor "z"', "pat.where"),
        (
            no_expression,
            "where wants an expression over tensors of the pattern, got True",
            "pat.where",
        ),
        (
            expression_as_attribute,
            'attribute "axis" of a source pattern must be a value, a variable',
            "pat.Softmax",
        ),
        (unbound_in_an_index, 'no attribute variable "axes"; did you mean axis?', "pat.where"),
        (no_condition, "x.rank is neither true nor false; compare it with something", "pat.where"),
        (
            no_function,
            "RequireNativeCall wants a function of the match, got expression x.rank == 2",
            "pat.RequireNativeCall",
        ),
        (
            no_function_for_an_attribute,
            "Attr of a result wants a function of the match, got 'axis'",
            "res.Attr",
        ),
        (no_function_for_a_constant, "Const wants a function of the match, got 3.0", "res.Const"),
        (no_reason, "a reason is a text, got 3", "pat.where"),
        (
            capital_tensor,
            "input 0 of Relu: wanted a tensor, a number or a list of numbers, got operator X",
            "pat.Relu",
        ),
        (operator_as_operand, "got operator Cast, which is applied to nothing", "pat.Relu"),
        (
            names_for_outputs,
            'got [tensor "x"]; outputs by name are a second list: op([x], [y])',
            '"Relu"',
        ),
        (
            names_for_inputs,
            "input 0 of Relu: wanted a tensor, a number or a list of numbers, got 'x'",
            '"Relu"',
        ),
        (
            expression_as_operand,
            "input 1 of Reshape: wanted a tensor, a number or a list of numbers, got expr",
            "res.Reshape",
        ),
        (
            computed_constant_in_the_source,
            "input 1 of Add: wanted a tensor, a number or a list of numbers",
            "pat.Add",
        ),
        (
            tensor_as_attribute,
            'attribute "axis" of Softmax: wanted a value, a variable or a function, got tensor',
            "res.Softmax",
        ),
        (
            object_as_attribute,
            'attribute "perm" of Transpose: wanted a value, a variable or a function',
            "pat.Transpose",
        ),
        (no_name, "Tensor wants a name, got 1", "pat.Tensor(1)"),
        (
            no_operator_name,
            "Op wants the name of an operator, or a list of names, got []",
            "pat.Op",
        ),
        (no_mapping, "the attributes of Softmax must be a mapping by name", "pat.Op"),
        (
            swapped_in_the_other_pattern,
            'no operator makes tensor "y", so that none can commute',
            "pat.Commutative",
        ),
        (made_twice, '"y" is made by Relu at', "pat.Neg"),
        (two_names, '"z" is "y" already', "pat.z"),
        (a_name_like_ours, '"y" is "%x" already', "pat.y"),
        (no_tensor, '"y" must be a tensor that an operator makes', "pat.y"),
        (other_pattern, '"x" of Neg is a tensor of another pattern', "res.Neg"),
        (
            forward_of_the_other_pattern,
            '"y" cannot be "x", which is a tensor of another pattern',
            "res.y",
        ),
        (name_of_a_method, 'a tensor cannot be called "where" so', "pat.where"),
        (
            nothing_to_swap,
            'no operator makes tensor "x", so that none can commute',
            "pat.Commutative",
        ),
        (does_not_commute, "Sub is not known to commute", "pat.Sub"),
        (circle, "Relu reads a tensor that depends on its own result", '"Relu"'),
        (
            several_operators_in_the_result,
            "a result must name one operator",
            '"Neg", "Abs"',
        ),
        (forwarded_twice, '"y" was forwarded at', "res.Neg"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_it_is_refused_at_its_line(refused: Any, define: Any, message: str, at: str) -> None:
    refused(define, message, at)


def test_the_published_spelling_is_refused_at_its_line_too(refused: Any) -> None:
    def define(ctx: DrrPatternContext) -> None:
        pat = ctx.SourcePattern()
        relu = pat.Op("Relu")
        relu([pat.Tensor("x")], [pat.Tensor("y")])
        pat.Op("Neg")([pat.Tensor("x")], [pat.Tensor("y")])  # the second

    refused(define, '"y" is made by Relu at', "the second", published=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "layout"}, "labels must be a list of texts, got 'layout'"),
        ({"labels": [1]}, r"labels must be a list of texts, got \[1\]"),
        ({"labels": None}, "labels must be a list of texts, got None"),
        ({"benefit": "2"}, "benefit must be a number, got '2'"),
        ({"name": 3}, "name must be a text, got 3"),
        ({"min_opset": "13"}, "min_opset must be a number or None, got '13'"),
        ({"max_opset": 13.5}, "max_opset must be a number or None, got 13.5"),
        ({"min_opset": 18, "max_opset": 13}, "no opset is 18 or newer and 13 or older"),
        ({"shape_proven": "no"}, "shape_proven must be True or False, got 'no'"),
        ({"default": 0}, "default must be True or False, got 0"),
    ],
)
def test_what_a_rule_says_of_itself_is_checked_at_its_line(
    options: dict[str, Any], message: str
) -> None:
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Relu(pat.x)
        res.y = res.x

    class Rule(DrrPatternBase):
        def __call__(self, ctx: DrrPatternContext) -> None:
            pat: Any = ctx.SourcePattern()
            rule(pat, pat.ResultPattern())

    for name, value in options.items():
        setattr(Rule, name, value)
    with pytest.raises(
        PatternError, match=rf"^{__file__}:{rule.__code__.co_firstlineno}: .*{message}"
    ):
        drr.rule(**options)(rule)
    with pytest.raises(PatternError, match=rf"^{__file__}:\d+: .*{message}"):
        Rule().rule()


def test_a_class_without_patterns_is_refused_at_its_line() -> None:
    class Empty(DrrPatternBase):
        pass

    with pytest.raises(PatternError, match=rf"^{__file__}:\d+: Empty does not define __call__"):
        Empty().rule()


def test_a_vendor_file_with_such_a_rule_is_at_fault(vendors: Any) -> None:
    path = vendors.write_raw(
        "acme/custom_fusion_passes/a.py",
        "from gehost_drr import drr\n\n@drr.rule()\ndef rule(pat, res):\n    pat.y = pat.Relux(pat.x)\n    res.y = res.x\n",
    )
    with pytest.raises(VendorError) as caught:
        Host(HostOptions(vendors=[vendors.root], plugins=False), plugins=[("drr", gehost_drr)])
    assert str(caught.value) == f"{path}:5: ONNX has no operator Relux; did you mean Relu?"
    assert caught.value.exit_code == 4
