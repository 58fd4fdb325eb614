"""``gehost blame`` tells every step of a node's way from the original nodes, over several compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import UsageError
from gehost.cli import run
from gehost.cli.blame import print_ancestries
from gehost.diagnose.blame import Ancestor, Ancestry, blame
from gehost.rewrite import provenance
from gehost.testing import parse
from tests.diagnose.conftest import Pass

CHAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x, float[3, 4] w, float[4] b) => (float[2, 4] y, float[2, 4] z) {
    [product] m = MatMul(x, w) [sum] s = Add(m, b) [relu] r = Relu(s) [minus] y = Neg(r) [other] z = Abs(y)
}"""

THREE = [
    ("one/p.py", Pass("es.MatMul(x, y) + z", 3, "es.Gemm(x, y, z)").code("P1")),
    ("two/p.py", Pass("es.Relu(es.Gemm(x, y, z))", 3, "es.Max(es.Gemm(x, y, z), 0.0)").code("P2")),
    (
        "six/p.py",
        Pass("-es.Max(es.Gemm(x, y, z), 0.0)", 3, "es.Min(-es.Gemm(x, y, z), 0.0)").code("P3"),
    ),
]


@pytest.fixture
def compiled(vendors: Any, tmp_path: Path) -> str:
    """``CHAIN`` after three compiles in a row, each by one vendor's pass, on the file of the one before."""
    for path, code in THREE:
        vendors.write(path, code)
    model = str(tmp_path / "0.onnx")
    onnx.save(parse(CHAIN), model)
    for number, name in enumerate(("P1", "P2", "P3"), 1):
        others = [other for other in ("P1", "P2", "P3") if other != name]
        report = vendors.host(disable=others).compile(model, str(tmp_path / f"{number}.onnx"))
        assert [result.replaced for result in report.passes if result.name == name] == [1]
        model = str(tmp_path / f"{number}.onnx")
    return model


def tree(ancestry: Ancestry, position: int = 0) -> Any:
    """A node with its pass and what it comes from; an original one by its name and operator."""
    ancestor = ancestry.ancestors[position]
    if not ancestor.pass_name:
        return (ancestor.node, ancestor.op)
    return (
        ancestor.node,
        ancestor.pass_name,
        ancestor.vendor,
        [tree(ancestry, source) for source in ancestor.sources],
    )


GEMM = ("P1_Gemm_0", "P1", "one", [("product", "MatMul"), ("sum", "Add")])
FROM_TWO = [GEMM, ("relu", "Relu")]


@pytest.mark.parametrize(
    ("name", "own"), [("y", "P3_Min_0"), ("P3_Min_0", "P3_Min_0"), ("P3_Gemm_0", "P3_Gemm_0")]
)
def test_every_step_of_three_compiles_is_told_back_to_the_original_nodes(
    compiled: str, name: str, own: str
) -> None:
    (ancestry,) = blame(compiled, name)
    assert tree(ancestry) == (
        own,
        "P3",
        "six",
        [
            ("P2_Gemm_0", "P2", "two", FROM_TWO),
            ("P2_Max_0", "P2", "two", FROM_TWO),
            ("minus", "Neg"),
        ],
    )
    assert ancestry.origins == ["product", "sum", "relu", "minus"]


def test_the_four_keys_keep_their_meaning(compiled: str) -> None:
    (node,) = [node for node in onnx.load(compiled).graph.node if node.op_type == "Min"]
    message = {entry.key: entry.value for entry in node.metadata_props}
    assert (message["gehost.pass"], message["gehost.vendor"]) == ("P3", "six")
    assert json.loads(message["gehost.origin_nodes"]) == ["product", "sum", "relu", "minus"]
    assert json.loads(message["gehost.origin_types"]) == ["MatMul", "Add", "Relu", "Neg"]


def test_a_node_made_from_original_ones_carries_the_four_keys_alone(
    vendors: Any, tmp_path: Path
) -> None:
    vendors.write(*THREE[0])
    result, _ = vendors.host().run(parse(CHAIN))
    assert all(
        "gehost.history" not in {entry.key for entry in node.metadata_props}
        for node in result.graph.node
    )
    onnx.save(result, tmp_path / "m.onnx")
    assert tree(blame(tmp_path / "m.onnx", "s")[0]) == GEMM


