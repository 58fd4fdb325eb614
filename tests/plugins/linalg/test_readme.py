"""What the README shows works, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import gehost_linalg
from gehost_linalg.control import CONTROLS, NUMBERED, asked
from gehost_linalg.passes import options
from tests.plugins.linalg.conftest import Case
from tests.plugins.linalg.test_control import operand

README = (Path(gehost_linalg.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_the_control_function_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, object] = {}
    exec(code, scope)
    control = scope["never_after_exp"]
    assert asked(control, operand("diamond")) == "after exp"  # type: ignore[arg-type]
    assert asked(control, operand("add_mul")) is None  # type: ignore[arg-type]
    assert Case("diamond").function


def test_every_option_and_control_function_is_named() -> None:
    named = [*[option.name for option in options({})], *CONTROLS, *NUMBERED]
    assert [name for name in named if f"`{name}" not in README] == []
