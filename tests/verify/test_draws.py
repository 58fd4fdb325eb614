"""Random operators without a seed give other numbers after any rewrite, so there is nothing to compare."""

from __future__ import annotations

import onnx
import pytest

from gehost.errors import UsageError
from gehost.verify import compare
from gehost.verify.draws import unseeded

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]> g (float[2, 3] x, bool train) => (float[2, 3] y) '
NOISE = "r = RandomNormalLike (x) y = Add(x, r)"
DROP = "h = Constant <value = float {{0.5}}> () t = Constant <value = bool {{{}}}> () y = Dropout (x, h, t)"


def parse(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + body)


@pytest.mark.parametrize("op", ["Bernoulli", "RandomNormalLike", "RandomUniformLike"])
def test_numbers_without_a_seed_are_not_compared(op: str) -> None:
    model = parse(f"{{ y = {op} (x) }}")
    other = parse(f"{{ i = Identity(x) y = {op} (i) }}")
    with pytest.raises(
        UsageError,
        match=f'{op} that gives "y" draws random numbers without a seed.*give it a seed attribute',
    ):
        compare(model, other)


def test_with_a_seed_they_are_and_a_rewrite_does_not_change_them() -> None:
    for op in ("RandomNormalLike <seed = 3.0> (i)", "Bernoulli <seed = 3.0> (i)"):
        model, other = (
            parse(f"{{ {start} y = {op} }}") for start in ("i = Abs(x)", "p = Abs(x) i = Abs(p)")
        )
        assert compare(model, other).equal


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("{ y = Relu(x) }", None),
        (f"{{ y = If (train) <then_branch = a () => (float[2, 3] y) {{ {NOISE} }}, else_branch = b () => (float[2, 3] z) "
         "{ z = Abs(x) }> }", 'RandomNormalLike that gives "r"'),
        (f'{{ y = local.f(x) }} <domain: "local", opset_import: ["": 21]> f (x) => (y) {{ {NOISE} }}', "RandomNormalLike"),
        (f'{{ y = Abs(x) }} <domain: "local", opset_import: ["": 21]> f (x) => (y) {{ {NOISE} }}', None),
        ("{ y = Dropout (x) }", None),
        (f"{{ {DROP.format(0)} }}", None),
        (f"{{ {DROP.format(1)} }}", 'Dropout that gives "y" drops at random without a seed'),
        ("{ h = Constant <value = float {0.5}> () y = Dropout (x, h, train) }", "where its training_mode is true"),
        ("{ h = Constant <value = float {0.5}> () y = Dropout <seed = 3> (x, h, train) }", None),
    ],
)  # fmt: skip
def test_they_are_found_wherever_they_run(body: str, result: str | None) -> None:
    message = unseeded(parse(body))
    assert message is None if result is None else result in (message or "")
