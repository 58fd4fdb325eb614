"""The code of the plugin's README runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gehost_drr import DrrRule

from .conftest import model_of, ops_of

README = Path(__file__).parents[3] / "plugins/drr/README.md"
MODEL = """(float[2, 3, 4, 5] x) => (float[4, 2, 3, 5] y) {
    t = Transpose<perm = [0, 2, 1, 3]>(x)
    y = Transpose<perm = [1, 0, 2, 3]>(t)
}"""


def test_both_blocks_run_one_after_the_other(capsys: Any) -> None:
    scope: dict[str, Any] = {"model": model_of(MODEL), "__name__": "readme"}
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    ):
        exec(compile(block, f"{README}#{number}", "exec"), scope)
    assert ops_of(scope["result"].model) == {"Transpose": 1}
    assert capsys.readouterr().out.startswith(
        "remove_redundancy_pass: 1 rewrite (remove_redundant_transpose 1), converged\n"
    )
    assert isinstance(scope["RemoveRedundantTranspose"]().rule(), DrrRule)
