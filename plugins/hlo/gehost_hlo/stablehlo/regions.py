"""Operations with regions: reductions, windows, sorts, scatters, loops, branches, collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gehost_hlo.module import HloInstruction, Shape
from gehost_hlo.stablehlo.attributes import attribute, braces, field, groups, integers, window_text
from gehost_hlo.stablehlo.builder import Builder, Converter
from gehost_mlir.operations import Block, Operation

_Converts = Callable[[Converter, Builder, Operation], Sequence[HloInstruction]]


def _packed(
    b: Builder, o: Operation, opcode: str, attributes: dict[str, str]
) -> list[HloInstruction]:
    """One instruction, whose several results are a tuple."""
    shapes = [b.shape(kind) for kind in o.result_types]
    operands = [b.value(name) for name in o.operands]
    if len(shapes) == 1:
        return [b.add(opcode, operands, shapes[0], attributes)]
    shape = Shape("tuple", elements=tuple(shapes))
    whole = b.add(opcode, operands, shape, attributes, b.named(opcode))
    return [b.element(whole, index) for index in range(len(shapes))]


def _applied(c: Converter, b: Builder, o: Operation, number: int = 0, title: str = "") -> str:
    """The name of the computation of a region that captures constants only."""
    if number >= len(o.regions):
        raise b.reader.error(f"{o.name} has no region", o.position)
    name = f"{b.name}.{title or b.named('region')}"
    return c.region(b, o.regions[number], name, (), packed=False).name


def _reduce(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    applies = o.attributes.get("applies", "")
    if applies:
        kind = _tensor_text(o, len(o.operands) // 2)
        inner = Operation(applies, o.position, ("result",), ["left", "right"], result_types=[kind])
        finish = Operation("stablehlo.return", o.position, (), ["result"])
        o.regions = [Block([("left", kind), ("right", kind)], [inner, finish])]
    dimensions = braces(integers(attribute(o, "dimensions")))
    return _packed(b, o, "reduce", {"dimensions": dimensions, "to_apply": _applied(c, b, o)})


def _tensor_text(o: Operation, number: int) -> str:
    """The type of an initial value."""
    return o.operand_types[number] if number < len(o.operand_types) else o.result_types[0]


def _reduce_window(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    window = window_text(
        integers(attribute(o, "window_dimensions")),
        strides=o.attributes.get("window_strides", ""),
        padding=o.attributes.get("padding", ""),
        base=o.attributes.get("base_dilations", ""),
        dilation=o.attributes.get("window_dilations", ""),
    )
    return _packed(b, o, "reduce-window", {"window": window, "to_apply": _applied(c, b, o)})


def _select_and_scatter(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    window = window_text(
        integers(attribute(o, "window_dimensions")),
        strides=o.attributes.get("window_strides", ""),
        padding=o.attributes.get("padding", ""),
    )
    select, scatter = _applied(c, b, o, 0, "select"), _applied(c, b, o, 1, "scatter")
    return _packed(
        b, o, "select-and-scatter", {"window": window, "select": select, "scatter": scatter}
    )


def _sort(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    axis = integers(attribute(o, "dimension", default="-1"))[0]
    shape = b.value(o.operands[0]).shape
    assert shape is not None
    attributes = {
        "dimensions": braces([axis + shape.rank if axis < 0 else axis]),
        "is_stable": attribute(o, "is_stable", default=""),
        "to_apply": _applied(c, b, o, 0, "comparator"),
    }
    return _packed(b, o, "sort", attributes)


def _scatter(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    numbers = attribute(o, "scatter_dimension_numbers")
    attributes = {
        name: braces(integers(field(numbers, name)))
        for name in (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
        )
    }
    attributes["scatter_dims_to_operand_dims"] = braces(
        integers(field(numbers, "scatter_dims_to_operand_dims"))
    )
    attributes["index_vector_dim"] = field(numbers, "index_vector_dim") or "0"
    for name in ("indices_are_sorted", "unique_indices"):
        attributes[name] = attribute(o, name, default="").replace("false", "")
    attributes["to_apply"] = _applied(c, b, o)
    return _packed(b, o, "scatter", attributes)


def _map(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    dimensions = braces(integers(attribute(o, "dimensions")))
    return _packed(b, o, "map", {"dimensions": dimensions, "to_apply": _applied(c, b, o)})


# Control


def _while(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """The values that the regions read from outside go through the loop unchanged."""
    captured = c.captures(b, o.regions)
    title = b.named("while")
    state = [b.value(name) for name in (*o.operands, *captured)]
    condition = c.region(b, o.regions[0], f"{b.name}.{title}.condition", captured, packed=True)
    body = c.region(b, o.regions[1], f"{b.name}.{title}.body", captured, packed=True)
    b.operation = o
    initial = b.tuple(state, f"{title}.initial")
    assert initial.shape is not None
    attributes = {"condition": condition.name, "body": body.name}
    whole = b.add("while", [initial], initial.shape, attributes, title)
    return [b.element(whole, index) for index in range(len(o.operands))]


def _branches(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """``if`` and ``case``: each branch gets the values that it reads in a tuple."""
    title = b.named("conditional")
    operands = [b.value(o.operands[0])]
    names: list[str] = []
    root: Shape | None = None
    for number, block in enumerate(o.regions):
        captured = c.captures(b, [block])
        branch = c.region(b, block, f"{b.name}.{title}.branch{number}", captured, packed=True)
        b.operation = o
        values = [b.value(name) for name in captured]
        operands.append(b.tuple(values, f"{title}.operands{number}"))
        names.append(branch.name)
        root = branch.root.shape
    assert root is not None
    if o.name == "stablehlo.if":
        attributes = {"true_computation": names[0], "false_computation": names[1]}
    else:
        attributes = {"branch_computations": f"{{{', '.join(names)}}}"}
    if len(o.result_types) == 1:
        return [b.add("conditional", operands, root, attributes)]
    whole = b.add("conditional", operands, root, attributes, title)
    return [b.element(whole, index) for index in range(len(o.result_types))]


# Collectives


def _channel(o: Operation) -> str:
    handle = o.attributes.get("channel_handle", o.attributes.get("channel_id", ""))
    return field(handle, "handle") if "handle" in handle else str(*integers(handle)[:1])


def _replica_groups(c: Converter, o: Operation) -> str:
    """``{{0,1},{2,3}}`` of a dense constant, ``mesh['x'=2,'y'=2] {'x'}`` of axes of a mesh."""
    text = o.attributes.get("replica_groups", "")
    if "mesh_axes" in text:
        mesh = re.search(r"@([\w.$-]+)", text)
        axes = re.findall(r'(?:name = |axis_ref<)"([^"]+)"', text)
        sizes = re.findall(r'"([^"]+)"\s*=\s*([0-9]+)', c.meshes.get(mesh[1], "") if mesh else "")
        if not sizes or "sub_axis" in text:
            raise ValueError(
                "the mesh of its replica_groups is not in the text, or an axis is split"
            )
        named = ",".join(f"'{name}'={size}" for name, size in sizes)
        return f"mesh[{named}] {{{','.join(repr(axis) for axis in axes)}}}"
    if not text.startswith("dense"):
        return text
    rows = re.search(r"tensor<([0-9]+)x([0-9]+)x", text)
    numbers = integers(text)
    width = int(rows[2]) if rows is not None else len(numbers)
    if not width:
        return "{}"
    return groups(
        [[n for n in numbers[k : k + width] if n >= 0] for k in range(0, len(numbers), width)]
    )


def _collective(opcode: str, dimension: str = "") -> _Converts:
    def run(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
        attributes = {"channel_id": _channel(o), "replica_groups": _replica_groups(c, o)}
        if dimension:
            attributes["dimensions"] = braces(integers(attribute(o, dimension)))
        if "use_global_device_ids" in o.attributes:
            attributes["use_global_device_ids"] = "true"
        if o.regions:
            attributes["to_apply"] = _applied(c, b, o)
        return _packed(b, o, opcode, attributes)

    return run


def _all_to_all(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """HLO splits along one dimension; the parts are then put along another."""
    split, along = (
        integers(attribute(o, name))[0] for name in ("split_dimension", "concat_dimension")
    )
    count = integers(attribute(o, "split_count"))[0]
    attributes = {
        "channel_id": _channel(o),
        "replica_groups": _replica_groups(c, o),
        "dimensions": braces([split]),
    }
    x = b.value(o.operands[0])
    assert x.shape is not None
    title = b.named("all-to-all")
    if split == along:
        return [b.add("all-to-all", [x], x.shape, attributes)]
    dims = list(x.shape.dimensions)
    mixed = b.add("all-to-all", [x], x.shape, attributes, f"{title}.exchanged")
    parts = [*dims[:split], count, dims[split] // count, *dims[split + 1 :]]
    rows = b.add("reshape", [mixed], Shape(x.shape.type, tuple(parts)), name=f"{title}.parts")
    axes = [axis for axis in range(len(parts)) if axis != split]
    order = [*axes[:along], split, *axes[along:]]
    moved_dims = tuple(parts[axis] for axis in order)
    moved = b.add(
        "transpose",
        [rows],
        Shape(x.shape.type, moved_dims),
        {"dimensions": braces(order)},
        f"{title}.moved",
    )
    return [b.add("reshape", [moved], b.shape(o.result_types[0]))]


def _permute(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    text = attribute(o, "source_target_pairs")
    numbers = integers(text)
    rows = [numbers[k : k + 2] for k in range(0, len(numbers), 2)]
    attributes = {"channel_id": _channel(o), "source_target_pairs": groups(rows)}
    return _packed(b, o, "collective-permute", attributes)


def _manual_computation(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """A call between two custom calls that split and join arrays, as in HLO."""
    title = b.named("shard_map")
    body = c.region(b, o.regions[0], f"{b.name}.{title}.body", (), packed=False)
    b.operation = o
    local = [b.shape(kind) for _, kind in o.regions[0].arguments]
    operands = [b.value(name) for name in o.operands]
    into = _boundary(b, o, "GlobalToLocalShape", operands, local, f"{title}.local")
    assert body.root.shape is not None
    called = b.add("call", into, body.root.shape, {"to_apply": body.name}, f"{title}.call")
    results = [called]
    if body.root.shape.elements is not None:
        results = [b.element(called, index) for index in range(len(body.root.shape.elements))]
    return _boundary(b, o, "LocalToGlobalShape", results, list(map(b.shape, o.result_types)), title)


def _boundary(
    b: Builder,
    o: Operation,
    target: str,
    operands: list[HloInstruction],
    shapes: list[Shape],
    name: str,
) -> list[HloInstruction]:
    kind = "in_shardings" if target == "GlobalToLocalShape" else "out_shardings"
    axes = re.findall(r'"[^"]+"', attribute(o, "manual_axes"))
    sharding = attribute(o, kind)
    if not sharding.startswith("#"):
        sharding = f"#sdy.sharding_per_value<{sharding}>"
    texts = {
        kind: sharding,
        "manual_axes": f"#sdy<manual_axes{{{', '.join(axes)}}}>",
    }
    rows = [f'xla.sdy.{key}="{_quoted(text)}"' for key, text in texts.items()]
    attributes = {
        "custom_call_target": f'"xla.sdy.{target}"',
        "frontend_attributes": f"{{{','.join(rows)}}}",
    }
    if len(shapes) == 1:
        return [b.add("custom-call", operands, shapes[0], attributes, name)]
    whole = b.add("custom-call", operands, Shape("tuple", elements=tuple(shapes)), attributes, name)
    return [b.element(whole, index) for index in range(len(shapes))]


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')


TABLE: dict[str, _Converts] = {
    "sdy.manual_computation": _manual_computation,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.sort": _sort,
    "stablehlo.scatter": _scatter,
    "stablehlo.map": _map,
    "stablehlo.while": _while,
    "stablehlo.if": _branches,
    "stablehlo.case": _branches,
    "stablehlo.all_reduce": _collective("all-reduce"),
    "stablehlo.reduce_scatter": _collective("reduce-scatter", "scatter_dimension"),
    "stablehlo.all_gather": _collective("all-gather", "all_gather_dim"),
    "stablehlo.collective_broadcast": _collective("collective-broadcast"),
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _permute,
}
