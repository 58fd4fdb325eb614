"""What the README shows works, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from gehost import Host, HostOptions
from gehost.testing import parse
from gehost_linalg.control import CONTROLS, NUMBERED, asked
from gehost_linalg.passes import NAME, options

from .conftest import Case
from .models import graph
from .test_control import operand

README = (Path(__file__).parents[3] / "plugins/linalg/reference.md").read_text(encoding="utf-8")


def test_the_control_function_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, object] = {}
    exec(code, scope)
    control = scope["never_after_exp"]
    assert asked(control, operand("diamond")) == "after exp"  # type: ignore[arg-type]
    assert asked(control, operand("add_mul")) is None  # type: ignore[arg-type]
    assert Case("diamond").function


def test_the_control_function_takes_producers_that_move_elements(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = tmp_path / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "control.py").write_text(code, encoding="utf-8")
    body = "t = Transpose(x)\ns = Sigmoid(t)\ne = Exp(s)\ny = Tanh(e)"
    model = parse(graph(body, "float[2,3] x", "float[3,2] y"))
    settings = {f"{NAME}.control": "never-after-exp", f"{NAME}.rows": "false"}
    result, _ = Host(HostOptions(vendors=[tmp_path], enable=(NAME,), settings=settings)).run(model)
    assert [node.op_type.rpartition("_")[0] for node in result.graph.node] == ["Sigmoid_Exp", ""]


def test_every_option_and_control_function_is_named() -> None:
    named = [*[option.name for option in options({})], *CONTROLS, *NUMBERED]
    assert [name for name in named if f"`{name}" not in README] == []
