"""The code of the plugin's pages runs, and their tables are true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from gehost_sharding.cli import plan
from gehost_sharding.rules.rule import Instance
from gehost_sharding.rules.table import RuleTable

README = Path(__file__).parents[1] / "README.md"
REFERENCE = README.with_name("reference.md")


def test_the_rule_of_the_readme_is_a_rule() -> None:
    blocks = re.findall(r"```python\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "sharding_rule" in block]
    scope: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, str(REFERENCE), "exec"), scope)
    instance = Instance(
        "acme::Scan", 1, {}, ((2, 3, 4),), ((2, 3, 4),), {}, (np.dtype(np.float32),)
    )
    table = RuleTable()
    table.add("acme::Scan", scope["scan"])
    assert [factor.kind for factor in table.rule(instance).factors] == ["pass", "need", "pass"]


def test_every_option_of_plan_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    options = {name for option in plan.params for name in option.opts if name.startswith("--")}
    assert not {name for name in options if name not in text} - {"--verbose", "--output"}


def test_the_number_of_operators_is_right() -> None:
    (number,) = re.findall(r"covers (\d+) operators", README.read_text(encoding="utf-8"))
    assert int(number) == len(RuleTable().operators())


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 1500
