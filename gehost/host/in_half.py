"""The last step of a compile with ``half``: the fused model in float16."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import onnx

from gehost.errors import NumbersDifferError
from gehost.half import HalfConversion, HalfVerification, judge, to_float16
from gehost.host.needs import name_runtimes
from gehost.host.report import Report, op_counts
from gehost.ir.bodies import node_lists
from gehost.ir.inline import inline_functions
from gehost.ir.model import Model
from gehost.ir.node import op_name
from gehost.kernels import Target
from gehost.options import HostOptions
from gehost.spelling import counted
from gehost.verify import Runner, find_feeds
from gehost.verify.feeds import without_weights
from gehost.verify.retype import inferred
from gehost.verify.rounded import is_kernel

_Feeds = Sequence[Mapping[str, Any]]


def in_half(model: Model, options: HostOptions, feeds: _Feeds | None, report: Report) -> Model:
    """Return the model in float16, compared with it where the options ask for that.

    One that held half before its compile stays as it is, and was compared.

    Args:
        model: compiled.
        options: of the compile.
        feeds: of ``verify``; None generates them.
        report: of the compile; gets the notes and the verdict.

    Raises:
        ModelError: the model has no form in float16, or does not run.
        NumbersDifferError: the numbers of the conversion are others.
    """
    if not report.half:
        return model
    with report.timed("half"):
        proto = inlined(before := model.flush())
        if proto is not before:
            report.notes.append(_inlined_note(before, proto, model.new_functions))
            model = Model(proto, path=model.path)
        if options.verify and feeds is None:
            runner = Runner(model.flush(), base_dir=model.base_dir, libraries=options.ort_libraries)
            feeds = [feed for feed, _ in find_feeds(runner, 0)]
        checked = list(feeds or ()) if options.verify else []
        conversion = convert(model, options, checked)
    if not options.verify:
        report.notes.append("half: no numbers were compared with its range (--verify does)")
    elif conversion.is_converted:
        with report.timed("verify"):
            conversion, result = _judged(model, options, checked, conversion)
        report.notes.append(f"half: {result.summary()}")
        if not result.equal:
            error = NumbersDifferError(
                f"the model in float16 gives other numbers: {result.summary()}",
                where=model,
                hint="keep operators in float32 (--keep-float32)"
                + ("" if options.keep_io_types else ", or inputs and outputs (--keep-io-types)"),
            )
            error.report, error.model = report, conversion.model
            raise error
    return describe(model, conversion, options, report)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its functions inlined, but for those that kernels take the place of.

    What must not be rounded is then seen across their borders.
    """
    if all(_has_kernel(model, function) for function in model.functions):
        return model
    return inline_functions(model, keep=partial(_has_kernel, model))


def _inlined_note(
    before: onnx.ModelProto, after: onnx.ModelProto, of_passes: Collection[str]
) -> str:
    """Count the functions that were inlined, and name those that passes had written."""
    left, own = (
        {op_name(one.domain, one.name, one.overload) for one in proto.functions}
        for proto in (after, before)
    )
    note = f"half: {counted(len(own - left), 'function')} of the model inlined"
    lost = sorted({op.partition("__")[0] for op in (own - left) & set(of_passes)})
    if not lost:
        return note
    return (
        f"{note}, and with them {', '.join(lost)} of passes: to keep these, convert with --half "
        "first, and compile the result"
    )


def _has_kernel(model: onnx.ModelProto, function: onnx.FunctionProto) -> bool:
    return function.domain == "gehost" or is_kernel(model, function)


def _judged(
    model: Model, options: HostOptions, feeds: _Feeds, conversion: HalfConversion
) -> tuple[HalfConversion, HalfVerification]:
    """Return a conversion that is compared; a cautious one where its numbers are far off."""
    arguments = (feeds, model.base_dir, options.ort_libraries)
    result = judge(model.flush(), conversion, *arguments)
    if not result.is_far:
        return conversion, result
    again = convert(model, options, feeds, cautious=True)
    second = judge(model.flush(), again, *arguments)
    closer = second.off is not None and result.off is not None and second.off < result.off
    return (again, second) if closer else (conversion, result)


def convert(
    model: Model, options: HostOptions, feeds: _Feeds, *, cautious: bool = False
) -> HalfConversion:
    """Convert a compiled model.

    Args:
        model: it stays as it is.
        options: of the compile.
        feeds: inputs on which numbers out of half's range are looked for.
        cautious: as for ``to_float16``.

    Raises:
        ModelError: the model has no form in float16, or does not run on the feeds.
    """
    return to_float16(
        model.flush(),
        keep_io=options.keep_io_types,
        feeds=feeds,
        keep_float32=options.keep_float32,
        base_dir=model.base_dir,
        target=Target.of(options.target),
        cautious=cautious,
    )


def describe(
    model: Model, conversion: HalfConversion, options: HostOptions, report: Report
) -> Model:
    """Return a converted model; note what keeps float32 and which runtimes the file needs."""
    report.notes.extend(conversion.notes)
    report.notes.extend(
        f"half: no node and no operator has the name {name!r} (--keep-float32)"
        for name in sorted(set(options.keep_float32) - _names(model))
    )
    report.kept_float32 = {why: list(nodes) for why, nodes in conversion.kept.items()}
    counts = op_counts(converted := Model(conversion.model, path=model.path))
    report.op_types_after, report.nodes_after = counts, sum(counts.values())
    types = inferred(without_weights(conversion.model))
    name_runtimes(converted, options.target, report, types)
    return converted


def _names(model: Model) -> set[str]:
    """Return the names by which nodes are kept in float32: their own, and their operators'."""
    nodes = [node for nodes in node_lists(model.flush()) for node in nodes]
    return {
        name
        for node in nodes
        for name in (node.name, node.op_type, f"{node.domain}::{node.op_type}")
    }
