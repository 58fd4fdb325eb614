"""A rule that is wrong gives one line, with the file and line at fault, when it is registered."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from gehost import DataType, PatternError
from gehost_register_pass import (
    InputSpec,
    MappedPattern,
    ParamAttr,
    PassDesc,
    RegisterPass,
    native,
    op,
)

HERE = re.escape(__file__)


def rejects(function: Any, message_: str, *, specs: Any = None) -> None:
    """Tracing ``function`` fails at a line of this file that holds ``# here``, and says ``message_``."""
    with pytest.raises(PatternError) as caught:
        _ = RegisterPass(input_specs=specs)(function).rule  # here
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, NotImplementedError)
    message = str(caught.value)
    match = re.match(rf"{HERE}:(\d+): ", message)
    assert match, message
    with open(__file__, encoding="utf-8") as file:
        line = file.readlines()[int(match[1]) - 1]
    assert "# here" in line, (message, line)
    assert message_ in message
    assert "\n" not in message


def relu(x):
    return op.Relu(x)


def pair(pattern: Any, replace: Any = None) -> Any:
    def rule():
        return pattern, replace or (lambda x: x)

    return rule


def test_a_registered_function_takes_no_parameters() -> None:
    def rule(with_relu):  # here
        return relu, relu

    rejects(rule, "rule takes parameters (with_relu); a registered function takes none")


def test_what_is_registered_is_a_function() -> None:
    class Rule:
        pass

    with pytest.raises(PatternError, match=f"{HERE}:.*wants a function that returns"):
        RegisterPass(Rule)


@pytest.mark.parametrize(
    "returned",
    [None, relu, (relu,), (relu, relu, relu), (relu, None), [], [relu], [relu] * 3, [(relu,)]],
)
def test_a_registered_function_returns_a_pair_or_a_list_of_pairs(returned: Any) -> None:
    def rule():  # here
        return returned

    rejects(rule, "must return (pattern, replace), or an iterable of such pairs")


@pytest.mark.parametrize(
    "specs", [[InputSpec()], {"x": [1, 2]}, {1: InputSpec()}, {"x": ParamAttr}, "x"]
)
def test_input_specs_are_a_dict(specs: Any) -> None:
    rejects(pair(relu), "input_specs must be a dict", specs=specs)


@pytest.mark.parametrize(
    "said",
    [
        {"stage": "kAfterInferShape"},
        {"name": 5},
        {"min_opset": "13"},
        {"max_opset": 13.0},
        {"shape_proven": "no"},
    ],
)
def test_what_is_said_of_a_rule_is_of_its_kind(said: Any) -> None:
    (name,) = said
    with pytest.raises(PatternError, match=f"{HERE}:.*{name} must be .*, got {said[name]!r}"):
        RegisterPass(**said)


@pytest.mark.parametrize("function", [partial(sorted, reverse=True), 5])
def test_a_native_function_has_a_name(function: Any) -> None:
    with pytest.raises(PatternError, match=f"{HERE}:.*native wants a function that has a name"):
        native(function)


def test_input_specs_name_arguments() -> None:
    def rule():  # here
        return relu, lambda x: x

    rejects(rule, "no pattern has an argument y", specs={"y": ParamAttr()})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"shape": [2, -2]}, "a shape holds sizes"),
        ({"shape": ["N"]}, "a shape holds sizes"),
        ({"shape": 3}, "a shape holds sizes"),
        ({"dtype": "float33"}, "no dtype 'float33'"),
        ({"dtype": DataType.UNDEFINED}, "no dtype <DataType.UNDEFINED"),
        ({"dtype": ["float32"]}, r"no dtype \['float32'\]"),
    ],
)
def test_input_specs_say_what_a_tensor_can_be(spec: Any, message: str) -> None:
    with pytest.raises(PatternError, match=f"{HERE}:.*{message}"):
        InputSpec(**spec)


def test_arguments_are_named() -> None:
    def pattern(*tensors):  # here
        return op.Add(*tensors)

    rejects(
        pair(pattern),
        "pattern must name its arguments, which are matched by name: *tensors is not allowed",
    )


def test_a_replacement_takes_what_the_pattern_takes() -> None:
    def replace(x, y):  # here
        return op.Add(x, y)

    rejects(pair(relu, replace), "replace takes y, which pattern does not; its arguments are x")


def test_both_return_as_many_tensors() -> None:
    def replace(x):  # here
        return x, x

    rejects(pair(relu, replace), "replace returns 2 tensors, pattern 1")


