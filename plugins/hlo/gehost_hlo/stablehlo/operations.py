"""One function for each operation of StableHLO that is more than an opcode of HLO."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gehost_hlo.module import HloInstruction, Shape
from gehost_hlo.stablehlo import chlo, regions
from gehost_hlo.stablehlo.attributes import attribute, braces, field, integers, window_text, word
from gehost_hlo.stablehlo.builder import Builder, Converter
from gehost_hlo.stablehlo.types import elements_of, literal_text
from gehost_mlir.operations import Operation

_PLAIN = frozenset(
    [
        "abs",
        "add",
        "after_all",
        "and",
        "atan2",
        "bitcast_convert",
        "cbrt",
        "ceil",
        "clamp",
        "complex",
        "convert",
        "cosine",
        "count_leading_zeros",
        "create_token",
        "divide",
        "dynamic_update_slice",
        "exponential",
        "exponential_minus_one",
        "floor",
        "imag",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "partition_id",
        "popcnt",
        "power",
        "real",
        "remainder",
        "replica_id",
        "reshape",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
    ]
)
"""Opcodes of the same name in HLO, without attributes."""
_NAMED = {"create_token": "after-all"}

_Converts = Callable[[Converter, Builder, Operation], Sequence[HloInstruction]]


def convert_operation(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """Make the instructions of an operation; returns those of its results."""
    dialect, _, name = o.name.rpartition(".")
    if dialect == "chlo":
        return chlo.convert(c, b, o, name)
    function = _TABLE.get(o.name) or regions.TABLE.get(o.name)
    if function is not None:
        return function(c, b, o)
    if dialect == "stablehlo" and name in _PLAIN:
        return [_plain(b, o, _NAMED.get(name, name.replace("_", "-")), {})]
    raise c.reader.error(f"{o.name} is not translated", o.position)


def _plain(b: Builder, o: Operation, opcode: str, attributes: dict[str, str]) -> HloInstruction:
    """One instruction of the operands, whose shape is that of the first result."""
    operands = [b.value(name) for name in o.operands]
    return b.add(opcode, operands, result(b, o), attributes)


def result(b: Builder, o: Operation) -> Shape:
    """The shape of the one result."""
    if len(o.result_types) != 1:
        raise b.reader.error(f"{o.name} has {len(o.result_types)} results", o.position)
    return b.shape(o.result_types[0])


def _with(opcode: str, **attributes: Callable[[Operation], str]) -> _Converts:
    """An opcode of HLO, whose attributes are made of those of the operation."""

    def run(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
        return [_plain(b, o, opcode, {name: make(o) for name, make in attributes.items()})]

    return run


def _dims(*names: str) -> Callable[[Operation], str]:
    return lambda o: braces(integers(attribute(o, *names)))


def _number(*names: str, default: str = "") -> Callable[[Operation], str]:
    return lambda o: str(integers(attribute(o, *names, default=default))[0])


def _constant(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """A splat is a broadcast scalar."""
    shape, words = elements_of(attribute(o, "value"), c.reader.resources)
    if words is None:
        return [b.constant("{...}", shape, b.named("constant"))]
    if len(words) == 1 and shape.dimensions:
        one = b.constant(words[0], Shape(shape.type), b.named("constant") + ".scalar")
        return [b.add("broadcast", [one], shape, {"dimensions": "{}"})]
    return [b.constant(literal_text(words, shape.dimensions), shape, b.named("constant"))]


def _broadcast_in_dim(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """A dimension of size 1 that becomes larger goes away first."""
    x, shape = b.value(o.operands[0]), result(b, o)
    axes = integers(attribute(o, "dims", "broadcast_dimensions"))
    return [b.broadcast(x, shape, axes)]


def _slice(o: Operation) -> str:
    rows = zip(
        *(integers(attribute(o, name)) for name in ("start_indices", "limit_indices", "strides")),
        strict=True,
    )
    return f"{{{', '.join(f'[{first}:{limit}:{step}]' for first, limit, step in rows)}}}"


def _padding(o: Operation) -> str:
    rows = zip(
        integers(attribute(o, "low", "edge_padding_low")),
        integers(attribute(o, "high", "edge_padding_high")),
        integers(attribute(o, "interior", "interior_padding")),
        strict=True,
    )
    return "x".join(f"{low}_{high}_{interior}" for low, high, interior in rows)


def _compare(o: Operation) -> dict[str, str]:
    words = o.attributes.get("words", "").split()
    direction = words[0] if words else word(attribute(o, "comparison_direction"))
    kind = words[1] if len(words) > 1 else word(attribute(o, "compare_type", default=""))
    return {"direction": direction, "type": "TOTALORDER" if kind == "TOTALORDER" else ""}


def _comparison(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    return [_plain(b, o, "compare", _compare(o))]


def _dot_general(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    rest = b.value(o.operands[0])
    if o.name == "stablehlo.dot":
        assert rest.shape is not None
        dims = {
            "lhs_contracting_dims": braces([rest.shape.rank - 1]),
            "rhs_contracting_dims": "{0}",
        }
        return [_plain(b, o, "dot", dims)]
    dims: dict[str, str] = {}
    for pretty, ending in (
        ("batching_dims", "batch_dims"),
        ("contracting_dims", "contracting_dims"),
    ):
        sides = o.attributes.get(pretty, "").split(" x ")
        for side, text in zip(("lhs", "rhs"), sides if len(sides) == 2 else ("", ""), strict=True):
            long = f"{side}_{'batching' if ending == 'batch_dims' else 'contracting'}_dimensions"
            text = text or field(o.attributes.get("dot_dimension_numbers", ""), long)
            dims[f"{side}_{ending}"] = braces(integers(text)) if integers(text) else ""
    return [_plain(b, o, "dot", dims)]


_CONV = re.compile(r"\[([^\]]*)\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]")


def _convolution(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    labels = _CONV.search(attribute(o, "dimension_numbers"))
    kernel = b.value(o.operands[1]).shape
    if labels is None or kernel is None:
        raise b.reader.error("cannot read the dimension numbers", o.position)
    left, middle, right = (re.sub(r"[\s,]", "", text) for text in labels.groups())
    spatial = [axis for axis, letter in enumerate(middle) if letter.isdigit()]
    sizes = [
        kernel.dimensions[axis] for axis in sorted(spatial, key=lambda axis: int(middle[axis]))
    ]
    groups = {
        name: str(integers(o.attributes.get(name, "1"))[0])
        for name in ("feature_group_count", "batch_group_count")
    }
    window = window_text(
        sizes,
        strides=o.attributes.get("window_strides", ""),
        padding=o.attributes.get("padding", ""),
        base=o.attributes.get("lhs_dilation", ""),
        dilation=o.attributes.get("rhs_dilation", ""),
        reversal=o.attributes.get("window_reversal", ""),
    )
    attributes = {"window": window, "dim_labels": f"{left}_{middle}->{right}", **groups}
    return [_plain(b, o, "convolution", attributes)]


def _gather(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    numbers = attribute(o, "dimension_numbers")
    attributes = {
        name: braces(integers(field(numbers, name)))
        for name in (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
        )
    }
    attributes["index_vector_dim"] = field(numbers, "index_vector_dim") or "0"
    attributes["slice_sizes"] = braces(integers(attribute(o, "slice_sizes")))
    return [_plain(b, o, "gather", attributes)]


def _call(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """A call of a function, whose several results are a tuple."""
    callee = attribute(o, "callee", "decomposition").strip('"@')
    computation = c.function(callee, o.position)
    shape = computation.root.shape
    assert shape is not None
    whole = b.add(
        "call", [b.value(name) for name in o.operands], shape, {"to_apply": callee}, b.named("call")
    )
    return unpacked(b, whole, len(o.result_types))


def unpacked(b: Builder, whole: HloInstruction, count: int) -> list[HloInstruction]:
    """The results of an operation of ``count`` results."""
    if count == 1 and not (whole.shape is not None and whole.shape.is_tuple):
        return [whole]
    return [b.element(whole, index) for index in range(count)]


def _composite(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    name = attribute(o, "name").strip('"')
    attributes = o.attributes.get("composite_attributes", "")
    if name == "chlo.top_k":
        o.attributes["k"] = field(attributes, "k").partition(":")[0]
        return chlo.top_k(b, o)
    return _call(c, b, o)


def _custom_call(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    target = attribute(o, "call_target_name").strip('"@')
    if target.startswith(("mhlo.", "chlo.")):
        return chlo.convert(c, b, o, target.partition(".")[2])
    if target == "ApproxTopK":
        return _approximate_top_k(c, b, o)
    attributes = {"custom_call_target": f'"{target}"'}
    sharding = o.attributes.get("mhlo.sharding", "").strip('"')
    if sharding.startswith("{"):
        attributes["sharding"] = sharding
    config = o.attributes.get("backend_config", o.attributes.get("mhlo.backend_config", ""))
    if config not in {"", '""'}:
        attributes["backend_config"] = config
    shapes = [b.shape(kind) for kind in o.result_types]
    shape = shapes[0] if len(shapes) == 1 else Shape("tuple", elements=tuple(shapes))
    operands = [b.value(name) for name in o.operands]
    whole = b.add("custom-call", operands, shape, attributes, b.named("custom-call"))
    return unpacked(b, whole, len(shapes))


def _approximate_top_k(c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    """A sort by its comparator, cut: exact, as XLA's fallback is."""
    comparator = re.search(r"@([\w.$-]+)", attribute(o, "called_computations"))
    config = attribute(o, "mhlo.backend_config", "backend_config")
    (axis,) = integers(field(config, "reduction_dim"))[:1] or [-1]
    if comparator is None or axis < 0:
        raise ValueError("it names no comparator or dimension")
    operands = [b.value(name) for name in o.operands[: len(o.operands) // 2]]
    shapes = tuple(operand.shape for operand in operands if operand.shape is not None)
    attributes = {
        "dimensions": braces([axis]),
        "is_stable": "true",
        "to_apply": c.function(comparator[1], o.position).name,
    }
    title = b.named("top-k")
    whole = b.add("sort", operands, Shape("tuple", elements=shapes), attributes, f"{title}.sort")
    results: list[HloInstruction] = []
    for index, kind in enumerate(o.result_types):
        shape = b.shape(kind)
        cut = ", ".join(f"[0:{size}]" for size in shape.dimensions)
        element = b.element(whole, index)
        results.append(b.add("slice", [element], shape, {"slice": f"{{{cut}}}"}))
    return results


def _rng_bits(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    algorithm = word(attribute(o, "algorithm", "rng_algorithm")).lower()
    shape = Shape("tuple", elements=tuple(map(b.shape, o.result_types)))
    operands = [b.value(name) for name in o.operands]
    attributes = {"algorithm": f"rng_{algorithm}"}
    whole = b.add("rng-bit-generator", operands, shape, attributes, b.named("rng-bit-generator"))
    return unpacked(b, whole, 2)


def _fft(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    kind = word(attribute(o, "type", "fft_type"))
    length = braces(integers(attribute(o, "length", "fft_length")))
    return [_plain(b, o, "fft", {"fft_type": kind, "fft_length": length})]


def _element(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    return [b.element(b.value(o.operands[0]), integers(attribute(o, "index"))[0])]


def _tuple(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    return [b.tuple([b.value(name) for name in o.operands])]


def _barrier(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    operands = [b.value(name) for name in o.operands]
    if len(operands) == 1:
        return [_plain(b, o, "opt-barrier", {})]
    packed = b.tuple(operands, f"{b.named('opt-barrier')}.operands")
    assert packed.shape is not None
    whole = b.add("opt-barrier", [packed], packed.shape, name=b.named("opt-barrier"))
    return unpacked(b, whole, len(operands))


def _same(_c: Converter, b: Builder, o: Operation) -> Sequence[HloInstruction]:
    return [b.value(o.operands[0])]


def _precision(o: Operation) -> tuple[str, str]:
    """The widths of ``format = e5m10``, or of two attributes."""
    match = re.fullmatch(r"e([0-9]+)m([0-9]+)", o.attributes.get("format", ""))
    if match is not None:
        return match[1], match[2]
    exponent, mantissa = (
        integers(attribute(o, name))[0] for name in ("exponent_bits", "mantissa_bits")
    )
    return str(exponent), str(mantissa)


_TABLE: dict[str, _Converts] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.transpose": _with("transpose", dimensions=_dims("dims", "permutation")),
    "stablehlo.reverse": _with("reverse", dimensions=_dims("dims", "dimensions")),
    "stablehlo.concatenate": _with("concatenate", dimensions=_dims("dim", "dimension")),
    "stablehlo.iota": _with("iota", iota_dimension=_number("dim", "iota_dimension")),
    "stablehlo.slice": _with("slice", slice=_slice),
    "stablehlo.pad": _with("pad", padding=_padding),
    "stablehlo.dynamic_slice": _with(
        "dynamic-slice", dynamic_slice_sizes=_dims("sizes", "slice_sizes")
    ),
    "stablehlo.get_dimension_size": _with(
        "get-dimension-size", dimensions=_dims("dim", "dimension")
    ),
    "stablehlo.reduce_precision": _with(
        "reduce-precision",
        exponent_bits=lambda o: _precision(o)[0],
        mantissa_bits=lambda o: _precision(o)[1],
    ),
    "stablehlo.cholesky": _with("cholesky", lower=lambda o: attribute(o, "lower", default="true")),
    "stablehlo.triangular_solve": _with(
        "triangular-solve",
        left_side=lambda o: attribute(o, "left_side"),
        lower=lambda o: attribute(o, "lower"),
        unit_diagonal=lambda o: attribute(o, "unit_diagonal"),
        transpose_a=lambda o: word(attribute(o, "transpose_a")),
    ),
    "stablehlo.compare": _comparison,
    "stablehlo.dot": _dot_general,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.convolution": _convolution,
    "stablehlo.gather": _gather,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.rng_bit_generator": _rng_bits,
    "stablehlo.fft": _fft,
    "stablehlo.get_tuple_element": _element,
    "stablehlo.tuple": _tuple,
    "stablehlo.optimization_barrier": _barrier,
    "sdy.sharding_constraint": _same,
    "call": _call,
    "func.call": _call,
}
