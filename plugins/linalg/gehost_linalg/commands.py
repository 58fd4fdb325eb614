"""Show the groups of a model, or fuse an MLIR text."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gehost import (
    Host,
    HostOptions,
    Node,
    UsageError,
    from_environment,
    one_line,
    print_line,
    print_notes,
    printable,
    quoting,
)
from gehost_linalg.block import Block
from gehost_linalg.control import ControlError, control_named, multi_use_named
from gehost_linalg.driver import DEFAULT_COMPANIONS, MLIR_COMPANIONS, fuse_block
from gehost_linalg.generic import Generic, GenericError, Op, Opaque, Size, Value, is_known
from gehost_linalg.groups.grouping import Group
from gehost_linalg.groups.lowered import Lowered
from gehost_linalg.groups.row_space import is_boundary
from gehost_linalg.mlir import Function, parse, print_function
from gehost_linalg.passes import NAME, Plan, companions_named, controls_of, plans_made_by
from gehost_mlir.scanner import MlirError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1, "i1": 1}


def show(
    model: str,
    node: str | None,
    form: str | None,
    settings: Mapping[str, str],
    vendors: Sequence[str],
    *,
    before: bool,
) -> str:
    """The text that ``gehost linalg`` prints.

    Raises:
        UsageError: a name is unknown, or a text is malformed.
    """
    if model.endswith(".mlir"):
        if node is not None:
            raise UsageError(f"--node {node}: an MLIR text has no nodes", where=model)
        if form not in {None, "mlir"}:
            raise UsageError(f"--format {form}: an MLIR text is shown as mlir only", where=model)
        return fused_text(model, settings, vendors, before=before)
    argument = from_environment({"vendors": vendors}, note=lambda line: print_notes([line]))
    plans = plans_of(model, settings, argument.vendors)
    shown = [Shown(plan, group) for plan in plans for group in plan.groups]
    if node is not None:
        shown = [item for item in shown if any(node in {n.name, n.label} for n in item.group.nodes)]
        if not shown:
            raise UsageError(_no_group(node, plans))
    if form in {None, "table"}:
        return _table(shown, plans, node) + "\n"
    if form == "mlir":
        return "\n".join(_texts(shown, before=before))
    return _dot(shown, before=before)


# -- MLIR files
# --------------------------------------------------------------------------------------------------


def fused_text(
    path: str, settings: Mapping[str, str], vendors: Sequence[str] = (), *, before: bool
) -> str:
    """The text of a file, fused unless ``before``.

    Raises:
        UsageError: it cannot be read, it is malformed, or a name is unknown.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=path) from error
    try:
        functions = parse(text)
        if not functions:
            raise UsageError("it has no func.func", where=path)
        controls = controls_of(Host(HostOptions(vendors=tuple(vendors))).passes)
        control = control_named(settings["control"], controls)
        multi_use = multi_use_named(settings["multi_use"])
        companions = _companions(settings["companions"], MLIR_COMPANIONS)
        for function in functions if not before else ():
            block = fuse_block(
                function.ops, control, multi_use, outputs=function.outputs, companions=companions
            )
            function.ops, function.outputs = block.ops, block.outputs
        return "\n".join(map(print_function, functions))
    except MlirError as error:
        place, _, rest = str(error).partition("\n")
        for line in rest.split("\n"):
            print_line(line, err=True)
        raise UsageError(place, where=path) from error
    except (ControlError, GenericError) as error:
        raise UsageError(str(error)) from error


def _companions(text: str, default: Sequence[str] = DEFAULT_COMPANIONS) -> tuple[str, ...]:
    return companions_named(text, default)


# -- models
# --------------------------------------------------------------------------------------------------


def plans_of(
    model: str, settings: Mapping[str, str], vendors: Sequence[str | os.PathLike[str]]
) -> list[Plan]:
    """Return the groups of a model's graphs, as ``gehost compile`` forms them."""
    options = HostOptions(
        vendors=tuple(vendors),
        enable=(NAME,),
        settings={f"{NAME}.{name}": value for name, value in settings.items()},
    )
    host = Host(options)
    plans = plans_made_by(host.passes)
    with tempfile.TemporaryDirectory() as folder:
        host.compile(model, os.path.join(folder, "model.onnx"))
    return plans


class Shown:
    """One group as text."""

    def __init__(self, plan: Plan, group: Group) -> None:
        self.plan = plan
        self.group = group
        lowered = plan.lowered
        self.unfused = [
            op
            for op in lowered.ops
            if op.origins and all(node in group.nodes for node in op.origins)
        ]
        self.inputs = _inputs(self.unfused)
        self.outputs = _outputs(self.unfused, lowered)

    @property
    def name(self) -> str:
        ops = [node.op for node in self.group.nodes]
        return "_".join(dict.fromkeys(op.rpartition("::")[2] for op in ops))

    def block(self, *, before: bool) -> Block:
        """The operations of the group alone, as they are lowered or fused."""
        if before:
            return Block(self.unfused, self.outputs)
        plan = self.plan
        companions = _companions(plan.settings["companions"])
        return fuse_block(
            self.unfused, plan.control, plan.multi_use, outputs=self.outputs, companions=companions
        )

    def text(self, *, before: bool, name: str = "") -> str:
        """The group as MLIR text, or a comment on a missing size."""
        name = name or self.name
        block = self.block(before=before)
        notes = {op: [_note(op)] for op in block.ops}
        function = Function(
            name, self.inputs, block.ops, block.outputs, notes, self.plan.lowered.names.rules
        )
        try:
            return print_function(function)
        except GenericError as error:
            return f"// {name}: {error}\n"

    def saved(self) -> str:
        """The bytes of values that stay inside the group."""
        inside = [value for op in self.unfused for value in op.results if value not in self.outputs]
        entry = sum(_bytes(value) or 0 for value in inside)
        unknown = sum(_bytes(value) is None for value in inside)
        return f"{entry:,}" + (f" + {unknown} of unknown size" if unknown else "")