def test_a_node_that_no_pass_touched_has_no_ancestors(compiled: str) -> None:
    (ancestry,) = blame(compiled, "other")
    assert tree(ancestry) == ("other", "Abs")


NESTED = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, bool c) => (float[2] y) {
    y = If (c) <then_branch = t () => (float[2] r) { [same] r = Relu(x) }, else_branch = e () => (float[2] s) { [same] s = Relu(x) }>
}"""


def test_nodes_of_nested_bodies_are_told_with_their_graph(vendors: Any, tmp_path: Path) -> None:
    onnx.save(parse(NESTED), tmp_path / "m.onnx")
    assert [(item.graph, tree(item)) for item in blame(tmp_path / "m.onnx", "same")] == [
        ("t", ("same", "Relu")),
        ("e", ("same", "Relu")),
    ]
    vendors.write("acme/p.py", vendors.swap("P", "Relu", "Exp"))
    vendors.host().compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    (ancestry,) = blame(tmp_path / "out.onnx", "r")
    assert (ancestry.graph, tree(ancestry)) == ("t", ("P_Exp_0", "P", "acme", [("same", "Relu")]))


def test_what_comes_from_one_node_on_two_ways_is_told_once(vendors: Any, tmp_path: Path) -> None:
    split = Pass("es.Relu(x)", replacement="es.Exp(-x)").code("A")
    body = "(float[2] x) => (float[2] y) { a = Relu(x) b = Abs(a) y = Add(b, b) }"
    join = Pass("es.Exp(-x)", replacement="es.Sin(es.Cos(x))").code("B")
    vendors.write("acme/p.py", split, join)
    result, _ = vendors.host().run(parse(f'<ir_version: 8, opset_import: ["": 17]> g {body}'))
    onnx.save(result, tmp_path / "m.onnx")
    (ancestry,) = blame(tmp_path / "m.onnx", "a")
    assert [ancestor.node for ancestor in ancestry.ancestors] == [
        "B_Sin_0",
        "A_Exp_0",
        "A_Neg_0",
        "a",
    ]


def test_a_history_that_grows_too_long_is_cut_and_says_so(
    vendors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_MOST_STEPS", 3)
    vendors.write(
        "acme/p.py",
        vendors.swap("P", "Relu", "Abs"),
        vendors.swap("Q", "Abs", "Exp"),
        vendors.swap("R", "Exp", "Sin"),
    )
    vendors.write("acme/q.py", vendors.swap("S", "Sin", "Cos"), vendors.swap("T", "Cos", "Tan"))
    model = parse(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    result, _ = vendors.host().run(model)
    onnx.save(result, tmp_path / "m.onnx")
    (ancestry,) = blame(tmp_path / "m.onnx", "y")
    assert [(ancestor.pass_name, ancestor.cut) for ancestor in ancestry.ancestors] == [
        ("T", False),
        ("S", True),
        ("", False),
    ]
    assert ancestry.origins == ["y"]


STEP = '["n", "Relu", "P", "", [["a", "Exp"]], false]'
FOREIGN = [
    *(
        "{broken",
        "[" * 100_000,
        "7",
        "null",
        "{}",
        "[]",
        "[7]",
        "[[7]]",
        "[[]]",
        "[[0]]",
        '[[["a"]]]',
        '[[["a", 7]]]',
    ),
    *(f"[{STEP}, {sources}]" for sources in ("[-1]", "[1]", "[true]", "[[0]]", "0", "{}")),
    *(
        f"[{STEP.replace(old, new)}, [0]]"
        for old, new in ((", false", ""), ('"P"', "7"), ('[["a", "Exp"]]', "[0]"))
    ),
]


@pytest.mark.parametrize("text", FOREIGN, ids=lambda text: text[:60])
def test_a_history_that_gehost_did_not_write_is_as_none(
    vendors: Any, tmp_path: Path, text: str
) -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { [n] y = Relu(x) }'
    )
    for key, value in (
        ("gehost.pass", "Old"),
        ("gehost.history", text),
        ("gehost.origin_nodes", '["a"]'),
    ):
        model.graph.node[0].metadata_props.add(key=key, value=value)
    onnx.save(model, tmp_path / "m.onnx")
    assert tree(blame(tmp_path / "m.onnx", "n")[0]) == ("n", "Old", "", [("a", "")])
    vendors.write("acme/p.py", vendors.swap("P", "Relu", "Abs"))
    vendors.host().compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert tree(blame(tmp_path / "out.onnx", "y")[0]) == (
        "P_Abs_0",
        "P",
        "acme",
        [("n", "Old", "", [("a", "")])],
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("produkt", 'there is no node "produkt"; did you mean product'),
        ("x", '"x" is an input of graph "g"; no node makes it'),
        ("k", '"k" is a constant; the origin of constants is not recorded'),
        ("inside", '"inside" is in the body of function acme::Twice; ask for a node that calls it'),
    ],
)
def test_a_name_that_is_no_nodes_is_told_apart(tmp_path: Path, name: str, reason: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "acme": 1]>
    g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { [product] p = Mul(x, k) y = acme.Twice(p) }
    <domain: "acme", opset_import: ["": 17]> Twice (a) => (b) { [inside] b = Add(a, a) }"""
    onnx.save(parse(text), tmp_path / "m.onnx")
    with pytest.raises(UsageError) as caught:
        blame(tmp_path / "m.onnx", name)
    assert reason in str(caught.value)