@pytest.mark.parametrize("returned", [None, 1, [], "x", [None]])
def test_a_pattern_returns_tensors(returned: Any) -> None:
    def pattern(x):  # here
        op.Relu(x)
        return returned

    rejects(pair(pattern), "pattern must return tensors of its own")


def test_a_pattern_has_an_operator() -> None:
    def pattern(x):  # here
        return x

    rejects(pair(pattern), "has no operator")


def test_an_operator_that_reaches_no_output() -> None:
    def pattern(x):
        op.Abs(x)  # here
        return op.Relu(x)

    rejects(pair(pattern), "Abs of pattern 'rule' reaches no output")


def test_an_argument_that_no_operator_reads() -> None:
    def pattern(x, y):  # here
        return op.Relu(x)

    rejects(pair(pattern), "reads input y")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: op.Reluu(x), "ONNX has no operator Reluu; did you mean Relu?"),
        (
            lambda x: op.Quxify(x),
            'ONNX has no operator Quxify; one of another domain is op("domain::Quxify")',
        ),
        (lambda x: op.Relu(x, alpha=1.0), 'Relu has no parameter "alpha"'),
        (lambda x: op.Relu(x, x), "Relu takes at most 1 inputs, got 2"),
        (lambda x: op.Relu(Y=x), 'Relu has no parameter "Y"'),
        (lambda x: op.Relu(1.0), "Relu needs at least one tensor"),
        (lambda x: op.Relu(op.Abs), "Abs is not applied to its inputs yet"),
        (lambda x: op.Relu(x)(x), "was applied at"),
        (lambda x: op.Relu(x).Output("Z"), 'Relu has no output "Z"; it has Y'),
        (lambda x: op.Relu(op.Relu(x).Output(1)), "output 1 of an operator that has 1"),
        (lambda x: op.Div(x, x).Commutative(), "Div is not known to commute"),
        (lambda x: op("acme::Gate")(X=x), "ONNX does not know the inputs of acme::Gate by name"),
        (lambda x: op.Add(x, "one"), "wanted a tensor, a number or a list of numbers"),
        (
            lambda x: op.Add(x, object()),
            "wanted a number, a text, a list of them or a symbol, got object",
        ),
        (lambda x: op.Add(x, x.shape[0]), "an operand of a pattern is a tensor or a number"),
        (lambda x: op.Relu(x.Attr("size")), 'a tensor has no attribute "size"'),
        (
            lambda x: op.Relu(x).Attr("perm").EQ(1) or op.Relu(x),
            "it has no value while it is traced",
        ),
        (
            lambda x: op.Transpose(x, perm=[x.shape[0:1], 1]),
            "a symbol takes one integer as an index",
        ),
        (
            lambda x: op.Relu(x) if x.shape[0] == 1 else x,
            "a comparison is a condition on the graph",
        ),
        (lambda x: op.Relu(x) if x.shape[0] else x, "a symbol has no value while it is traced"),
        (lambda x: op.Relu(x) if x else x, "a tensor has no value while it is traced"),
        (lambda x: op.Relu(x) if x == 0 else x, "a tensor has no value while it is traced"),
        (lambda x: op.Relu(x) if op.Abs(x) != x else x, "a tensor has no value while it is traced"),
        (
            lambda x: op.Relu(x) if x in (op.Abs(x), x) else x,
            "a tensor has no value while it is traced",
        ),
        (lambda x: x.dtype.NE("float") and x, "there is no dtype 'float'"),
        (lambda x: x.dtype.EQ(100) and x, "there is no dtype 100"),
        (lambda x: op.Relu(op.Relu(x).Output(-1)), "by its position from 0 or its name, got -1"),
        (
            lambda x: op.Relu(x, num_outputs="2"),
            "num_outputs of Relu is a number from 1 to 1024, got '2'",
        ),
        (lambda x: op("acme::Gate")(x, num_outputs=10**9), "num_outputs of acme::Gate is a number"),
        (
            lambda x: op.Relu(x, alpha=MappedPattern("Relu")),
            "MappedPattern belongs into the replace function",
        ),
        (
            lambda x: op.Transpose(x, perm=native(sorted)(x.shape, reverse=True)),
            "takes its arguments by position",
        ),
    ],
)
def test_a_mistake_in_a_pattern(call: Any, message: str) -> None:
    def pattern(x):
        return call(x)

    with pytest.raises(PatternError) as caught:
        _ = RegisterPass(pair(pattern)).rule
    assert re.match(rf"{HERE}:\d+: ", str(caught.value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: op.Relu(x, alpha=1.0), 'Relu has no parameter "alpha"'),
        (
            lambda x: op.Softmax(x, axis=MappedPattern("Abs", 0, "axis")),
            "the pattern has no Abs number 0; its operators are Relu",
        ),
        (
            lambda x: op.Softmax(x, axis=MappedPattern("Relu", 1, "axis")),
            "the pattern has no Relu number 1",
        ),
        (
            lambda x: op.Softmax(x, axis=MappedPattern("Relu", 0, "axis")),
            'Relu has no parameter "axis" in any opset',
        ),
        (
            lambda x: op.Softmax(x, axis=op.Abs(x).Output().shape[0]),
            "tensors of the replacement have no Attr yet when it is built",
        ),
        (
            lambda x: [x.shape[0].EQ(1), op.Abs(x)][1],
            "conditions are stated in the pattern function",
        ),
        (
            lambda x: op.Softmax(x, axis=MappedPattern("Relu", 0, "axis", "first")),
            "one integer as an index, got 'first'",
        ),
        (
            lambda x: op.Elu(x, alpha=op.Elu(x, alpha=0.5).Attr("alpha")),
            "Elu is no operator of the pattern",
        ),
        (lambda x: op.Add(x, x).Commutative(), "Commutative belongs into the pattern function"),
    ],
)
def test_a_mistake_in_a_replacement_is_found_before_anything_matches(
    call: Any, message: str
) -> None:
    with pytest.raises(PatternError) as caught:
        _ = RegisterPass(pair(relu, lambda x: call(x))).rule
    assert re.match(rf"{HERE}:\d+: ", str(caught.value))
    assert message in str(caught.value)


