"""Test helpers for pass authors; gehost's own tests use the same.

Models are ONNX text (``onnx.parser``); passes are classes, or names of passes below ``vendors``,
a directory or several.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx.parser

from gehost.host.ge_style import pass_spec
from gehost.host.host import Host
from gehost.host.registry import PassSpec
from gehost.host.report import Report
from gehost.host.vendors import vendor_directories
from gehost.ir.graph import Graph, Value
from gehost.ir.model import Model
from gehost.location import SourceLocation
from gehost.options import HostOptions
from gehost.passes.base import FusionBasePass
from gehost.passes.context import PassRecord
from gehost.passes.registration import PassRegistration, mark_of
from gehost.settings import NO_OPTIONS
from gehost.spelling import counted
from gehost.stages import CustomPassStage

if TYPE_CHECKING:
    from gehost.diagnose.check_pass.verdict import PassCheck

PassClass: TypeAlias = type[FusionBasePass]
Vendors: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A directory of vendors, or several."""
PluginList: TypeAlias = Sequence[tuple[str, Any]]
"""Plugins by name, for vendor files in other styles: ``[("drr", gehost_drr)]``."""
Array: TypeAlias = np.ndarray[Any, Any]
_Contents: TypeAlias = tuple[tuple[str, int, int], ...]
"""Files of vendors: path, time of the last change in ns, size in bytes."""


