"""The commands ``gehost hlo print | dataflow | import | fusions``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gehost import ModelError, print_json, print_line, print_text

if TYPE_CHECKING:
    from gehost_hlo.fusions import VendorFusion, XlaFusion
    from gehost_hlo.module import HloComputation, HloModule

_computation = click.option("--computation", metavar="NAME", help="This computation only.")
_assume = click.option(
    "--assume-reductions",
    is_flag=True,
    help="Take a to_apply that is not in the text from op_type.",
)
_constants = click.option(
    "--constants",
    default="",
    metavar="FILE.npz|random",
    help="Values of elided constants, by instruction; or draw them.",
)


@click.group(no_args_is_help=False)
def hlo() -> None:
    """Read HLO text of XLA, and print, show or import it.

    It is shown as data flow, imported as ONNX; its fusions are listed.
    """


@contextmanager
def _quoting() -> Generator[None]:
    """Show the line and a caret before an error.

    The error is that of one line, and ends the command.
    """
    from gehost_hlo.errors import HloSyntaxError

    try:
        yield
    except HloSyntaxError as error:
        for line in error.excerpt.split("\n"):
            print_line(line, err=True)
        raise ModelError(error.summary) from error


def _read(path: str) -> HloModule:
    from gehost_hlo.files import read_module

    with _quoting():
        return read_module(path)


def _chosen(module: HloModule, path: str, name: str | None) -> HloComputation | None:
    from gehost_hlo.files import near

    if name is None:
        return None
    computation = module.find(name)
    if computation is None:
        raise ModelError(f"no computation is called {name}{near(name, module)}", where=path)
    return computation


@hlo.command("print")
@click.argument("file", type=click.Path())
@_computation
@click.option("--json", "as_json", is_flag=True, help="The parsed tree as JSON.")
@click.option("--tree", "as_tree", is_flag=True, help="The parsed tree as indented lines.")
@click.option("--tokens", "as_tokens", is_flag=True, help="The tokens, also of a malformed text.")
def print_(
    file: str, computation: str | None, *, as_json: bool, as_tree: bool, as_tokens: bool
) -> None:
    """Print FILE as it was read: its text, the parsed tree, or its tokens.

    A text of StableHLO is printed as HLO.
    """
    from gehost_hlo import printer

    if as_json + as_tree + as_tokens > 1:
        raise click.UsageError("--json, --tree and --tokens exclude each other")
    if as_tokens:
        if computation is not None:
            raise click.UsageError("--tokens are those of the whole text, without --computation")
        _print_tokens(file)
        return
    module = _read(file)
    chosen = _chosen(module, file, computation)
    if as_json:
        tree = printer.as_tree(module) if chosen is None else printer.computation_tree(chosen)
        text = json.dumps(tree, indent=2) + "\n"
    elif as_tree:
        text = printer.as_lines(module, module.computations if chosen is None else (chosen,))
    else:
        text = printer.to_text(module) if chosen is None else printer.computation_text(chosen)
    print_text(text)


def _print_tokens(file: str) -> None:
    from gehost_hlo.files import read_tokens

    with _quoting():
        rows = read_tokens(file)
    places = [f"{row.line}:{row.column}" for row in rows]
    lines = [
        f"{place:<8} {row.kind:<11} {row.text}\n" for place, row in zip(places, rows, strict=True)
    ]
    print_text("".join(lines))


@hlo.command()
@click.argument("file", type=click.Path())
@_computation
@click.option("--dot", is_flag=True, help="As a Graphviz digraph; JSON without it.")
def dataflow(file: str, computation: str | None, *, dot: bool) -> None:
    """Print which instruction of FILE reads which.

    There is an object for each computation, with nodes and edges.
    """
    from gehost_hlo import data_flow as flow

    module = _read(file)
    chosen = _chosen(module, file, computation)
    shown = module.computations if chosen is None else (chosen,)
    if dot:
        print_text(flow.as_dot(shown))
    else:
        print_json(flow.as_json(shown))


@hlo.command("import")
@click.argument("file", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Where the ONNX model goes.")
@click.option(
    "--fusions",
    type=click.Choice(["functions", "inline"]),
    default="functions",
    show_default=True,
    help="Make XLA's fusions model-local functions, which Netron opens; or inline them.",
)
@_constants
@_assume
@click.option(
    "--computation",
    default="",
    metavar="NAME",
    help="Import this computation in place of the entry.",
)
@click.option(
    "--unroll",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Unroll loops of at most N iterations, where the text tells their number.",
)
def import_(file: str, output: str, **options: Any) -> None:
    """Import FILE as an ONNX model.

    FILE is HLO text or StableHLO. Of a directory, as --xla_dump_to writes it, each text of a
    module becomes a model in the directory --output.
    """
    from gehost import OutputError
    from gehost_hlo.files import texts_in
    from gehost_hlo.suffixes import SUFFIXES

    if output.endswith(SUFFIXES):
        raise OutputError(
            f"cannot write {output!r}: its name is that of HLO text, the model is ONNX",
            hint="name it .onnx",
        )
    if not os.path.isdir(file):
        with _quoting():
            _import_one(file, output, options)
        return
    texts = texts_in(file)
    if not texts:
        raise ModelError("no file of the directory is a text of a module", where=file)
    os.makedirs(output, exist_ok=True)
    failed = 0
    for path, name in texts:
        try:
            _import_one(path, os.path.join(output, f"{name}.onnx"), options)
        except ModelError as error:
            failed += 1
            print_line(f"not imported: {str(error).partition(chr(10))[0]}", err=True)
    if failed:
        raise ModelError(f"{failed} of {len(texts)} texts are not imported", where=file)


def _import_one(file: str, output: str, options: Mapping[str, Any]) -> None:
    from gehost import Model
    from gehost_hlo.emit import DOMAIN
    from gehost_hlo.files import import_file

    proto = import_file(file, **options)
    model = Model(proto)
    model.save(output)
    counts = {
        "node": len(proto.graph.node),
        "function": len(proto.functions),
        "input": len(proto.graph.input),
        "output": len(proto.graph.output),
    }
    summary = ", ".join(
        f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items()
    )
    print_line(f"wrote {output}: {summary}")
    unsupported = {
        node.op
        for graph in model.graphs
        for node in graph.nodes
        if node.domain == DOMAIN and model.function(node.op) is None
    }
    if unsupported:
        print_line(f"note: no runtime runs {', '.join(sorted(unsupported))}, kept as in the text")


@hlo.command()
@click.argument("after", type=click.Path())
@click.option(
    "--before",
    type=click.Path(),
    metavar="FILE",
    help="The text before XLA's passes, to compile with gehost.",
)
@click.option(
    "--vendors",
    multiple=True,
    type=click.Path(),
    metavar="DIR",
    help="Vendors to compile with; repeatable.",
)
@_constants
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def fusions(
    after: str, before: str | None, vendors: tuple[str, ...], constants: str, *, as_json: bool
) -> None:
    """List the fusions of AFTER, the text after XLA's passes.

    Beside each: the fusions of gehost's passes in BEFORE.

    Both are joined by op_name, the source operation in the metadata, which BEFORE must have been
    printed with, and by the lines of the program where both texts have tables of stack frames.
    """
    from gehost_hlo.fusions import xla_fusions

    if before is None and (vendors or constants):
        option = "--vendors" if vendors else "--constants"
        raise click.UsageError(f"{option} needs --before, the text to compile")
    module = _read(after)
    beside: list[VendorFusion] = []
    if before is not None:
        with _quoting():
            beside = _compiled(before, vendors, constants)
    matches = xla_fusions(module, beside)
    joined = {fusion_ for fusion in matches for fusion_ in fusion.vendor}
    alone = [fusion_ for fusion_ in beside if fusion_ not in joined]
    if as_json:
        rows = {
            "fusions": [fusion_.as_dict() for fusion_ in matches],
            "unjoined": [fusion_.as_dict() for fusion_ in alone],
        }
        print_json(rows)
        return
    total = sum(len(computation.instructions) for computation in module.computations)
    _print_fusions(matches, alone, total, with_vendor=before is not None)


def _compiled(before: str, vendors: tuple[str, ...], constants: str) -> list[VendorFusion]:
    from gehost import Host, HostOptions
    from gehost_hlo.files import import_file, read_module
    from gehost_hlo.fusions import vendor_fusions

    proto = import_file(before, fusions="inline", constants=constants)
    module = read_module(before)
    if not any(
        entry.key == "hlo.op_name" for node in proto.graph.node for entry in node.metadata_props
    ):
        raise ModelError(
            "no instruction has an op_name to join by",
            where=before,
            hint="print it with metadata (print_metadata)",
        )
    options: dict[str, Any] = {"vendors": list(vendors)} if vendors else {}
    result, _ = Host(HostOptions(**options)).run(proto)
    return vendor_fusions(module, proto, result)


def _print_fusions(
    rows: list[XlaFusion], alone: list[VendorFusion], total: int, *, with_vendor: bool
) -> None:
    kinds: dict[str, int] = {}
    for fusion in rows:
        kinds[fusion.kind] = kinds.get(fusion.kind, 0) + 1
    inside = sum(fusion.size for fusion in rows)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print_line(
        f"{len(rows)} fusions{f' ({counts})' if counts else ''} hold {inside} of {total} "
        "instructions"
    )
    for fusion in rows:
        opcodes = ", ".join(
            f"{count} {opcode}" if count > 1 else opcode
            for opcode, count in fusion.instructions.items()
        )
        print_line()
        print_line(f"{fusion.name} ({fusion.kind}, {fusion.size}): {opcodes}")
        for name in fusion.op_names:
            print_line(f"    of {name}")
        for row, shared in zip(fusion.vendor, fusion.shared, strict=True):
            print_line(f"    = {_vendor_line(row)}, {shared} in common")
        if with_vendor and not fusion.vendor:
            print_line("    = no fusion of gehost's passes")
    if alone:
        print_line()
        print_line("fused by gehost's passes alone")
        for row in alone:
            print_line(f"    {_vendor_line(row)}")
    sys.stdout.flush()


def _vendor_line(row: VendorFusion) -> str:
    return f"{row.op} {row.node} by {row.pass_name} ({row.vendor}) of {len(row.origins)} nodes"
