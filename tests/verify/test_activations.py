"""The estimate of a run's tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost.testing import parse
from gehost.verify import compare
from gehost.verify import forms as forms_module
from gehost.verify.activations import activation_bytes
from gehost.verify.retype import TO_DOUBLE, WIDER
from gehost.verify.room import NoRoomError

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
CHAIN = f"""{HEAD} g (float16[n, m] x) => (float16[n, m] y)
{{ a = Exp (x) b = Neg (a) c = Abs (b) d = Add (a, c) y = Neg (d) }}"""


@pytest.mark.parametrize(("types", "size"), [({}, 2), (WIDER, 4), (TO_DOUBLE, 8)])
def test_the_most_tensors_alive_at_a_time(types: dict[int, int], size: int) -> None:
    """Three at Abs and at Add: a has a second reader."""
    feeds = {"x": np.zeros((3, 5), np.float16)}
    assert activation_bytes(parse(CHAIN), feeds, types) == 3 * 15 * size


def test_a_run_whose_tensors_do_not_fit_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{HEAD} g (float[n, 8] x) => (float[n, 8] y) {{{{ {{}} }}}}"
    model = parse(text.format("a = Exp (x) y = Neg (a)"))
    other = parse(text.format("a = Exp (x) b = Abs (a) y = Neg (b)"))
    wrong = parse(text.format("y = Neg (x)"))
    limits: list[int] = []

    def check(what: str, size: int, *_: object, **__: object) -> None:
        limits.append(size)
        if size >= 2 * 8 * 1000 * 8:
            raise NoRoomError(f"{what} needs more memory")

    monkeypatch.setattr(forms_module, "check_room", check)
    few, many = ({"x": np.ones((rows, 8), np.float32)} for rows in (100, 1000))
    assert not compare(model, wrong, [few]).equal
    assert limits == [0]  # weights alone
    assert compare(model, other, [many]).equal
    result = compare(model, wrong, [many])
    assert result.summary().startswith("not judged: model 'g': its run in float64 needs more")


def test_sizes_that_are_not_known_do_not_count() -> None:
    text = f"{HEAD} g (float[n] x) => (float[k] y) {{ a = NonZero (x) y = Cast <to = 1> (a) }}"
    model: onnx.ModelProto = parse(text.replace("float[k]", "float[1, k]"))
    assert activation_bytes(model, {"x": np.zeros(4, np.float32)}, {}) == 0
