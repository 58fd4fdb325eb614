"""The command ``gehost kernels``; its work is imported when it runs."""

from __future__ import annotations

import click

from gehost import UsageError, print_line


@click.command("kernels")
@click.argument("model", type=click.Path())
@click.argument("library", type=click.Path(), required=False)
@click.option("-o", "--output", type=click.Path(), metavar="LIBRARY", help="The library to write.")
@click.option("--check", is_flag=True, help="Show which nodes of MODEL have a kernel in LIBRARY.")
@click.option(
    "--cc", metavar="CC", help="C compiler; else $CC, cc, gcc, clang, python -m ziglang cc."
)
@click.option(
    "--march",
    default="native",
    show_default=True,
    metavar="CPU",
    help="Instructions that kernels may use.",
)
@click.option("--emit-c", type=click.Path(), metavar="FILE.c", help="Write the C file too.")
@click.option(
    "--measure",
    type=click.Path(),
    metavar="FEEDS.npz",
    help="Keep only the kernels that are faster than their bodies on these inputs.",
)
@click.option(
    "--original",
    type=click.Path(),
    metavar="MODEL",
    help="With --measure: write nothing unless the fused model is faster than this one.",
)
@click.option(
    "--fusion-switch-file",
    "switch_file",
    type=click.Path(),
    metavar="FILE",
    help="Add the library to this switch file of gehost tune, for gehost.runtime_options.",
)
def command(
    model: str,
    library: str | None,
    output: str | None,
    cc: str | None,
    march: str,
    emit_c: str | None,
    measure: str | None,
    original: str | None,
    switch_file: str | None,
    *,
    check: bool,
) -> None:
    """Build a library of kernels for the fused nodes of MODEL, which ONNX Runtime loads.

    For who ships a library beside the file; who only has a model: gehost optimize.
    """
    from gehost_linalg.kernels.library import check_lines, summary, write_library

    if check:
        if library is None or any((output, cc, emit_c, measure, original, switch_file)):
            raise UsageError("gehost kernels --check wants MODEL and LIBRARY, and no other option")
        for line in check_lines(model, library):
            print_line(line)
        return
    if output is None or library is not None:
        raise UsageError("gehost kernels wants MODEL and -o LIBRARY")
    if original is not None and measure is None:
        raise UsageError("--original needs --measure FEEDS.npz")
    result = write_library(
        model,
        output,
        cc=cc,
        march=march,
        emit_c=emit_c,
        measure=measure,
        original=original,
        switch_file=switch_file,
    )
    for line in summary(result, output):
        print_line(line)