LIMITS = [
    "no note: an original node, or added by a hook; direct edits by a pass or hook are not recorded",
    "not recorded: equal nodes merged by the clean-up, constants it computed and nodes it removed",
]


def test_the_command_prints_a_tree_or_json(
    compiled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["blame", compiled, "P3_Min_0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        'Min "P3_Min_0", made by P3 (six) from',
        '├── Gemm "P2_Gemm_0", made by P2 (two) from',
        '│   ├── Gemm "P1_Gemm_0", made by P1 (one) from',
        '│   │   ├── MatMul "product", no note',
        '│   │   └── Add "sum", no note',
        '│   └── Relu "relu", no note',
        '├── Max "P2_Max_0", made by P2 (two) from',
        '│   ├── Gemm "P1_Gemm_0": see above',
        '│   └── Relu "relu": see above',
        '└── Neg "minus", no note',
        *LIMITS,
    ]
    assert run(["blame", compiled, "other", "--json"]) == 0
    (message,) = json.loads(capsys.readouterr().out)
    assert (message["origins"], message["ancestors"][0]["op"]) == (["other"], "Abs")


def test_of_a_constant_node_nothing_is_claimed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '<ir_version: 3, opset_import: ["": 9]> g (float[2] x) => (float[2] y) { k = Constant <value = float {1}> () y = Add(x, k) }'
    onnx.save(parse(text), here / "m.onnx")
    assert run(["blame", "m.onnx", "k"]) == 0
    assert capsys.readouterr().out.startswith('Constant "k", without a record: ')
    assert run(["blame", "m.onnx", "y"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        'Add "y", no note',
        *LIMITS,
    ]


RAW = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Raw(FusionBasePass):
    def Run(self, graph, context):
        for node in graph.nodes_of("Relu"):
            made = graph.add_node("Abs", [node.inputs[0]], ["made"], name="by_hand", after=node)
            graph.redirect(node.outputs[0], made.outputs[0])
            graph.remove_node(node)
"""


def test_a_node_that_a_pass_made_by_hand_is_not_called_original(
    here: Path, vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendors.write("acme/p.py", RAW)
    model = parse(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
    )
    onnx.save(vendors.host().run(model)[0], here / "m.onnx")
    assert run(["blame", "m.onnx", "by_hand"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        'Abs "by_hand", made by Raw (acme) directly, from unknown nodes',
        LIMITS[-1],
    ]


def test_the_body_and_the_operator_that_a_node_stands_for_are_told_before_the_pass(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = Ancestor("n", "Relu_1", "P", "acme", (1,))
    print_ancestries([Ancestry("t", "acme::Relu", (result, Ancestor("a", "Exp")))])
    assert capsys.readouterr().out.splitlines()[:2] == [
        'Relu_1 "n", stands for acme::Relu, in graph "t", made by P (acme) from',
        '└── Exp "a", no note',
    ]


def test_the_command_fails_in_one_line(
    compiled: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["blame", compiled, "nobody"]) == 2
    assert run(["blame", compiled, ""]) == 2
    (tmp_path / "text.onnx").write_text("no model")
    assert run(["blame", str(tmp_path / "text.onnx"), "nobody"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 3
