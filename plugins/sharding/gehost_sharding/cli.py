"""The commands ``gehost shard propagate|plan|complete|pad|check|split|run``."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gehost import ModelError, NumbersDifferError, OutputError, UsageError, print_line, print_text

if TYPE_CHECKING:
    from gehost_sharding.hardware import Hardware
    from gehost_sharding.mesh import Mesh
    from gehost_sharding.model_graph import ModelGraph
    from gehost_sharding.plan import Plan
    from gehost_sharding.propagation import Pin
    from gehost_sharding.rules.table import RuleTable

_Command = TypeVar("_Command", bound=Callable[..., Any])
_DIM = re.compile(r"(.+)=(-?\d+)")


def _dim_option(command: _Command) -> _Command:
    return click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=SIZE",
        help="Fix an open dimension, by name or as INPUT:AXIS=SIZE; repeatable.",
    )(command)


def _vendors_option(command: _Command) -> _Command:
    return click.option(
        "--vendors",
        multiple=True,
        type=click.Path(),
        metavar="DIR",
        help="Vendors whose files add sharding rules; repeatable.",
    )(command)


@click.group(no_args_is_help=False)
def shard() -> None:
    """Plan, annotate, check, split and run a model on several devices."""


@shard.command()
@click.argument("model", type=click.Path())
@click.option("--mesh", "mesh_text", metavar="AXIS=SIZE,…", help="Else one symbolic axis x.")
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="TENSOR=AXIS:MESHAXIS",
    help="Pin a tensor's placement; -1 for AXIS is replicated; repeatable.",
)
@click.option("--all", "all_", is_flag=True, help="List every consistent sharding of the inputs.")
@click.option(
    "--keep-partial", is_flag=True, help="Also keep results that are partial (unreduced)."
)
@click.option("--graph", "graph_path", type=click.Path(), metavar="FILE.dot|json")
@_dim_option
@_vendors_option
def propagate(
    model: str,
    mesh_text: str | None,
    pins: tuple[str, ...],
    *,
    all_: bool,
    keep_partial: bool,
    graph_path: str | None,
    dims: tuple[str, ...],
    vendors: tuple[str, ...],
) -> None:
    """List all shardings of MODEL without communication that follow from the pins."""
    from gehost_sharding.mesh import Mesh
    from gehost_sharding.propagation import Pin, Propagation, check_mesh, strategy_graph
    from gehost_sharding.sharding import describe

    if not pins and not all_ and graph_path is None:
        raise UsageError("nothing to propagate from: give --pin, or --all for every sharding")
    mesh = Mesh.symbolic() if mesh_text is None else Mesh.parse(mesh_text)
    graph = _read(model, dims)
    if not mesh.is_symbolic:
        check_mesh(graph, mesh)
    propagation = Propagation(graph, mesh, _table(vendors), keep_partial=keep_partial)
    if propagation.strategies.unknown:
        print_line(f"operators without a rule, replicated: {_counts(propagation)}")
    if graph_path is not None:
        from gehost_sharding.drawing import write_strategy_graph

        picture = strategy_graph(graph, mesh, propagation.strategies)
        write_strategy_graph(picture, graph, graph_path)
        print_line(
            f"wrote {graph_path}: "
            f"{picture.number_of_nodes()} nodes, {picture.number_of_edges()} edges"
        )
        if not pins and not all_:
            return
    started = time.perf_counter()
    solutions = propagation.solutions([Pin.parse(text, graph, mesh) for text in pins])
    print_line(f"{mesh}: {propagation.estimate}")
    count = 0
    for solution in solutions:
        count += 1
        by_sharding: dict[str, list[str]] = {}
        for name, sharding in solution.inputs.items():
            by_sharding.setdefault(describe(mesh, sharding), []).append(name)
        parts = [f"{text}: {', '.join(names)}" for text, names in by_sharding.items()]
        print_line(f"solution {count}: {'; '.join(parts)}")
    seconds = time.perf_counter() - started
    print_line(f"{propagation.searches} searches, {seconds:.3f} s")
    print_line(f"{count} solution{'' if count == 1 else 's'}")


def _counts(propagation: Any) -> str:
    unknown = propagation.strategies.unknown
    return ", ".join(f"{op} ({count})" for op, count in sorted(unknown.items()))


@shard.command()
@click.argument("model", type=click.Path())
@click.option("--mesh", "mesh_text", required=True, metavar="AXIS=SIZE,…")
@click.option("--hardware", "hardware_path", type=click.Path(), metavar="FILE.toml")
@click.option(
    "--memory", metavar="SIZE", help="Bytes per device for weights and live tensors, such as 16GiB."
)
@click.option("-o", "--output", required=True, type=click.Path(), help="The annotated model.")
@click.option("--report", "report_path", type=click.Path(), metavar="FILE.json")
@click.option("--dot", type=click.Path(), metavar="FILE.dot", help="Write the cost graph.")
@click.option("--mesh-dot", type=click.Path(), metavar="FILE.dot", help="Write the mesh.")
@click.option("--objective", type=click.Choice(["time", "weighted"]), default="time")
@click.option("--alpha", type=float, default=1.0, show_default=True, help="Of memory_cost.")
@click.option("--beta", type=float, default=1.0, show_default=True, help="Of communication_cost.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Seconds per GiB of weights per device.",
)
@click.option("--pin", "pins", multiple=True, metavar="TENSOR=AXIS:MESHAXIS")
@click.option(
    "--compare",
    multiple=True,
    metavar="LABEL=PIN,PIN…",
    help="Also report the best plan under these pins; repeatable.",
)
@click.option("--draw", is_flag=True, help="Draw the plan; equal layers are drawn once.")
@click.option("-v", "--verbose", is_flag=True, help="Print every operator and redistribution.")
@_dim_option
@_vendors_option
def plan(model: str, mesh_text: str, output: str, **options: Any) -> None:
    """Find the cheapest sharding of MODEL on a mesh and write it as annotations."""
    from gehost_sharding import report
    from gehost_sharding.cost_graph import Objective
    from gehost_sharding.hardware import parse_bytes
    from gehost_sharding.mesh import Mesh
    from gehost_sharding.plan import Planner
    from gehost_sharding.propagation import Pin

    mesh = Mesh.parse(mesh_text)
    hardware = _hardware(options["hardware_path"])
    memory = hardware.memory if options["memory"] is None else parse_bytes(options["memory"])
    alpha, beta, price = options["alpha"], options["beta"], options["price"] / 2**30
    for name, value in (("alpha", alpha), ("beta", beta), ("price", price)):
        if not 0 <= value < float("inf"):
            raise UsageError(f"--{name} {value}: wanted a number from 0")
    objective = Objective(weights=price)
    if options["objective"] == "weighted":
        objective = Objective(0.0, price, alpha, beta)
    graph = _read(model, options["dims"])
    pins = [Pin.parse(text, graph, mesh) for text in options["pins"]]
    compared = _compared(options["compare"], graph, mesh)
    planner = Planner(graph, mesh, hardware, _table(options["vendors"]))
    result = planner.plan(objective=objective, memory=memory, pins=pins)
    planner.compare(result, compared)
    _save_plan(model, output, result, verbose=options["verbose"], draw=options["draw"])
    if options["report_path"]:
        data = report.as_dict(result, alpha=alpha, beta=beta)
        _write(options["report_path"], json.dumps(data, indent=1).encode())
    if options["dot"]:
        from gehost_sharding.drawing import cost_graph_dot

        _write(options["dot"], cost_graph_dot(result.graph).encode())
    if options["mesh_dot"]:
        from gehost_sharding.drawing import mesh_dot

        _write(options["mesh_dot"], mesh_dot(mesh.graph()).encode())
    print_line(f"wrote {output}")


def _save_plan(
    model: str, output: str, result: Plan, *, verbose: bool = False, draw: bool = False
) -> None:
    """Write the annotated model and print the plan."""
    from gehost import Model
    from gehost_sharding import report
    from gehost_sharding.annotations import annotate

    if os.path.exists(output) and os.path.samefile(output, model):
        raise UsageError("the output is the model itself", where=output, hint="name another file")
    annotated = annotate(result.assignment)
    Model(annotated, path=model).save(output)
    for line in report.lines(result, verbose=verbose, draw=draw):
        print_line(line)
    before = result.assignment.graph.proto.ir_version
    if annotated.ir_version != before:
        print_line(f"IR version raised from {before} to {annotated.ir_version}")


def _compared(texts: Sequence[str], graph: ModelGraph, mesh: Mesh) -> dict[str, Sequence[Pin]]:
    from gehost_sharding.propagation import Pin

    plans: dict[str, Sequence[Pin]] = {}
    for text in texts:
        label, equals, pins = text.partition("=")
        if not equals or not label:
            raise UsageError("wanted LABEL=PIN,PIN…", subject=f'--compare "{text}"')
        plans[label] = [Pin.parse(pin, graph, mesh) for pin in pins.split(",")]
    return plans


@shard.command()
@click.argument("model", type=click.Path())
@click.option("--mesh", "mesh_text", metavar="AXIS=SIZE,…", help="Else the model's configuration.")
@click.option("--hardware", "hardware_path", type=click.Path(), metavar="FILE.toml")
@click.option("--memory", metavar="SIZE", help="Bytes per device, such as 16GiB.")
@click.option("-o", "--output", required=True, type=click.Path(), help="The annotated model.")
@click.option("--pin", "pins", multiple=True, metavar="TENSOR=AXIS:MESHAXIS")
@_dim_option
@_vendors_option
def complete(model: str, mesh_text: str | None, output: str, **options: Any) -> None:
    """Complete the annotations that MODEL has, and pins, to the cheapest plan that has them."""
    from gehost_sharding.check import read_partial
    from gehost_sharding.hardware import parse_bytes
    from gehost_sharding.mesh import Mesh
    from gehost_sharding.plan import Planner
    from gehost_sharding.propagation import Pin

    graph = _read(model, options["dims"])
    partial = read_partial(graph, None if mesh_text is None else Mesh.parse(mesh_text))
    for finding in partial.findings:
        print_line(finding)
    if partial.findings:
        raise ModelError(f"{_plural(len(partial.findings), 'finding')}, listed above", where=model)
    mesh = partial.mesh
    if mesh is None:
        raise UsageError("the model has no configuration of devices: give --mesh", where=model)
    pins = [Pin.parse(text, graph, mesh) for text in options["pins"]]
    count = sum(len(own) for own in partial.specs.values())
    if not count and not pins:
        raise UsageError("nothing to complete: annotate a tensor or give --pin", where=model)
    hardware = _hardware(options["hardware_path"])
    memory = hardware.memory if options["memory"] is None else parse_bytes(options["memory"])
    planner = Planner(graph, mesh, hardware, _table(options["vendors"]))
    result = planner.plan(memory=memory, pins=pins, specs=partial.specs)
    _save_plan(model, output, result)
    print_line(
        f"wrote {output}: {_plural(count, 'annotation')} and {_plural(len(pins), 'pin')}"
        f" completed to {_plural(len(graph.operators), 'operator')}"
    )


@shard.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="The padded model.")
@click.option(
    "--pad",
    "texts",
    multiple=True,
    required=True,
    metavar="TENSOR=AXIS:MULTIPLE",
    help="Make a dimension of a weight or input a multiple of a number; repeatable.",
)
@_dim_option
@_vendors_option
def pad(
    model: str, output: str, texts: tuple[str, ...], dims: tuple[str, ...], vendors: tuple[str, ...]
) -> None:
    """Pad dimensions of MODEL that a mesh does not divide; inputs and outputs stay as they are."""
    from gehost import Model
    from gehost_sharding.padding import Request, pad_model

    graph = _read(model, dims)
    if os.path.exists(output) and os.path.samefile(output, model):
        raise UsageError("the output is the model itself", where=output, hint="name another file")
    padded = pad_model(graph, [Request.parse(text, graph) for text in texts], _table(vendors))
    Model(padded, path=model).save(output)
    print_line(f"wrote {output}")


@shard.command()
@click.argument("model", type=click.Path())
@_vendors_option
def check(model: str, vendors: tuple[str, ...]) -> None:
    """Check the annotations of MODEL and print every finding."""
    from gehost_sharding.check import read_annotations

    annotated = read_annotations(_read(model, ()), _table(vendors))
    for finding in annotated.findings:
        print_line(finding)
    if annotated.findings:
        raise ModelError(
            f"{_plural(len(annotated.findings), 'finding')}, listed above", where=model
        )
    print_line(
        f"{_plural(len(annotated.graph.operators), 'operator')} annotated on mesh"
        f" {annotated.mesh}: no findings"
    )


@shard.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR")
@click.option(
    "--collectives",
    type=click.Choice(["gehost", "tensorrt", "onnxruntime"]),
    default="gehost",
    show_default=True,
    help="Dialect of the collective operators.",
)
@_vendors_option
def split(model: str, output: str, collectives: str, vendors: tuple[str, ...]) -> None:
    """Write one model per rank from the annotations of MODEL."""
    from gehost_sharding.check import read_annotations
    from gehost_sharding.partition import write_split
    from gehost_sharding.redistribution import SLICE

    table = _table(vendors)
    annotated = read_annotations(_read(model, ()), table)
    if annotated.assignment is None:
        raise ModelError("; ".join(annotated.findings), where=model)
    transfers = write_split(annotated.assignment, output, table=table, dialect=collectives)
    moves = [transfer for transfer in transfers if transfer.move.kind != SLICE]
    print_line(
        f"wrote {_plural(annotated.assignment.mesh.devices, 'rank')} to {output}:"
        f" {_plural(len(moves), 'collective')}, {sum(move.bytes for move in moves)} B per device"
    )


@shard.command()
@click.argument("directory", type=click.Path())
@click.option("--feeds", type=click.Path(), metavar="FILE.npz", help="Inputs; seeded otherwise.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(), metavar="FILE.npz", help="Write the outputs.")
@click.option("--verify", is_flag=True, help="Compare with the unsplit model.")
@click.option("--model", type=click.Path(), help="The unsplit model, if it was moved.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each rank's record as JSON.")
def run(directory: str, **options: Any) -> None:
    """Run a split model, one process per rank."""
    from gehost_sharding.launch import read_manifest, run_split

    manifest = read_manifest(directory)
    feeds = _feeds(directory, manifest, options)
    result = run_split(directory, feeds, timeout=options["timeout"])
    if options["output"]:
        _write_npz(options["output"], result.outputs)
    if options["as_json"]:
        print_text(json.dumps(result.ranks, indent=1))
    else:
        predicted = manifest["predicted"]
        print_line(
            f"{_plural(len(result.ranks), 'rank')},"
            f" {_plural(result.ranks[0]['segments'], 'segment')},"
            f" slowest {max(rank['run_seconds'] for rank in result.ranks):.3f} s"
        )
        print_line(
            f"sent per device: predicted {predicted['bytes']} B, counted {result.bytes} B;"
            f" gathering the outputs: {predicted['output_bytes']} B, {result.output_bytes} B"
        )
    if options["verify"]:
        _verify(directory, _unsplit(directory, manifest, options["model"]), feeds, result.outputs)


def _feeds(directory: str, manifest: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    import onnx

    from gehost import verify

    if options["feeds"] is not None:
        loaded = verify.load_feeds(options["feeds"])
        missing = sorted(manifest["inputs"].keys() - loaded.keys())
        unknown = sorted(loaded.keys() - manifest["inputs"].keys())
        if unknown:
            raise UsageError(
                f"the split has no input {unknown[0]!r}; its inputs are"
                f" {', '.join(map(repr, manifest['inputs'])) or 'none'}",
                where=options["feeds"],
            )
        if missing:
            raise UsageError(f"no array for input {', '.join(missing)}", where=options["feeds"])
        feeds = {name: loaded[name] for name in manifest["inputs"]}
    else:
        path = _unsplit(directory, manifest, options["model"])
        model = onnx.load(path, load_external_data=False)  # pyright: ignore[reportUnknownMemberType]
        feeds = verify.make_feeds(model, options["seed"])
    for name, entry in manifest["inputs"].items():
        if list(feeds[name].shape) != entry["shape"] or str(feeds[name].dtype) != entry["dtype"]:
            raise UsageError(
                f"the feed is {feeds[name].dtype} {list(feeds[name].shape)}, the split is "
                f"for {entry['dtype']} {entry['shape']}",
                subject=f"input {name}",
            )
    return feeds


def _unsplit(directory: str, manifest: dict[str, Any], option: str | None) -> str:
    """Return the path of the model that was split, after checking that it is still the same."""
    import hashlib

    path = option or manifest["model"]
    if path is None or not os.path.exists(path):
        raise UsageError(
            f"the unsplit model {path} is not there", where=directory, hint="give --model"
        )
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != manifest["model_sha256"]:
        raise UsageError(
            f"{path} is not the model that {directory} was split from (it has changed);"
            " split again, or give --model"
        )
    return path


def _verify(directory: str, path: str, feeds: dict[str, Any], outputs: dict[str, Any]) -> None:
    from gehost import verify

    expected = verify.Runner(path).run(feeds)
    differences = verify.compare_outputs(expected, outputs)
    worst = max((difference.max_abs for difference in differences), default=0.0)
    wrong = [difference for difference in differences if not difference.equal]
    if wrong:
        raise NumbersDifferError(
            f"the numbers differ from those of {path}: {wrong[0].place}: "
            f"{wrong[0].reason or f'|a-b| {wrong[0].max_abs:.3g}'}",
            where=directory,
        )
    print_line(f"equal to {path}: {_plural(len(differences), 'output')}, largest |a-b| {worst:.3g}")


# -- shared -----------------------------------------------------------------------------------


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _read(model: str, dims: Sequence[str]) -> ModelGraph:
    from gehost_sharding.model_graph import read_model

    sizes: dict[str, int] = {}
    for text in dims:
        match = _DIM.fullmatch(text)
        if match is None:
            raise UsageError("wanted NAME=SIZE or INPUT:AXIS=SIZE", subject=f'--dim "{text}"')
        sizes[match[1]] = int(match[2])
    return read_model(model, sizes)


def _hardware(path: str | None) -> Hardware:
    from gehost_sharding.hardware import Hardware

    return Hardware() if path is None else Hardware.load(path)


def _table(vendors: Sequence[str]) -> RuleTable:
    from gehost_sharding.rules.table import RuleCollector, RuleTable

    table = RuleTable.with_plugins()
    if vendors:
        from gehost import Host, HostOptions

        Host(HostOptions(vendors=vendors), [("sharding-rules", RuleCollector(table))])
    return table


def _write(path: str, content: bytes) -> None:
    """Write a file whole or not at all."""
    target = Path(path)
    try:
        handle, scratch = tempfile.mkstemp(dir=target.absolute().parent, prefix=".shard-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(scratch, 0o644)
            os.replace(scratch, target)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", where=path) from error


def _write_npz(path: str, arrays: dict[str, Any]) -> None:
    from gehost import verify

    _write(path, verify.save_feeds(arrays))
