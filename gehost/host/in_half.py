"""The last step of a compile with ``half``: the fused model in float16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gehost.errors import NumbersDifferError
from gehost.half import judge, to_float16
from gehost.host.report import Report, op_counts
from gehost.ir.model import Model
from gehost.kernels import Target
from gehost.options import HostOptions
from gehost.verify import Runner, find_feeds


def in_half(
    model: Model,
    options: HostOptions,
    feeds: Sequence[Mapping[str, Any]] | None,
    report: Report,
) -> Model:
    """Return the model in float16, compared with it where the options ask for that.

    Args:
        model: compiled, of float32.
        options: of the compile.
        feeds: of ``verify``; None generates them.
        report: gets the notes and the verdict.

    Raises:
        ModelError: the model has no form in float16, or does not run.
        NumbersDifferError: the numbers of the conversion are others.
    """
    proto, base_dir = model.flush(), model.base_dir
    with report.timed("half"):
        if options.verify and feeds is None:
            runner = Runner(proto, base_dir=base_dir, libraries=options.ort_libraries)
            feeds = [feed for feed, _ in find_feeds(runner, 0)]
        checked = list(feeds or ()) if options.verify else []
        conversion = to_float16(
            proto,
            keep_io=options.keep_io_types,
            feeds=checked,
            keep_float32=options.keep_float32,
            base_dir=base_dir,
            target=Target.of(options.target),
        )
        report.notes.extend(conversion.notes)
        counts = op_counts(converted := Model(conversion.model, path=model.path))
        report.op_types_after, report.nodes_after = counts, sum(counts.values())
    if options.verify:
        with report.timed("verify"):
            result = judge(proto, conversion, checked, base_dir)
        report.notes.append(f"half: {result.summary()}")
        if not result.equal:
            error = NumbersDifferError(
                f"the model in float16 gives other numbers: {result.summary()}",
                where=model,
                hint="keep operators in float32 (--keep-float32)",
            )
            error.report = report
            raise error
    return converted
