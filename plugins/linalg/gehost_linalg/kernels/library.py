"""Build a library for a file's fused nodes, and check it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import onnx

from gehost import (
    Model,
    Node,
    OutputError,
    Refused,
    UsageError,
    infer_model,
    one_line,
    write_bytes_atomic,
)
from gehost_linalg.groups.body import DOMAIN, Body, Signature
from gehost_linalg.groups.derive import derive
from gehost_linalg.kernels import ort
from gehost_linalg.kernels.build import build
from gehost_linalg.kernels.c import Kernel, source
from gehost_linalg.kernels.emit import emit

if TYPE_CHECKING:
    from gehost_linalg.kernels.measure import Gain


class Fused(NamedTuple):
    """The fused nodes of a file.

    Attributes:
        nodes: name of the kernel of each node, in order.
        kernels: one for each name that can be computed.
        left: (name, reason) of those that cannot; their bodies run.
        gains: the measurements, by name.
        over_original: the model with the kernels against its original.
    """

    nodes: list[str]
    kernels: list[Kernel]
    left: list[tuple[str, str]]
    gains: Mapping[str, Gain] = MappingProxyType({})
    over_original: Gain | None = None


def fused(path: str) -> Fused:
    """Read a file and emit a kernel for each fused node.

    A function is taken only if its body gives its name, so that a kernel always computes its body.

    Raises:
        ModelError: the file is no model.
        UsageError: it has no fused node.
    """
    model = Model.load(path)
    infer_model(model)
    functions = {
        function.name: function
        for function in sorted(model.proto.functions, key=lambda item: item.overload)
        if function.domain == DOMAIN
    }
    overloaded = {name for name in functions if functions[name].overload}
    result = Fused([], [], [])
    calls: dict[str, list[Node]] = {}
    for graph in model.graphs:
        for node in graph.nodes:
            if node.op.startswith(f"{DOMAIN}::"):
                name = node.op.partition("::")[2]
                result.nodes.append(name)
                calls.setdefault(name, []).append(node)
    for name, nodes in calls.items():
        try:
            if name.partition(":")[0] in overloaded:
                raise Refused(
                    "not-emitted", "its function has overloads, and a kernel would run for each"
                )
            result.kernels.append(_emitted(nodes, name, functions.get(name), len(result.kernels)))
        except Refused as refused:
            is_ours = refused.refusal.key == "not-emitted"
            result.left.append((name, refused.message if is_ours else str(refused)))
    if not result.nodes:
        raise UsageError(
            f"has no node of {DOMAIN}: compile it with --enable FuseElementwisePass; if it was, "
            "gehost explain --pass FuseElementwisePass says why nothing is fused",
            where=path,
        )
    return result


def _emitted(
    nodes: Sequence[Node], name: str, function: onnx.FunctionProto | None, number: int
) -> Kernel:
    """The kernel of a function, for all nodes that call it."""
    if function is None:
        raise Refused("not-emitted", "the file has no function of that name")
    try:
        body = Body.of_function(function)
        groups = {
            signature: derive(body, signature)
            for signature in dict.fromkeys([_signature(node, body) for node in nodes])
        }
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError) as error:
        raise Refused("not-emitted", f"its function cannot be read: {error}") from error
    for group in groups.values():
        if group.name != name:
            raise Refused(
                "not-emitted",
                f"its function computes {group.name}; the file was changed after the compile "
                "(types, ranks and sizes of 1 count, too): compile the model again",
            )
    return emit(next(iter(groups.values())), body, number)


def _signature(node: Node, body: Body) -> tuple[Signature, ...]:
    results: list[Signature] = []
    for value in node.inputs:
        entry = Signature.of(value.type) if value is not None else None
        if entry is None:
            raise Refused(
                "not-emitted",
                f'the type of input "{value.name if value is not None else ""}" is not known',
            )
        results.append(entry)
    if len(results) != body.inputs or len(node.outputs) != len(body.outputs):
        raise Refused("not-emitted", "the node has not the inputs and outputs of its function")
    return tuple(results)


def write_library(
    path: str,
    output: str,
    *,
    cc: str | None = None,
    march: str = "native",
    emit_c: str | None = None,
    measure: str | None = None,
    original: str | None = None,
    switch_file: str | None = None,
) -> Fused:
    """Build the library of a file's fused nodes.

    Args:
        path: the file.
        output: the path of the library.
        cc: a compiler.
        march: the instructions that kernels may use.
        emit_c: where to write the C file, too.
        measure: feeds (``.npz``) on which kernels are timed; only those that gain are kept.
        original: with ``measure``, the model that the file was compiled from; nothing is written
            unless the file with its kernels is faster.
        switch_file: a switch file to which the library is added; see ``gehost.runtime_options``.

    Raises:
        UsageError: there is nothing to build, no compiler, or it fails; no kernel gains, the
            kernels together lose, or do not gain over the original; the switch file is none.
        OutputError: a file cannot be written.
    """
    _check_paths((path, measure, original), (output, emit_c, switch_file))
    result = fused(path)
    if not result.kernels:
        name, reason = result.left[0]
        raise UsageError(f"no fused node can have a kernel; {name}: {reason}", where=path)
    if measure is not None:
        result = _gaining(path, result, measure, original, cc, march)
        if not result.kernels:
            raise UsageError(
                f"no kernel gains on {measure}: {result.left[-1][0]}: {result.left[-1][1]}",
                where=path,
            )
    text = source(result.kernels)
    if emit_c is not None:
        write_bytes_atomic(emit_c, text.encode())
    if switch_file is not None:
        if os.path.exists(switch_file):
            from gehost import tune

            tune.read_switch_file(switch_file)
        elif not Path(switch_file).absolute().parent.is_dir():
            raise OutputError("cannot be written: there is no such directory", where=switch_file)
    build(text, Path(output), cc=cc, march=march)
    if switch_file is not None:
        from gehost_linalg.kernels.switches import add_library

        add_library(switch_file, output, result.gains, result.over_original)
    return result


def _check_paths(read: Sequence[str | None], output: Sequence[str | None]) -> None:
    """Refuse to write over a file that is read, or twice to one file."""
    selected = {os.path.realpath(path) for path in read if path is not None}
    for path in output:
        if path is None:
            continue
        if os.path.realpath(path) in selected:
            raise UsageError("is given twice; name another file to write", where=path)
        selected.add(os.path.realpath(path))


def _gaining(
    path: str, result: Fused, feeds: str, original: str | None, cc: str | None, march: str
) -> Fused:
    """Select the kernels that are faster than their bodies, alone and together.

    Each library has a path of its own, as a process keeps the library that it opened at a path.
    """
    from gehost import verify  # not read by a library that measures nothing
    from gehost_linalg.kernels.measure import check_original, gains, over_original, whole

    argument = verify.load_feeds(feeds)
    compared: Gain | None = None
    if original is not None:
        check_original(original, path, argument)
    with tempfile.TemporaryDirectory(prefix="gehost-kernels-") as folder:
        library, chosen = Path(folder, "all.so"), Path(folder, "kept.so")
        build(source(result.kernels), library, cc=cc, march=march)
        names = [kernel.name for kernel in result.kernels]
        measured = gains(path, library, names, argument)
        keep = {name for name, gain in measured.items() if gain.verdict == "keep"}
        retained = [kernel for kernel in result.kernels if kernel.name in keep]
        if retained:
            build(source(retained), chosen, cc=cc, march=march)
            together = whole(path, chosen, argument)
            if together.verdict == "drop":
                raise UsageError(
                    "each kernel gains alone, but with all of them the model has "
                    f"{together.ratio:.2f} times the speed that it has with its bodies",
                    where=path,
                    hint="keep those",
                )
            if original is not None:
                compared = over_original(original, path, chosen, argument)
                if compared.verdict != "keep":
                    raise UsageError(
                        f"with its kernels it has {speed(compared)} of {original}; "
                        f"less than {compared.dead_zone:.3f} is noise here",
                        where=path,
                        hint="run the original",
                    )
    rest = list(result.left)
    for name in names:
        if name not in measured:
            rest.append((name, "not measured: its nodes are in the body of another node"))
        elif name not in keep:
            rest.append(
                (name, f"does not gain: {measured[name].ratio:.2f} times the speed of the body")
            )
    return Fused(result.nodes, retained, rest, measured, compared)


def speed(gain: Gain) -> str:
    """A ratio with its interval: ``1.05 (1.04 to 1.06) times the speed``."""
    interval = ""
    if gain.comparison is not None:
        interval = " ({:.2f} to {:.2f})".format(*gain.comparison.interval)
    return f"{gain.ratio:.2f}{interval} times the speed"


def names_in(library: str) -> list[str]:
    """The kernels of a library, read from the file without loading it.

    Raises:
        UsageError: it cannot be read, or ``gehost kernels`` did not make it.
    """
    try:
        content = Path(library).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=library) from error
    _, mark, rest = content.partition(ort.MARK.encode())
    names, end, _ = rest.partition(b"\0")
    if not mark or not end:
        raise UsageError(
            "is no library of kernels", where=library, hint="make one with gehost kernels"
        )
    return names.decode("ascii", "replace").split()


def check_lines(path: str, library: str) -> list[str]:
    """One line for each kernel: its nodes, or why bodies run.

    Raises:
        UsageError: a kernel of the library would run in place of a function that computes
            something else; ONNX Runtime takes kernels by name.
    """
    result, names = fused(path), set(names_in(library))
    reasons = dict(result.left)
    lines: list[str] = []
    have = 0
    for name in dict.fromkeys(result.nodes):
        shown, count = one_line(name), result.nodes.count(name)
        if name in reasons and name.partition(":")[0] in names:
            raise UsageError(
                f"ONNX Runtime takes the kernel {name} of {os.path.basename(library)}, but in "
                f"this file {reasons[name]}",
                where=path,
            )
        if name in reasons:
            lines.append(f"{shown}: {_nodes(count)} by the body: {reasons[name]}")
        elif name in names:
            have += count
            lines.append(f"{shown}: {_nodes(count)} by the kernel")
        else:
            lines.append(
                f"{shown}: {_nodes(count)} by the body: "
                f"{os.path.basename(library)} has no kernel of that name"
            )
    return [*lines, f"{have} of {_nodes(len(result.nodes))} by kernels"]


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def summary(result: Fused, output: str) -> Sequence[str]:
    """List the kernels built, and the nodes left to their bodies."""
    with_kernel = {kernel.name for kernel in result.kernels}
    have = sum(name in with_kernel for name in result.nodes)
    kernels = f"{len(result.kernels)} kernel{'' if len(result.kernels) == 1 else 's'}"
    lines = [f"{output}: {kernels} for {have} of {_nodes(len(result.nodes))}"]
    if result.over_original is not None:
        lines.append(f"the model with them: {speed(result.over_original)} of the original")
    return [
        *lines,
        *[f"left to its body: {one_line(name)}: {reason}" for name, reason in result.left],
    ]
