"""Every model of ``tests/models`` through the whole host with the vendors of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.external_data_helper
import pytest
from onnx.reference import ReferenceEvaluator

from gehost import Host, HostOptions
from gehost.verify import Runner, compare, compare_outputs, load_feeds
from tests.host.test_recompile import assert_final
from tests.shipped import EXAMPLES

ROOT = Path(__file__).parents[1]
VENDORS = ROOT / "vendors"
MODELS = ROOT / "tests" / "models"
FUSED = ("LayerNormalization", "Gelu", "RMSNormalization")
COUNTS = {
    **{
        f"{family}.{exporter}": (5, 2, 0)
        for family in ("bert", "gpt2", "vit")
        for exporter in ("ts13", "ts17", "dyn20")
    },
    "bert.raw18": (5, 2, 0),
    "llama.ts17": (0, 0, 5),
    **dict.fromkeys(
        ("convnet.ts17", "external", "if", "ir3", "local_function", "loop", "scan"), (0, 0, 0)
    ),
}
"""How many of ``FUSED``, in any domain, each compiled model holds."""

NAMES = sorted(COUNTS)
Place = tuple[str, ...]


@pytest.fixture(scope="module")
def shipped() -> Host:
    return Host(HostOptions(vendors=[VENDORS]))


def test_the_examples_alone_are_off_by_default(shipped: Host) -> None:
    ours = [
        spec
        for spec in shipped.passes
        if spec.origin.startswith(str(VENDORS)) and spec.vendor != "onnxruntime"
    ]
    off = sorted(spec.name for spec in ours if not spec.default)
    # ONNX Runtime's kernels of the first two refuse an empty batch; optimize turns Split on; the
    # last would take attention from ONNX Runtime's kernels
    others = (
        "AttentionOperatorPass",
        "GroupNormalizationPass",
        "SlicesToSplitPass",
        "multihead_matmul_fuse_pass",
    )
    newer = ("FlashAttentionFusionPass", "SwiGLUFusionPass")
    assert off == sorted((*EXAMPLES, *newer, *others))


def test_no_model_is_forgotten() -> None:
    assert sorted(path.name.removesuffix(".onnx") for path in MODELS.glob("*.onnx")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_numbers_interface_and_fusions(name: str, shipped: Host, tmp_path: Path) -> None:
    source, output = MODELS / f"{name}.onnx", tmp_path / f"{name}.onnx"
    report = shipped.with_options(enable=EXAMPLES).compile(source, output)
    assert report.problems == []
    assert [record.name for record in report.passes if record.status == "failed"] == []

    feeds = [load_feeds(path) for path in sorted((MODELS / "feeds").glob(f"{name}.*.npz"))]
    assert len(feeds) == 2
    result = compare(source, output, feeds, rtol=1e-3, atol=1e-4)
    assert result.equal, result.summary()
    assert result.engine == "onnxruntime"
    telling = {difference.output for difference in result.outputs if difference.telling}

    before, after = (
        onnx.load(source, load_external_data=False),
        onnx.load(output, load_external_data=False),
    )
    assert telling == {entry.name for entry in before.graph.output}
    assert list(before.graph.input) == list(after.graph.input)
    assert list(before.graph.output) == list(after.graph.output)
    assert (before.ir_version, list(before.opset_import)) == (
        after.ir_version,
        list(after.opset_import)[: len(before.opset_import)],
    )
    onnx.checker.check_model(output)
    types = Counter(node.op_type for _, node in nodes(after))
    assert tuple(types[op] for op in FUSED) == COUNTS[name]


def nodes(model: onnx.ModelProto) -> Iterator[tuple[Place, onnx.NodeProto]]:
    """Every node with its place: the first outputs of the nodes in whose bodies it is, and which body, then its own."""

    def walk(graph: onnx.GraphProto, path: Place) -> Iterator[tuple[Place, onnx.NodeProto]]:
        for node in graph.node:
            place = (*path, next(filter(None, node.output)))
            yield place, node
            for attribute in node.attribute:
                for number, body in enumerate(
                    [attribute.g] if attribute.HasField("g") else attribute.graphs
                ):
                    yield from walk(body, (*place, f"{attribute.name} {number}"))

    return walk(model.graph, ())


def without_bodies(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node, the content of its bodies cut out: nodes there are compared by themselves."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for field in ("node", "initializer", "value_info"):
                body.ClearField(field)
    return copy


def is_new(node: onnx.NodeProto) -> bool:
    return any(entry.key == "gehost.pass" for entry in node.metadata_props)


def label(node: onnx.NodeProto) -> str:
    return node.name or next(filter(None, node.output))


def loaded(path: Path) -> onnx.ModelProto:
    """The model with its weights in it; in which file they were is not content."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    return model