def test_a_tensor_of_the_pattern_is_none_of_the_replacement() -> None:
    inner: list[Any] = []

    def pattern(x):
        inner.append(op.Abs(x))
        return op.Relu(inner[0])

    def replace(x):
        return op.Add(x, inner[0])  # here

    rejects(pair(pattern, replace), "replace uses a tensor that another function was given or made")


@pytest.mark.parametrize(
    "use",
    [
        lambda x, size, tensor: op.Add(op.Abs(x), size),
        lambda x, size, tensor: op.Add(op.Abs(x), size + 1),
        lambda x, size, tensor: op.Add(op.Abs(x), tensor.shape[0]),
    ],
)
def test_what_one_pair_matches_is_not_known_to_another(use: Any) -> None:
    stored: dict[str, Any] = {}

    def keeps(x):
        stored.update(size=x.shape[0], tensor=x)
        return op.Relu(x)

    with pytest.raises(
        PatternError, match=rf"^{HERE}:\d+: a match of another pattern is not known here$"
    ):
        RegisterPass(lambda: [(keeps, lambda x: x), (relu, lambda x: use(x, **stored))]).spec()


def test_an_operator_of_the_pattern_is_changed_in_the_pattern_alone() -> None:
    stored: list[Any] = []

    def pattern(x):
        stored.append(op.Softmax(x))
        return stored[0]

    def replace(x):
        stored[0].SetAttr("axis", 1)  # here
        return x

    rejects(pair(pattern, replace), "SetAttr: this Softmax was applied in another function")


def test_nothing_works_outside_of_tracing() -> None:
    for call in (lambda: PassDesc.OP.Relu(None), lambda: MappedPattern("Relu")):
        with pytest.raises(
            PatternError, match=f"{HERE}:.*works only inside a pattern or replace function"
        ):
            call()


def test_the_host_names_the_vendor_file(vendors: Any) -> None:
    import gehost_register_pass
    from gehost import VendorError

    file = vendors.write(
        "acme/a.py",
        """
        from gehost_register_pass import RegisterPass, op

        @RegisterPass
        def rule():
            def pattern(x):
                return op.Relu(x, 1, 2)
            return pattern, lambda x: x
        """,
    )
    with pytest.raises(
        VendorError, match=rf"{re.escape(str(file))}:8: Relu takes at most 1 inputs"
    ) as caught:
        vendors.host(plugins=[("register_pass", gehost_register_pass)])
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "code",
    ["1 / 0", "len(x.shape)", "list(x.shape)", "1 in x.shape", "x.nothing", "raise SystemExit(3)"],
)
def test_whatever_python_raises_names_the_line_of_the_vendor_file(vendors: Any, code: str) -> None:
    import gehost_register_pass
    from gehost import VendorError

    file = vendors.write(
        "acme/a.py",
        f"""
        from gehost_register_pass import RegisterPass, op

        @RegisterPass
        def rule():
            def pattern(x):
                {code}
                return op.Relu(x)
            return pattern, lambda x: x
        """,
    )
    with pytest.raises(VendorError, match=rf"{re.escape(str(file))}:8: "):
        vendors.host(plugins=[("register_pass", gehost_register_pass)])
