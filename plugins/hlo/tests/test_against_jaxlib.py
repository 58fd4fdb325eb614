"""jaxlib's own reader finds the same computations, names, opcodes and operands. It runs in a child process: it may abort."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gehost_hlo import HloModule, parse

from .recorded import programs

PYTHON = os.environ.get("GEHOST_JAX_PYTHON", sys.executable)
"""An interpreter that has jaxlib; the extra ``hlo-tests`` installs it into this one."""
CHILD = """
import json, sys
from jaxlib import _hlo
found = {}
for name, text in json.load(sys.stdin).items():
    module = _hlo.hlo_module_from_text(text)
    found[name] = {
        computation.name: [[i.name, str(i.opcode).removeprefix("HloOpcode.k"), [o.name for o in i.operands()]] for i in computation.instructions()]
        for computation in module.computations()
    }
json.dump(found, sys.stdout)
"""

OPCODES = {
    "Exp": "exponential",
    "Expm1": "exponentialminusone",
    "Log1p": "logplusone",
    "Sin": "sine",
    "Cos": "cosine",
    "PopulationCount": "popcnt",
    "Clz": "countleadingzeros",
    "OptimizationBarrier": "optbarrier",
}
"""Names of jaxlib that are not those of the text."""

pytestmark = pytest.mark.skipif(
    sys.executable == PYTHON and importlib.util.find_spec("jaxlib") is None,
    reason="jaxlib is not here",
)


def ours(module: HloModule) -> dict[str, list[list[object]]]:
    return {
        computation.name: [
            [
                instruction.name,
                instruction.opcode,
                [operand.name for operand in instruction.operands if operand.name],
            ]
            for instruction in computation.instructions
        ]
        for computation in module.computations
    }


def test_the_same_instructions(tmp_path: Path) -> None:
    texts = {name: program.text for name, program in programs().items()}
    texts |= {
        f"{name} after": program.after for name, program in programs().items() if program.after
    }
    process = subprocess.run(
        [PYTHON, "-c", CHILD],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    for name, expected in json.loads(process.stdout).items():
        actual = ours(parse(texts[name]))
        assert actual.keys() == expected.keys()
        for computation, instructions in expected.items():
            theirs = [[n, OPCODES.get(o, o.lower()), operands] for n, o, operands in instructions]
            mine = [
                [n, str(o).replace("-", ""), operands] for n, o, operands in actual[computation]
            ]
            assert sorted(mine, key=str) == sorted(theirs, key=str)