def check_untouched(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Each node that no pass made has the bytes that it came with.

    Where it reads another tensor than before, the one that it read is gone (or is a graph output, which keeps its name), and
    all but that input is as it was, and ``allowzero`` of a Reshape whose target is a constant now.
    """
    originals = dict(nodes(before))
    defined = {place[-1] for place, _ in nodes(after)} | {
        entry.name for entry in (*after.graph.input, *after.graph.initializer)
    }
    rest = {entry.name for entry in before.graph.output}
    inputs = {entry.name for entry in before.graph.input}
    for place, node in nodes(after):
        if is_new(node):
            continue
        if place not in originals:
            # the clean-up reads a size from an input of the model
            is_size = place[-1].startswith("cleanup_Shape") and node.op_type == "Shape"
            assert is_size, f"{node.op_type} {place} came from nowhere"
            assert node.input[0] in inputs
            continue
        original, now = without_bodies(originals[place]), without_bodies(node)
        if now.op_type == "Reshape" and now.input[1].startswith("cleanup_shape"):
            continue  # of two nodes that only give another shape
        assert len(original.input) == len(now.input)
        for slot, (old, new) in enumerate(zip(original.input, now.input, strict=True)):
            if old != new:
                assert old in rest or old not in defined, (
                    f"{node.op_type} {place} reads {new} in place of {old}, which is there"
                )
                now.input[slot] = old
        assert now.SerializeToString(deterministic=True) == original.SerializeToString(
            deterministic=True
        ), place


@pytest.mark.parametrize("cleanup", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_nodes_that_no_pass_touched_are_equal_byte_by_byte(
    name: str, cleanup: bool, shipped: Host, tmp_path: Path
) -> None:
    source, output = MODELS / f"{name}.onnx", tmp_path / f"{name}.onnx"
    shipped.with_options(enable=EXAMPLES, cleanup=cleanup).compile(source, output)
    before, after = (
        onnx.load(source, load_external_data=False),
        onnx.load(output, load_external_data=False),
    )
    check_untouched(before, after)
    assert list(before.functions) == list(after.functions)[: len(before.functions)]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_gone_is_accounted_for(name: str, shipped: Host, tmp_path: Path) -> None:
    """By the fusions of ``vendors/onnx`` alone: each node is there still, with the same inputs, or in a new node's provenance."""
    source, output = MODELS / f"{name}.onnx", tmp_path / f"{name}.onnx"
    others = [spec.name for spec in shipped.passes if spec.vendor != "onnx"]
    others += ["AddZeroPass", "FoldIntoConvPass", "FoldIntoMatMulPass"]  # no fusions: weights
    report = shipped.with_options(cleanup=False, disable=others).compile(source, output)
    before, after = loaded(source), loaded(output)
    originals, results = dict(nodes(before)), dict(nodes(after))

    new = {place: node for place, node in results.items() if is_new(node)}
    old = {place: node for place, node in results.items() if place not in new}
    assert {place: without_bodies(node) for place, node in old.items()} == {
        place: without_bodies(originals[place]) for place in old
    }
    assert [place for place in originals if place in old] == list(old), (
        "the order of what stays has changed"
    )

    gone = Counter(label(node) for place, node in originals.items() if place not in old)
    origins: Counter[str] = Counter()
    for node in new.values():
        origins.update(
            json.loads(
                next(
                    entry.value
                    for entry in node.metadata_props
                    if entry.key == "gehost.origin_nodes"
                )
            )
        )
    assert gone == origins
    assert len(new) == sum(record.replaced for record in report.passes)
    assert list(after.graph.initializer) == list(before.graph.initializer)


@pytest.mark.parametrize("name", NAMES)
def test_without_vendors_and_cleanup_nothing_changes(name: str, tmp_path: Path) -> None:
    source, output = MODELS / f"{name}.onnx", tmp_path / f"{name}.onnx"
    Host(HostOptions(cleanup=False)).compile(source, output)
    assert loaded(output) == loaded(source)


@pytest.mark.parametrize("vendors", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_an_output_compiled_again_is_the_same(
    name: str, vendors: bool, shipped: Host, tmp_path: Path
) -> None:
    host = shipped if vendors else Host()
    host.compile(MODELS / f"{name}.onnx", tmp_path / "once.onnx")
    again = host.compile(tmp_path / "once.onnx", tmp_path / "twice.onnx")
    assert_final(name, again, tmp_path / "once.onnx", tmp_path / "twice.onnx")


GELU_IN_A_BODY = ("bert.dyn20", "vit.dyn20")
"""A function of theirs calls Gelu, whose body depends on types: ONNX's evaluator knows none inside
functions, so these are inlined first.
"""


@pytest.mark.parametrize("name", [name for name in NAMES if name != "local_function"])
def test_onnx_reference_runs_what_is_compiled(name: str, shipped: Host, tmp_path: Path) -> None:
    """With the functions that it carries; the one left out calls one of its own without a default."""
    source, output = MODELS / f"{name}.onnx", tmp_path / f"{name}.onnx"
    shipped.compile(source, output)
    feeds = load_feeds(MODELS / "feeds" / f"{name}.A.npz")
    if name in GELU_IN_A_BODY:
        actual = Runner(output, engine="reference").run(feeds)
    else:
        values = ReferenceEvaluator(loaded(output)).run(None, dict(feeds))
        actual = dict(zip((info.name for info in loaded(output).graph.output), values, strict=True))
    expected = Runner(source).run(feeds)
    result = compare_outputs(expected, actual, rtol=1e-3, atol=1e-4)
    assert all(item.equal for item in result), result


def test_equal_files_from_equal_compiles(tmp_path: Path) -> None:
    """Twice in one process, and in one of another hash seed."""
    for directory in ("one", "two"):
        (tmp_path / directory).mkdir()
        compile_all(tmp_path / directory)
    expected = contents(tmp_path / "one")
    assert len(expected) == len(NAMES) + 1  # the weights of one
    assert contents(tmp_path / "two") == expected
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + COMPILE_ALL
    (tmp_path / "seed").mkdir()
    sources = [str(MODELS / f"{name}.onnx") for name in NAMES]
    process = subprocess.run(
        [sys.executable, "-c", code, str(VENDORS), str(tmp_path / "seed"), *sources],
        env={**os.environ, "PYTHONHASHSEED": "2718"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert contents(tmp_path / "seed") == expected


COMPILE_ALL = """
from pathlib import Path
from gehost import Host, HostOptions
from tests.shipped import EXAMPLES
vendors, directory, *sources = sys.argv[1:]
host = Host(HostOptions(vendors=[vendors], enable=EXAMPLES))
for source in sources:
    host.compile(source, Path(directory, Path(source).name))
"""


def compile_all(directory: Path) -> None:
    host = Host(HostOptions(vendors=[VENDORS], enable=EXAMPLES))
    for name in NAMES:
        host.compile(MODELS / f"{name}.onnx", directory / f"{name}.onnx")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