def parse(text: str, weights: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """Parse a model of ONNX text.

    ``weights`` become initializers; the text may declare them as graph inputs.
    """
    model = onnx.parser.parse_model(text)
    for name, array in (weights or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        for position, entry in enumerate(model.graph.input):
            if entry.name == name:
                del model.graph.input[position]
                break
    onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType] - onnx leaves PathLike's parameter open
    return model


def graph_of(text: str, weights: Mapping[str, Array] | None = None) -> Graph:
    """Return the graph of ONNX text, for matchers and ``Graph`` methods."""
    return Model(parse(text, weights)).graph


def run_pass(
    model: str | onnx.ModelProto,
    pass_: PassClass | str,
    *,
    vendors: Vendors | None = None,
    plugins: PluginList | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
    cleanup: bool = False,
) -> tuple[onnx.ModelProto, PassRecord]:
    """Compile with one pass alone; return the result and its record.

    Vendors and plugins are loaded once for all calls, and again when a file of the vendors changes.

    Args:
        pass_: a marked class, or the name of a pass below ``vendors``.
        vendors: a directory of vendors, or several; their operators are available to the pass.
        plugins: collect passes of other styles from it; default: the installed plugins.
        settings: options of the pass, by ``PASS.option``.
        cleanup: run the built-in clean-up as well.
    """
    proto = parse(model) if isinstance(model, str) else model
    host = _host(pass_, vendors, plugins, settings, cleanup=cleanup)
    result, report = host.run(proto)
    name = pass_ if isinstance(pass_, str) else _spec(pass_).name
    return result, next(record for record in report.passes if record.name == name)


def assert_rewrites(
    model: str | onnx.ModelProto,
    pass_: PassClass | str,
    expected: str | onnx.ModelProto,
    count: int = 1,
    *,
    vendors: Vendors | None = None,
    plugins: PluginList | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
) -> onnx.ModelProto:
    """Assert that the pass turns ``model`` into ``expected`` by ``count`` rewrites.

    Names of new nodes and tensors may differ.
    """
    result, record = run_pass(model, pass_, vendors=vendors, plugins=plugins, settings=settings)
    assert record.replaced == count, f"wanted {counted(count, 'rewrite')}, got {_done(record)}"
    target = parse(expected) if isinstance(expected, str) else expected
    difference = _difference(Model(_copy(target)).graph, Model(_copy(result)).graph)
    assert not difference, f"{difference}\n{onnx.printer.to_text(result)}"
    _, again = run_pass(result, pass_, vendors=vendors, plugins=plugins, settings=settings)
    assert again.replaced == 0, f"a second run rewrites again, {again.replaced} times"
    return result


def assert_refuses(
    model: str | onnx.ModelProto,
    pass_: PassClass | str,
    reason: str | None = None,
    *,
    vendors: Vendors | None = None,
    plugins: PluginList | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
) -> PassRecord:
    """Assert that the pass does not change ``model``.

    ``reason`` is the key of a refused match; with None there must be no match.
    """
    _, record = run_pass(model, pass_, vendors=vendors, plugins=plugins, settings=settings)
    assert record.replaced == 0, f"wanted no rewrite, got {_done(record)}"
    if reason is None:
        assert record.matched == 0, f"wanted no match, got {record.matched} and {_done(record)}"
    elif record.status == "not applicable":
        assert reason in record.message, f'wanted "{reason}", got "{record.message}"'
    else:
        assert reason in record.rejected, f'wanted "{reason}", got {_done(record)}'
    return record


def assert_equal_numbers(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Sequence[Mapping[str, Array]] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Assert that models give the same numbers on ``feeds`` or seeded ones."""
    from gehost.verify import compare

    result = compare(before, after, feeds, rtol=rtol, atol=atol)
    assert result.equal, result.summary()


def assert_fuses(
    model: str | onnx.ModelProto,
    pass_: PassClass | str,
    count: int | None = 1,
    *,
    vendors: Vendors | None = None,
    plugins: PluginList | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
) -> onnx.ModelProto:
    """Assert that the pass rewrites ``count`` times; None: at least once.

    It keeps the numbers and is stable. Returns the result, without clean-up: constants that
    nothing reads any more are still there.

    Stable: a second run changes nothing.
    """
    proto = parse(model) if isinstance(model, str) else model
    result, record = run_pass(proto, pass_, vendors=vendors, plugins=plugins, settings=settings)
    expected = "any rewrite" if count is None else counted(count, "rewrite")
    as_wanted = record.replaced > 0 if count is None else record.replaced == count
    assert as_wanted, f"wanted {expected}, got {_done(record)}"
    assert_equal_numbers(proto, result)
    _, again = run_pass(result, pass_, vendors=vendors, plugins=plugins, settings=settings)
    assert again.replaced == 0, f"a second run rewrites again, {again.replaced} times"
    return result


def check_pass(
    pass_: PassClass | str,
    *,
    vendors: Vendors | None = None,
    plugins: PluginList | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
    seed: int = 0,
    instances: int = 4,
    mutations: int = 20,
) -> PassCheck:
    """Assert that the pass fires and keeps the numbers.

    It runs on random instances of its own pattern, and on mutated ones.

    Does the same as ``gehost check-pass``, with fewer instances; returns the result.

    Args:
        pass_: a marked class, or the name of a pass below ``vendors``.
        vendors: a directory of vendors, or several; their operators are available to the pass.
        plugins: collect passes of other styles from it; default: the installed plugins.
        settings: options of the pass, by ``PASS.option``.
        seed: of the random instances.
        instances: their number; at least one for each pattern.
        mutations: largest number of mutations of each instance.

    Raises:
        AssertionError: a line for each kind of error, or that the pass has no pattern.
    """
    from gehost.diagnose.check_pass import run as checks
    from gehost.diagnose.check_pass.trial import Trial

    host = _host(pass_, vendors, plugins, settings, cleanup=False)
    spec = host.passes.get(pass_ if isinstance(pass_, str) else _spec(pass_).name)
    assert spec is not None
    result = checks.check_pass(
        Trial(host, spec), seed=seed, instances=instances, mutations=mutations
    )
    assert result.ok and result.instances, "\n".join(result.lines())  # noqa: PT018 - one message for both
    return result


def _done(record: PassRecord) -> str:
    return f"{record.replaced}; refused: {dict(record.rejected)} {record.message}".rstrip()


def random_weights(
    shapes: Mapping[str, Sequence[int]], seed: int = 0, dtype: Any = np.float32
) -> dict[str, Array]:
    """Return seeded, distinct weights, which show wrong packing or a lost bias."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal(tuple(shape)).astype(dtype)
        for name, shape in shapes.items()
    }


def report_of(
    model: str | onnx.ModelProto, vendors: Vendors, **options: Any
) -> tuple[onnx.ModelProto, Report]:
    """Compile with all passes below vendors; return model and report."""
    proto = parse(model) if isinstance(model, str) else model
    return Host(HostOptions(vendors=_roots(vendors), plugins=False, **options)).run(proto)


# -- one pass alone
# -------------------------------------------------------------------------------------------------


def _host(
    pass_: PassClass | str,
    vendors: Vendors | None,
    plugins: PluginList | None,
    settings: Mapping[str, Any],
    *,
    cleanup: bool,
) -> Host:
    roots = _roots(vendors)
    argument = None if plugins is None else tuple(plugins)
    if all(isinstance(plugin, ModuleType) for _, plugin in argument or ()):
        host = _loaded(roots, _contents(roots), argument)
    else:
        host = Host(HostOptions(vendors=roots, plugins=argument is None), argument or ())
    names = host.passes.names()
    if isinstance(pass_, str):
        listing = f"no pass {pass_} below {', '.join(roots)}; there are {', '.join(names)}"
        assert pass_ in names, listing
        others = [name for name in names if name != pass_]
        return host.with_options(enable=[pass_], disable=others, settings=settings, cleanup=cleanup)
    operators = vars(sys.modules[pass_.__module__])
    return host.with_pass_alone(_spec(pass_), operators, settings=settings, cleanup=cleanup)


def _roots(vendors: Vendors | None) -> tuple[str, ...]:
    if vendors is None:
        return ()
    if isinstance(vendors, str | os.PathLike):
        return (os.fspath(vendors),)
    return tuple(os.fspath(root) for root in vendors)


@lru_cache(maxsize=8)
def _loaded(
    roots: tuple[str, ...],
    contents: _Contents,  # noqa: ARG001 - changed files are loaded again
    plugins: tuple[tuple[str, ModuleType], ...] | None,
) -> Host:
    """Load vendors and plugins once for all calls; None: installed plugins."""
    return Host(HostOptions(vendors=roots, plugins=plugins is None), plugins or ())


def _contents(roots: tuple[str, ...]) -> _Contents:
    """Return what changes when a file of the vendors does."""
    files = (
        file
        for root in roots
        for directory in vendor_directories(root, [])
        for file in sorted(directory.rglob("*.py"))
        if file.exists()  # a broken link is reported where it is loaded
    )
    return tuple((os.fspath(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def _spec(cls: PassClass) -> PassSpec:
    try:
        file = inspect.getfile(cls)
    except (OSError, TypeError):  # a class of a notebook or an interactive session
        file = "<interactive>"
    unmarked = PassRegistration(
        cls.__name__,
        CustomPassStage.kAfterInferShape,
        cls.__module__,
        SourceLocation(file, 1),
    )
    return pass_spec(cls, mark_of(cls) or unmarked)


# -- comparing graphs up to names
# -----------------------------------------------------------------------------------


def _difference(expected: Graph, actual: Graph) -> str:
    """Return how two graphs differ.

    Names of nodes and of inner tensors do not count.
    """
    for what, a, b in (
        ("inputs", expected.inputs, actual.inputs),
        ("outputs", expected.outputs, actual.outputs),
    ):
        names = [value.name for value in a], [value.name for value in b]
        if names[0] != names[1]:
            return f"{what}: wanted {names[0]}, got {names[1]}"
    same: dict[Value, Value] = {}
    pairs = list(zip(expected.outputs, actual.outputs, strict=True))[::-1]
    while pairs:
        a, b = pairs.pop()
        if a in same:
            if same[a] is not b:
                return f'"{a.name}": wanted one tensor in two places, got another at "{b.name}"'
            continue
        same[a] = b
        difference = _value_difference(a, b)
        if difference:
            return difference
        if a.producer is not None and b.producer is not None:
            operands = list(zip(a.producer.inputs, b.producer.inputs, strict=True))
            pairs.extend(
                (left, right)
                for left, right in reversed(operands)
                if left is not None and right is not None
            )
    counts = (
        {op: len(nodes) for op, nodes in expected.by_op.items() if nodes},
        {op: len(n) for op, n in actual.by_op.items() if n},
    )
    return "" if counts[0] == counts[1] else f"nodes: wanted {counts[0]}, got {counts[1]}"


def _value_difference(a: Value, b: Value) -> str:
    """Return how two tensors and their producers differ.

    Inputs of producers are not compared.
    """
    if a.is_constant and b.is_constant:
        equal = np.array_equal(a.numpy(), b.numpy()) and a.numpy().dtype == b.numpy().dtype
        return "" if equal else f'constant "{a.name}": wanted {a.numpy()!r}, got {b.numpy()!r}'
    node, other = a.producer, b.producer
    if node is None or other is None or a.is_constant or b.is_constant:
        same = node is other and a.name == b.name and a.is_constant == b.is_constant
        return "" if same else f'"{a.name}": wanted {_kind(a)}, got {_kind(b)}'
    if node.op != other.op or a.index != b.index or len(node.inputs) != len(other.inputs):
        return (
            f'"{a.name}": wanted {node.op} of {len(node.inputs)} inputs, got {other.op} of '
            f"{len(other.inputs)}"
        )
    if node.attrs.serialized() != other.attrs.serialized():
        return f'attributes of {node.op} at "{a.name}": wanted {node.attrs}, got {other.attrs}'
    for left, right in zip(node.inputs, other.inputs, strict=True):
        if (left is None) != (right is None):
            return f'"{a.name}": an input of {node.op} is absent on one side'
    return ""


def _kind(value: Value) -> str:
    if value.is_constant:
        return f'constant "{value.name}"'
    return (
        f'input "{value.name}"' if value.producer is None else f"the result of {value.producer.op}"
    )


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
