"""Directories of vendors that tests write, short passes to put into them, and a model's index in plain values."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import onnx
import pytest

import gehost
from gehost import Host, HostOptions
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.kernels import release
from gehost.testing import parse
from tests.everyday import SHARES
from tests.pinned import NEWER, PINNED

PACKAGE = Path(gehost.__file__).parent
_OPSET_IS_TOO_NEW = re.compile(
    r"support for domain ai\.onnx is till opset|Unsupported opset-version|Unsupported model IR version"
)
_KERNEL_IS_MISSING = re.compile(r"NOT_IMPLEMENTED : Could not find an implementation")


MACHINE_CODE = sorted(PACKAGE.rglob("*.so"))


def pytest_sessionstart() -> None:
    """Refuse machine code that is older than its source, and a .venv older than pyproject.toml."""
    installed = Path(sys.prefix, "installed")
    project = Path(__file__).parents[1] / "pyproject.toml"
    if installed.exists() and installed.stat().st_mtime < project.stat().st_mtime:
        pytest.exit("pyproject.toml is newer than .venv: make .venv/installed", 2)
    in_place = PACKAGE.parent == project.parent
    for file in MACHINE_CODE if in_place else ():
        source = file.with_name(f"{file.name.partition('.')[0]}.py")
        if not source.exists() or source.stat().st_mtime > file.stat().st_mtime:
            pytest.exit(
                f"{source} is newer than what was compiled of it: make compiled, or make interpreted",
                2,
            )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that only ``make nightly`` runs, and those of the pinned versions."""
    cases: Counter[str] = Counter()
    older = release(onnx.__version__) < release("1.23.2") or is_older("1.31.1")
    newer = not is_older("1.31.2")
    for item in items:
        file, _, rest = item.nodeid.partition("::")
        test, _, case = rest.removesuffix("]").partition("[")
        share = SHARES.get(file, {}).get(test, 1)
        if isinstance(share, tuple):
            is_everyday = case in share
        else:
            is_everyday = share > 0 and cases[item.nodeid.partition("[")[0]] % share == 0
        if not is_everyday:
            item.add_marker(pytest.mark.nightly)
        cases[item.nodeid.partition("[")[0]] += 1
        for skipped, reasons in ((older, PINNED.get(file, {})), (newer, NEWER.get(file, {}))):
            if reason := reasons.get(test) or reasons.get(f"{test}[{case}]"):
                item.add_marker(pytest.mark.skipif(skipped, reason=reason))


class OlderVersions:
    """A hook for the tests of all folders; one of this file is called for those of ``tests`` alone."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Skip tests of what an older onnx or ONNX Runtime (``tools/versions.sh``) lacks.

        A kernel that a shipped pass writes is no such thing: the file names the runtime that it
        needs.
        """
        try:
            return (yield)
        except Exception as error:
            texts = [str(one) for one in _chain(error)] if is_older("1.31.1") else []
            if any(map(_OPSET_IS_TOO_NEW.search, texts)):
                pytest.skip(f"onnx {onnx.__version__}, or its ONNX Runtime, has no such opset")
            if any(map(_KERNEL_IS_MISSING.search, texts)) and "vendors" not in item.path.parts:
                pytest.skip("this ONNX Runtime lacks a kernel")
            raise


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OlderVersions())


def is_older(version: str) -> bool:
    """Whether the installed ONNX Runtime, under whichever name it came, is older."""
    runtime = sys.modules.get("onnxruntime")
    return runtime is not None and release(runtime.__version__) < release(version)


def _chain(error: BaseException | None) -> Generator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def pytest_collection_finish() -> None:
    """Python's collector need not walk the tests and modules, half a million objects, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Generator[None]:
    """Replace ``os.fsync``, which waits for the disk, by a call that fails for the same arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def interpreted() -> None:
    """For what machine code does not do: look up a method that a test has put in place of another, end in RecursionError."""
    if MACHINE_CODE:
        pytest.skip("gehost is compiled")


CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    y = Neg(a)
}"""
"""What stands in ``m.onnx``."""

_SWAP = """
{registration}
class {name}(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("{name}")
        return [Pattern(builder.BuildAndReset([es.{old}(builder.CreateInput(0))]))]

    def MeetRequirements(self, match):
        {meet}

    def Replacement(self, match):
        builder = EsGraphBuilder("{name}")
        return builder.BuildAndReset([es.{new}(builder.CreateInput(0))])
"""


@dataclass(frozen=True)
class Vendors:
    """A directory of vendors below ``root``."""

    root: Path

    def write(self, path: str, *code: str) -> Path:
        """Write ``<vendor>/<file>`` into the vendor's passes, after the import of everything that authors use."""
        vendor, _, name = path.partition("/")
        return self.write_raw(
            f"{vendor}/custom_fusion_passes/{name}",
            "from gehost import *\n" + "".join(map(dedent, code)),
        )

    def write_raw(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    @staticmethod
    def swap(
        name: str,
        old: str,
        new: str,
        registration: str = "@REG_FUSION_PASS(stage={stage})",
        stage: str = "",
        meet: str = "return True",
    ) -> str:
        """The code of a pass that replaces one unary operator by another."""
        stage = f"CustomPassStage.{stage or 'kAfterInferShape'}"
        return _SWAP.format(
            name=name, old=old, new=new, meet=meet, registration=registration.format(stage=stage)
        )

    def host(self, plugins: Any = (), **options: Any) -> Host:
        """A host of these vendors alone, without installed plugins and without clean-up."""
        return Host(
            HostOptions(**{"vendors": [self.root], "plugins": False, "cleanup": False, **options}),
            plugins=plugins,
        )


@pytest.fixture
def vendors(tmp_path: Path) -> Vendors:
    root = tmp_path / "vendors"
    root.mkdir()
    return Vendors(root)


class Described:
    """A model's index in plain values, so that two of them can be compared; with ``types``, what is known of them too."""

    def __call__(self, model: Model, *, types: bool = True) -> list[Any]:
        self._places: dict[Node | Graph, tuple[int, int]] = {}
        graphs = list(model.graphs)
        for number, graph in enumerate(graphs):
            self._places[graph] = (number, -1)
            self._places.update({node: (number, place) for place, node in enumerate(graph.nodes)})
        return [self._graph(graph, types) for graph in graphs]

    def fresh(self, model: Model, *, types: bool = True) -> list[Any]:
        """The index of what ``model`` would be saved as."""
        copy = onnx.ModelProto()
        copy.CopyFrom(model.flush())
        return self(Model(copy), types=types)

    def _graph(self, graph: Graph, types: bool) -> dict[str, Any]:
        nodes = list(graph.nodes)
        backwards: list[Node] = []
        node = graph.tail
        while node is not None:
            backwards.append(node)
            node = node.prev
        assert backwards == nodes[::-1]
        assert all(a.order < b.order for a, b in pairwise(nodes))
        assert len(graph) == len(nodes)
        return {
            "nodes": [self._node(node) for node in nodes],
            "by_op": {
                op: sorted(self._places[node] for node in actual)
                for op, actual in graph.by_op.items()
                if actual
            },
            "values": {
                name: self._value(value, types) for name, value in sorted(graph.values.items())
            },
            "inputs": [value.name for value in graph.inputs],
            "outputs": [(value.name, self._places[value.graph]) for value in graph.outputs],
            "owner": None if graph.owner is None else self._places[graph.owner],
            "depth": graph.depth,
        }

    def _node(self, node: Node) -> dict[str, Any]:
        return {
            "op": node.op,
            "name": node.name,
            "inputs": [None if v is None else (v.name, self._places[v.graph]) for v in node.inputs],
            "outputs": [None if v is None else v.name for v in node.outputs],
            "bodies": [self._places[body] for body in node.bodies],
            # What was added to a body stays in its protobuf until the model is written.
            "proto": None if node.bodies else node.proto.SerializeToString(deterministic=True),
            "attributes": None if node.bodies else node.attrs.serialized(),
        }

    def _value(self, value: Value, types: bool) -> dict[str, Any]:
        producer = value.producer
        return {
            "producer": None if producer is None else (self._places[producer], value.index),
            "input": value.is_input,
            "initializer": None
            if value.initializer is None
            else value.initializer.SerializeToString(deterministic=True),
            "uses": sorted((self._places[reader], slot) for reader, slot in value.uses),
            "constant": value.is_constant,
            "type": str(value.type) if types else "",
        }


@pytest.fixture
def describe() -> Described:
    return Described()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own, with a model in it and nothing said by the environment."""
    for name in ("GEHOST_VENDORS", "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(CHAIN), "m.onnx")
    return tmp_path


@pytest.fixture(autouse=True)
def no_default_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run without vendors unless a test gives some; tests of the default override this."""
    monkeypatch.setattr("gehost.options.shipped_vendors", lambda _group: [])
