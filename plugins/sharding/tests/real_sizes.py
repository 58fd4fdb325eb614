"""Decoders at their real sizes, as models without weight data, and the plans that people make."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from gehost import UsageError
from gehost_sharding.hardware import Hardware
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import Pin

CLUSTER = Hardware(
    flops=4e14,
    memory_bandwidth=3e12,
    link_bandwidth=5e10,
    latency=1e-5,
    axis_bandwidth={"gpu": 4.5e11},
)
"""Nodes with fast links between their devices, and slower ones between nodes."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of a decoder; ``experts`` 0 is a dense one."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    experts: int = 0


SIZES = {
    "7B": Sizes(32, 4096, 32, 32, 11_008, 32_000),
    "70B": Sizes(80, 8192, 64, 8, 28_672, 32_000),
    "8x7B": Sizes(32, 4096, 32, 8, 14_336, 32_000, experts=8),
}
"""Llama 2 of two sizes, and a mixture of eight experts, of which a token uses two."""


def real_decoder(
    sizes: Sizes,
    *,
    batch: int,
    length: int,
    layers: int | None = None,
    elem_type: int = TensorProto.FLOAT16,
) -> onnx.ModelProto:
    """A Llama of opset 23; each weight goes through an Identity, where it may be gathered.

    Experts get tokens by a mask [batch, length, expert, place], an input of each layer, as in GShard:
    two experts a token, and a quarter more places than tokens.
    """
    head, width = sizes.width // sizes.heads, sizes.width
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [batch, length]),
        *(
            helper.make_tensor_value_info(name, elem_type, [batch, length, head // 2])
            for name in ("cos", "sin")
        ),
    ]

    def weight(name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=elem_type, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.data")
        weights.append(tensor)
        return name

    def add(op: str, operands: list[str], result: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, operands, [result], name=result, **attributes))
        return result

    def read(name: str, *shape: int) -> str:
        return add("Identity", [weight(name, *shape)], f"{name}.read")

    def product(x: str, name: str, *shape: int) -> str:
        return add("MatMul", [x, read(name, *shape)], f"{name}.y")

    def norm(x: str, name: str) -> str:
        return add("RMSNormalization", [x, weight(f"{name}.scale", width)], name, axis=-1)

    def gated(x: str, p: str, *shape: int) -> str:
        (*experts, rows, inner) = shape
        gate, up = product(x, f"{p}.gate", *shape), product(x, f"{p}.up", *shape)
        active = add("Swish", [gate], f"{p}.swish")
        both = add("Mul", [active, up], f"{p}.both")
        return product(both, f"{p}.down", *experts, inner, rows)

    x = add("Gather", [read("table", sizes.vocabulary, width), "ids"], "x")
    places = -(-length * 2 * 5 // (4 * max(sizes.experts, 1)) // 64) * 64
    for number in range(sizes.layers if layers is None else layers):
        p = f"l{number}"
        a = norm(x, f"{p}.norm1")
        q = product(a, f"{p}.q", width, width)
        k = product(a, f"{p}.k", width, sizes.kv_heads * head)
        v = product(a, f"{p}.v", width, sizes.kv_heads * head)
        q = add("RotaryEmbedding", [q, "cos", "sin"], f"{p}.qr", num_heads=sizes.heads)
        k = add("RotaryEmbedding", [k, "cos", "sin"], f"{p}.kr", num_heads=sizes.kv_heads)
        attended = add(
            "Attention",
            [q, k, v],
            f"{p}.attended",
            q_num_heads=sizes.heads,
            kv_num_heads=sizes.kv_heads,
            is_causal=1,
        )
        x = add("Add", [x, product(attended, f"{p}.o", width, width)], f"{p}.x1")
        b = norm(x, f"{p}.norm2")
        if sizes.experts:
            mask = [batch, length, sizes.experts, places]
            inputs.append(helper.make_tensor_value_info(f"{p}.mask", elem_type, mask))
            routed = product(b, f"{p}.router", width, sizes.experts)
            shares = add("Softmax", [routed], f"{p}.shares")
            sent = add("Einsum", [f"{p}.mask", b], f"{p}.sent", equation="gsec,gsm->egcm")
            tokens = add("Reshape", [sent, "tokens"], f"{p}.tokens")
            y = gated(tokens, p, sizes.experts, width, sizes.inner)
            back = add("Reshape", [y, "groups"], f"{p}.back")
            scaled = add("Einsum", [f"{p}.mask", shares], f"{p}.scaled", equation="gsec,gse->gsec")
            y = add("Einsum", [scaled, back], f"{p}.combined", equation="gsec,egcm->gsm")
        else:
            y = gated(b, p, width, sizes.inner)
        x = add("Add", [x, y], f"{p}.x2")
    logits = product(norm(x, "norm"), "head", width, sizes.vocabulary)
    for name, shape in (
        ("tokens", [sizes.experts, batch * places, width]),
        ("groups", [sizes.experts, batch, places, width]),
    ):
        if sizes.experts:
            weights.append(helper.make_tensor(name, TensorProto.INT64, [len(shape)], shape))
    outputs = [helper.make_tensor_value_info(logits, elem_type, [batch, length, sizes.vocabulary])]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 24)])


def manual_plans(
    graph: ModelGraph, mesh: Mesh, layers: int, *, data: tuple[str, ...], model: tuple[str, ...]
) -> dict[str, list[Pin]]:
    """Pins of the plans that people make: the batch over ``data``, the rest over ``model``.

    What pins leave open is the best that the search finds. A plan whose pins no size fits is left
    out.
    """
    names = {*graph.tensors}
    has_experts = "l0.router" in names

    def of_layers(*stems: str) -> list[str]:
        return [f"l{number}.{stem}" for number in range(layers) for stem in stems]

    def pins(tensors: list[str], dim: int, axes: tuple[str, ...]) -> list[str]:
        return [f"{tensor}={dim}:{axis}" for tensor in tensors for axis in axes]

    attention = [*pins(of_layers("q.read", "k.read", "v.read"), 1, model),
                 *pins(of_layers("o.read"), 0, model)]  # fmt: skip
    dense = [*pins(of_layers("gate.read", "up.read"), 1, model),
             *pins(of_layers("down.read"), 0, model)]  # fmt: skip
    experts = pins(of_layers("gate.read", "up.read", "down.read"), 0, model)
    batch = pins(["ids", "x"], 0, data)
    every = of_layers(*(f"{name}.read" for name in ("q", "k", "v", "o")))
    if not has_experts:
        every += of_layers(*(f"{name}.read" for name in ("gate", "up", "down")))
    tensor = [*batch, *attention, *([] if has_experts else dense)]
    plans = {
        "tensor": [*tensor, *pins(of_layers("x1", "x2"), -1, model)],
        "tensor and sequence": [*tensor, *pins(of_layers("x1", "x2"), 1, model)],
        "ZeRO": [*batch, *pins(every, -1, (*data, *model))],
    }
    if has_experts:
        plans = {f"{name}, experts": [*texts, *experts] for name, texts in plans.items()}
    parsed: dict[str, list[Pin]] = {}
    for name, texts in plans.items():
        with suppress(UsageError):
            parsed[name] = [Pin.parse(text, graph, mesh) for text in texts]
    return parsed