def _texts(shown: Iterable[Shown], *, before: bool) -> Iterable[str]:
    """The groups as functions of one module, whose names differ."""
    used: set[str] = set()
    for item in shown:
        name, count = item.name, 0
        while name in used:
            count += 1
            name = f"{item.name}_{count}"
        used.add(name)
        yield item.text(before=before, name=name)


def _note(op: Op) -> str:
    nodes: Iterable[Node] = op.origins
    return one_line(", ".join(f"{node.op} {node.label}" for node in nodes))


def _inputs(ops: Sequence[Op]) -> list[Value]:
    results = {value for op in ops for value in op.results}
    read = dict.fromkeys(value for op in ops for value in op.operands)
    return [
        value
        for value in read
        if value not in results and value.kind in {"tensor", "scalar"} and value.constant is None
    ]


def _outputs(ops: Sequence[Op], lowered: Lowered) -> list[Value]:
    inside = set(ops)
    outside = {value for op in lowered.ops if op not in inside for value in op.operands} | set(
        lowered.outputs
    )
    return [value for op in ops for value in op.results if value in outside]


def _bytes(value: Value) -> int | None:
    size = _BYTES.get(value.dtype)
    if size is None or value.shape is None or not all(map(is_known, value.shape)):
        return None
    for item in value.shape:
        size *= int(item or 0)
    return size


def _shape(sizes: Iterable[Size]) -> str:
    shown = ["?" if size is None or str(size).startswith("?") else str(size) for size in sizes]
    return f"[{', '.join(shown)}]"


def _table(shown: Sequence[Shown], plans: Sequence[Plan], node: str | None) -> str:
    lines: list[str] = []
    for item in shown:
        lines.append(
            f"{item.name}: {len(item.group.nodes)} nodes, {item.saved()} bytes of intermediates "
            "saved"
        )
        for op in item.block(before=False).ops:
            lines += _lines(op)
        lines += [f"  bounded: {reason}" for reason in dict.fromkeys(_bounds(item))]
        lines.append("")
    counts: dict[str, int] = {}
    for plan in plans:
        for _, reason in plan.refusals:
            key = reason.partition(":")[0]
            counts[key] = counts.get(key, 0) + 1
    total = sum(len(plan.lowered.counts) for plan in plans)
    lowered = sum(not is_boundary(op) for plan in plans for op in plan.lowered.ops)
    lines.append(
        f"{total} nodes, {lowered} Generics, {len(shown)} groups"
        + (" with this node" if node else "")
    )
    lines += [f"  {key}: {count}" for key, count in sorted(counts.items())]
    return "\n".join(map(printable, lines))


def _lines(op: Op) -> list[str]:
    """An operation: its loops, the map of each operand, its payload."""
    if isinstance(op, Opaque):
        return [f"  {op.name} {_note(op)}"]
    loops = [
        f"d{loop} {kind} {_shape([size])[1:-1]}"
        for loop, (kind, size) in enumerate(zip(op.iterators, op.extents(), strict=True))
    ]
    lines = [f"  {_note(op)}", f"    loops: {', '.join(loops) or 'none'}"]
    for position, value in enumerate(op.operands):
        role = "in" if position < len(op.ins) else "out"
        note = " (stride decided at run time)" if op.maybe_broadcast_axes[position] else ""
        lines.append(f"    {role} {value.name} {value.type_text}: {op.maps[position].body()}{note}")
    names = ", ".join(item.name.partition(".")[2] for item in op.payload.ops)
    lines.append(f"    payload: {names or 'copy'}")
    return lines


def _bounds(shown: Shown) -> Iterable[str]:
    for node, reason in shown.plan.refusals:
        if node in shown.group.nodes:
            yield f"{node.op} {node.label}: {reason}"
    for op in shown.plan.lowered.ops:
        if is_boundary(op) and any(value in shown.outputs for value in op.operands):
            yield f"{op.label}: {shown.plan.lowered.reasons.get(op.origins[0], '')}"


def _dot(shown: Sequence[Shown], *, before: bool) -> str:
    lines = ["digraph linalg {", "  rankdir=TB; node [shape=box, fontname=monospace];"]
    for number, item in enumerate(shown):
        lines.append(f"  subgraph cluster_{number} {{ label={quoting.dot_string(item.name)};")
        ops = item.block(before=before).ops
        names = {op: f"g{number}_{place}" for place, op in enumerate(ops)}
        results = {value: op for op in ops for value in op.results}
        for op in ops:
            maps = [map_.body() for map_ in op.maps] if isinstance(op, Generic) else [op.name]
            lines.append(f"    {names[op]} [label={quoting.dot_string(_note(op), *maps)}];")
        for op in ops:
            lines += [
                f"    {names[results[value]]} -> {names[op]};"
                for value in op.operands
                if value in results
            ]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _no_group(node: str, plans: Sequence[Plan]) -> str:
    for plan in plans:
        for count, reason in plan.refusals:
            if node in {count.name, count.label}:
                return f'node "{node}" is in no group: {reason}'
        if any(node in {count.name, count.label} for count in plan.lowered.counts):
            return f'node "{node}" is in no group'
    return f'no node is called "{node}" where the pass runs'
