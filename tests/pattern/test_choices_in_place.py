"""Choices that are matched in place find what the list of all variants finds, in its order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import pytest

from gehost import es
from gehost.errors import PatternError
from gehost.es.graph import EsGraphBuilder, EsTensor
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern

UNARY = ("Relu", "Neg", "Exp")
BINARY = ("Add", "Mul", "Sub")


class Choice:
    """One of several trees in a tree; ``optional``: with or without an operator."""

    def __init__(self, options: list[Any], optional: str = "") -> None:
        self.options = options
        self.optional = optional


def random_tree(rng: random.Random, depth: int, tensors: list[Any]) -> Any:
    """A placeholder (a number), an operator with its operands, or a choice; some occur twice."""
    if tensors and rng.random() < 0.1:
        return rng.choice(tensors)
    kind = rng.random() if depth else 1.0
    if kind < 0.35:
        below = random_tree(rng, depth - 1, tensors)
        if rng.random() < 0.5:
            optional = rng.choice(UNARY)
            result: Any = Choice([(optional, False, [below]), below], optional)
        else:
            result = Choice(
                [below, *(random_tree(rng, depth - 1, tensors) for _ in range(rng.randint(1, 2)))]
            )
    elif kind < 0.6:
        result = (rng.choice(UNARY), False, [random_tree(rng, depth - 1, tensors)])
    elif kind < 1.0:
        op = rng.choice(BINARY)
        operands = [random_tree(rng, depth - 1, tensors) for _ in range(2)]
        result = (op, op != "Sub" and rng.random() < 0.6, operands)
    else:
        return rng.randrange(3)
    tensors.append(result)
    return result


def first_open(tree: Any, chosen: Mapping[Choice, int]) -> Choice | None:
    if isinstance(tree, Choice):
        return first_open(tree.options[chosen[tree]], chosen) if tree in chosen else tree
    below = tree[2] if isinstance(tree, tuple) else []
    return next((actual for item in below if (actual := first_open(item, chosen))), None)


def variants(tree: Any) -> Iterator[dict[Choice, int]]:
    waiting: list[dict[Choice, int]] = [{}]
    while waiting:
        chosen = waiting.pop()
        choice = first_open(tree, chosen)
        if choice is None:
            yield chosen
        else:
            waiting += [{**chosen, choice: n} for n in reversed(range(len(choice.options)))]


def built(tree: Any, chosen: Mapping[Choice, int] | None) -> Pattern:
    """The pattern of a tree, with all its choices or those that are chosen."""
    builder = EsGraphBuilder("random")
    result: dict[int, EsTensor] = {}

    def make(tree: Any) -> EsTensor:
        if isinstance(tree, Choice) and chosen is not None:
            return make(tree.options[chosen[tree]])
        key = tree if isinstance(tree, int) else id(tree)
        if key in result:
            return result[key]
        if isinstance(tree, int):
            (actual,) = builder.CreateInputs(f"p{tree}")
        elif isinstance(tree, Choice):
            if tree.optional:
                actual = es.Optional(es.op(tree.optional), make(tree.options[1]))
            else:
                actual = es.Alternatives(*map(make, tree.options))
        else:
            op, commutative, operands = tree
            actual = es.op(op)(*map(make, operands))
            actual = es.Commutative(actual) if commutative else actual
        result[key] = actual
        return actual

    return Pattern(builder.BuildAndReset(make(tree)))


def random_model(rng: random.Random) -> Model:
    tensors, lines = ["a", "b"], []
    for number in range(14):
        pick = lambda: rng.choice(tensors[-4:])  # noqa: E731
        operands = pick() if rng.random() < 0.5 else f"{pick()}, {pick()}"
        op = rng.choice(BINARY if "," in operands else UNARY)
        lines.append(f"t{number} = {op} ({operands})")
        tensors.append(f"t{number}")
    unread = [t for t in tensors if not any(f"({t}" in line or f" {t})" in line for line in lines)]
    outputs = ", ".join(f"float[2] {name}" for name in unread)
    return Model(
        onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g (float[2] a, float[2] b) => ({outputs}) '
            f"{{ {' '.join(lines)} }}"
        )
    )


def found_by(pattern: Pattern, model: Model) -> dict[Node, tuple[list[Node], dict[str, str]]]:
    return {
        match.outputs[0].producer: (
            match.GetMatchedNodes(),
            {name: value.name for name in pattern.names if (value := match.get(name)) is not None},
        )
        for match in PatternMatcher(pattern, model)
    }


@pytest.mark.parametrize("block", range(4))
def test_in_place_finds_what_the_list_of_variants_finds(block):
    later = cases = 0
    for seed in range(1000 * block, 1000 * block + 60):
        rng = random.Random(seed)
        tree = (rng.choice(UNARY), False, [random_tree(rng, 4, [])])
        forms = list(variants(tree))
        if not 1 < len(forms) <= 32:
            continue
        cases += 1
        patterns = [built(tree, chosen) for chosen in forms]
        whole = built(tree, None)
        for _ in range(3):
            model = random_model(rng)
            expected: dict[Node, Any] = {}
            for number, pattern in enumerate(patterns):
                for node, actual in found_by(pattern, model).items():
                    if node not in expected:
                        expected[node] = actual
                        later += number > 0
            assert found_by(whole, model) == expected, f"seed {seed}"
    assert cases >= 15
    assert later >= 15, "matches of later variants"


def test_the_first_variant_wins_also_where_operands_may_swap(find):
    def either(x, w):
        return es.Exp(es.Commutative(es.Alternatives(es.Relu(x), es.Neg(x)) + w))

    text = "g (float[2] x) => (float[2] y) { p = Neg(x) q = Relu(x) s = Add(p, q) y = Exp(s) }"
    (match,) = find.matches(text, either, 2)
    assert [value.name for value in match.inputs] == ["x", "p"]


def chain(x, count, optional):
    for number in range(count):
        step = es.op(UNARY[number % 3])
        x = es.Optional(es.Sqrt, step(x)) if optional else step(x)
    return es.Abs(x)


def test_ten_optional_parts_of_which_some_are_there(find):
    for present in (set(), {0}, {3, 4, 9}, set(range(10))):
        lines, last = [], "x"
        for number in range(10):
            lines.append(f"t{number} = {UNARY[number % 3]} ({last})")
            last = f"t{number}"
            if number in present:
                lines.append(f"s{number} = Sqrt ({last})")
                last = f"s{number}"
        text = f"g (float[2] x) => (float[2] y) {{ {' '.join(lines)} y = Abs ({last}) }}"
        (match,) = find.matches(text, lambda x: chain(x, 10, optional=True))
        assert len(match.GetMatchedNodes()) == 11 + len(present)


def test_an_optional_output_is_absent_where_its_reader_is(find):
    """An operator may lack an output that only an option reads."""

    def normalized(x, scale):
        y, mean, _ = es.LayerNormalization(x, scale, num_outputs=3)
        return es.Alternatives(es.Sub(es.Relu(y), mean), es.Relu(y))

    text = """g (float[2,4] x, float[4] s) => (float[2,4] a, float[2,4] b) {
        y = LayerNormalization(x, s) a = Relu(y)
        z, m = LayerNormalization(x, s) r = Relu(z) b = Sub(r, m) }"""
    assert find.outputs(text, normalized, 2) == [["a"], ["b"]]


def test_an_absent_output_is_not_another_tensor(find):
    """The mean that the node lacks is not what the Exp reads."""

    def normalized(x, scale):
        y, mean, _ = es.LayerNormalization(x, scale, num_outputs=3)
        return es.Alternatives(es.Sub(es.Relu(y), es.Exp(mean)), es.Relu(y))

    text = """g (float[2,4] x, float[4] s) => (float[2,4] b) {
        y = LayerNormalization(x, s) r = Relu(y) e = Exp(x) b = Sub(r, e) }"""
    assert find.outputs(text, normalized, 2) == [["r"]]


def test_explain_names_the_part(find):
    def scores(x, w, mask):
        product = es.MatMul(x, w)
        return es.Softmax(es.Optional(lambda s: es.Add(s, es.Neg(mask)), product))

    model = find.load(
        "g (float[2,2] x, float[2,2] m) => (float[2,2] y) { p = MatMul(x, x) s = Add(p, m) y = Softmax(s) }"
    )
    failure = PatternMatcher(find.pattern(scores, 3), model).why_not(
        model.graph.nodes_of("Softmax")[0]
    )
    assert failure is not None
    assert failure.reason == 'Add "s" input 1: wanted Neg, got "m", an input of the graph'
    assert failure.part.startswith(f"optional part of {__file__}:")
    assert failure.depth == 3
    assert " (in optional part of " in str(failure)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: es.Optional(x, x), "wants a function and a tensor"),
        (lambda x: es.Optional(es.Relu, 1.0), "wants a function and a tensor"),
        (lambda x: es.Optional(lambda s: None, x), "must return a tensor"),
        (lambda x: es.Optional(lambda s: s, x), "adds no operator"),
    ],
)
def test_what_is_no_optional_part(find, make, message):
    with pytest.raises(PatternError, match=message):
        find.pattern(make)
