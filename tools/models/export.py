"""Make the small ONNX models in this directory, their feeds and the README.

How to run (in a virtual environment of its own; the tests read only the files and never import torch)::

    pip install torch==2.13.0 transformers==5.23.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy==2.4.6
    python tools/models/export.py                # rewrites the files of tests/models
    python tools/models/export.py --out DIR      # writes the same files to DIR, for example to compare

The files in the repository were made by exactly these versions (CPU build of torch) on Python 3.11. All weights and
feeds come from seeded ``numpy.random.RandomState`` streams and nothing depends on time, on the process or on the place,
so a second run with the same versions writes the same bytes.

What is written:

* ``<family>.<export>.onnx`` for the families ``bert``, ``gpt2``, ``vit``, ``llama`` and ``convnet``; the exports are

  - ``ts17``, ``ts13``: the TorchScript exporter (``dynamo=False``) at opset 17 and 13;
  - ``dyn20``: the dynamo exporter at opset 20, ``optimize=True``;
  - ``raw18``: the dynamo exporter at opset 18, ``optimize=False``.

  All exports of one family hold the same weights and compute the same function.
* ``if.onnx``, ``loop.onnx``, ``scan.onnx``, ``local_function.onnx``, ``external.onnx`` (with ``external.onnx.data``)
  and ``ir3.onnx``, written by hand with ``onnx.parser``. Their nodes have no names.
* ``feeds/<file name without .onnx>.A.npz`` and ``.B.npz``: inputs; A and B differ in every dynamic dimension, and both
  differ from the sizes used to export. Exports of one family have equal feeds.
* ``README.md``: the table of models.

No weight is constant: biases, normalisation weights and running statistics are all drawn at random, so a rewrite that
drops or swaps one of them changes the outputs. The one exception is in the nature of attention: the bias of the keys
(in ``bert`` and ``vit``) adds the same to all scores of a row, which Softmax takes out again.

Each model is checked before the script ends: ``onnx.checker`` with full shape inference, the expected operator counts,
a run in onnxruntime with both feeds, finite outputs, and equality (to a tolerance) with the torch module or, for the
hand-made models, with ``onnx.reference``.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import onnx.reference
import onnxruntime
import torch
import transformers
from onnx import numpy_helper
from torch import nn

Feed = dict[str, np.ndarray]
Axes = dict[int, str]

SEED = 20240

#: Widths shared by the transformers.
VOCAB = 100
HIDDEN = 32
HEADS = 4
LAYERS = 2
INNER = 64
POSITIONS = 32
IMAGE = 16
PATCH = 4
CLASSES = 10

#: (batch, sequence) of the example used to export, of feed A and of feed B.
EXPORT_SIZE = (2, 6)
FEED_SIZES = MappingProxyType({"A": (3, 8), "B": (4, 13)})

#: Node metadata of the dynamo exporter that is dropped: large, and the traces name files of the exporting machine.
DROPPED_METADATA = frozenset(
    {"pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node", "pkg.torch.onnx.class_hierarchy"},
)

#: Limit on the size of everything written, in bytes.
SIZE_LIMIT = 6_000_000


# --------------------------------------------------------------------------------------------------------------------
# torch modules


def eager(config: Callable[..., Any], **settings: Any) -> Any:
    """Return a transformers configuration that asks for attention spelled out as MatMul, Softmax, MatMul."""
    return config(attn_implementation="eager", **settings)


class Bert(nn.Module):
    """A BERT encoder with pooler and eager attention."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.BertModel(
            eager(
                transformers.BertConfig,
                vocab_size=VOCAB,
                hidden_size=HIDDEN,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                intermediate_size=INNER,
                max_position_embeddings=POSITIONS,
            )
        )

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last hidden state and the pooled output."""
        result = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return result.last_hidden_state, result.pooler_output


class Gpt2(nn.Module):
    """A GPT-2 decoder with language model head, without a key/value cache."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(
            eager(
                transformers.GPT2Config,
                vocab_size=VOCAB,
                n_embd=HIDDEN,
                n_layer=LAYERS,
                n_head=HEADS,
                n_inner=INNER,
                n_positions=POSITIONS,
                bos_token_id=1,
                eos_token_id=2,
                use_cache=False,
            )
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).logits
        return logits


class Vit(nn.Module):
    """A vision transformer classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.ViTForImageClassification(
            eager(
                transformers.ViTConfig,
                hidden_size=HIDDEN,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                intermediate_size=INNER,
                image_size=IMAGE,
                patch_size=PATCH,
                num_labels=CLASSES,
            )
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return logits


class Llama(nn.Module):
    """A Llama decoder (RMSNorm, rotary embedding, grouped queries, SwiGLU), without a key/value cache."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.LlamaForCausalLM(
            eager(
                transformers.LlamaConfig,
                vocab_size=VOCAB,
                hidden_size=HIDDEN,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                num_key_value_heads=HEADS // 2,
                intermediate_size=INNER,
                max_position_embeddings=POSITIONS,
                use_cache=False,
            )
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).logits
        return logits


class ConvNet(nn.Module):
    """Conv-BN-Relu, a grouped Conv-BN-Relu, three branches concatenated before one Relu, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4, bias=True)
        self.grouped_norm = nn.BatchNorm2d(16)
        self.branch_1x1 = nn.Conv2d(16, 8, 1)
        self.branch_3x3 = nn.Conv2d(16, 8, 3, padding=1)
        self.branch_pool = nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = torch.relu(self.stem_norm(self.stem(image)))
        x = torch.relu(self.grouped_norm(self.grouped(x)))
        pooled = nn.functional.max_pool2d(x, 3, stride=1, padding=1)
        branches = [self.branch_1x1(x), self.branch_3x3(x), self.branch_pool(pooled)]
        x = torch.relu(torch.cat(branches, dim=1))
        x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        logits: torch.Tensor = self.head(x)
        return logits


def fill(module: nn.Module, seed: int) -> None:
    """Overwrite every floating-point parameter and running statistic of ``module`` with seeded random values.

    Matrices get zero-mean noise wide enough that attention is far from uniform; vectors named ``weight`` (those of
    normalisations) and variances lie around one, all other vectors (biases, means) around zero.
    """
    random = np.random.RandomState(seed)
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters())
    tensors.update(
        (k, v) for k, v in module.named_buffers() if k.endswith(("running_mean", "running_var"))
    )
    with torch.no_grad():
        for name in sorted(tensors):
            tensor = tensors[name]
            noise = random.standard_normal(tuple(tensor.shape))
            if tensor.ndim > 1:
                values = 0.15 * noise
            elif name.endswith("running_var"):
                values = 0.5 + np.abs(noise)
            elif name.endswith("weight"):
                values = 1.0 + 0.1 * noise
            else:
                values = 0.1 * noise
            tensor.copy_(torch.from_numpy(values.astype(np.float32)))


# --------------------------------------------------------------------------------------------------------------------
# feeds


def token_feed(size: tuple[int, int], seed: int, *, masked: bool, token_types: bool) -> Feed:
    """Return ids, mask and, on request, token types; ``masked`` pads the end of all rows but the first."""
    batch, sequence = size
    random = np.random.RandomState(seed)
    mask = np.ones(size, np.int64)
    if masked:
        for row in range(1, batch):
            mask[row, sequence - 2 * row - 1 :] = 0
    feed = {"input_ids": random.randint(0, VOCAB, size).astype(np.int64), "attention_mask": mask}
    if token_types:
        feed["token_type_ids"] = np.broadcast_to(np.arange(sequence) >= sequence // 2, size).astype(
            np.int64
        )
    return feed


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Return seeded float32 noise."""
    return (scale * np.random.RandomState(seed).standard_normal(shape)).astype(np.float32)


def bert_feed(size: tuple[int, int], seed: int, masked: bool) -> Feed:
    """Return inputs of ``bert``."""
    return token_feed(size, seed, masked=masked, token_types=True)


def decoder_feed(size: tuple[int, int], seed: int, masked: bool) -> Feed:
    """Return inputs of ``gpt2`` and ``llama``."""
    return token_feed(size, seed, masked=masked, token_types=False)


def vit_feed(size: tuple[int, int], seed: int, masked: bool) -> Feed:
    """Return inputs of ``vit``; only the batch is dynamic."""
    del masked
    return {"pixel_values": normal(seed, size[0], 3, IMAGE, IMAGE)}


def convnet_feed(size: tuple[int, int], seed: int, masked: bool) -> Feed:
    """Return inputs of ``convnet``; only the batch is dynamic."""
    del masked
    return {"image": normal(seed, size[0], 3, IMAGE, IMAGE)}


# --------------------------------------------------------------------------------------------------------------------
# torch exports


@dataclasses.dataclass(frozen=True)
class Expect:
    """Operator counts that must hold in a model, all subgraphs and functions included."""

    present: Mapping[str, int] = dataclasses.field(default_factory=dict)
    absent: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Family:
    """A torch module, its interface and the exports made of it."""

    name: str
    build: Callable[[], nn.Module]
    feed: Callable[[tuple[int, int], int, bool], Feed]
    axes: Axes
    outputs: Mapping[str, Axes]
    #: Export -> what the file is for, and what must be in it.
    exports: Mapping[str, tuple[str, Expect]]
    #: Keep BatchNormalization: the TorchScript exporter otherwise folds it into the convolution before it.
    keep_batch_norm: bool = False


@dataclasses.dataclass(frozen=True)
class Made:
    """A model that was written, for the checks and the README."""

    stem: str
    exporter: str
    purpose: str
    expect: Expect
    feeds: Mapping[str, Feed]
    #: Feed -> expected outputs, in order.
    reference: Callable[[Feed], Sequence[np.ndarray]]


TOKENS: Axes = {0: "batch", 1: "sequence"}
BATCH: Axes = {0: "batch"}

#: LayerNormalization as opset 13 has to write it, five times over (two per layer, one for embeddings or the end).
NORMS = 2 * LAYERS + 1
DECOMPOSED_NORM = {"ReduceMean": 2 * NORMS, "Sub": NORMS, "Sqrt": NORMS}
NO_FUSED = ("LayerNormalization", "Gelu")

FAMILIES = (
    Family(
        name="bert",
        build=Bert,
        feed=bert_feed,
        axes=TOKENS,
        outputs={"last_hidden_state": TOKENS, "pooler_output": BATCH},
        exports={
            "ts17": (
                "encoder; LayerNormalization nodes, Gelu as Erf",
                Expect({"LayerNormalization": NORMS, "Erf": LAYERS, "Softmax": LAYERS}, ("Gelu",)),
            ),
            "ts13": (
                "encoder; LayerNormalization decomposed, Gelu as Erf",
                Expect({**DECOMPOSED_NORM, "Pow": NORMS, "Erf": LAYERS}, NO_FUSED),
            ),
            "dyn20": (
                "encoder; LayerNormalization and Gelu nodes, node metadata",
                Expect({"LayerNormalization": NORMS, "Gelu": LAYERS, "Softmax": LAYERS}, ("Erf",)),
            ),
            "raw18": (
                "encoder as the dynamo exporter writes it before its optimizer: Gelu as Erf, many no-op nodes",
                Expect({"LayerNormalization": NORMS, "Erf": LAYERS, "Softmax": LAYERS}, ("Gelu",)),
            ),
        },
    ),
    Family(
        name="gpt2",
        build=Gpt2,
        feed=decoder_feed,
        axes=TOKENS,
        outputs={"logits": TOKENS},
        exports={
            "ts17": (
                "decoder; LayerNormalization nodes, Gelu as Tanh, Gemm between reshapes",
                Expect(
                    {"LayerNormalization": NORMS, "Tanh": LAYERS, "Gemm": 4 * LAYERS}, ("Gelu",)
                ),
            ),
            "ts13": (
                "decoder; LayerNormalization decomposed, Gelu as Tanh",
                Expect({**DECOMPOSED_NORM, "Pow": NORMS + LAYERS, "Tanh": LAYERS}, NO_FUSED),
            ),
            "dyn20": (
                "decoder; LayerNormalization nodes, Gelu as Tanh (no Gelu node even at opset 20), node metadata",
                Expect(
                    {"LayerNormalization": NORMS, "Tanh": LAYERS, "Gemm": 4 * LAYERS}, ("Gelu",)
                ),
            ),
        },
    ),
    Family(
        name="vit",
        build=Vit,
        feed=vit_feed,
        axes=BATCH,
        outputs={"logits": BATCH},
        exports={
            "ts17": (
                "image encoder, patch Conv; LayerNormalization nodes, Gelu as Erf",
                Expect({"LayerNormalization": NORMS, "Erf": LAYERS, "Conv": 1}, ("Gelu",)),
            ),
            "ts13": (
                "image encoder; LayerNormalization decomposed, Gelu as Erf",
                Expect({**DECOMPOSED_NORM, "Pow": NORMS, "Erf": LAYERS}, NO_FUSED),
            ),
            "dyn20": (
                "image encoder; LayerNormalization and Gelu nodes, node metadata",
                Expect({"LayerNormalization": NORMS, "Gelu": LAYERS, "Conv": 1}, ("Erf",)),
            ),
        },
    ),
    Family(
        name="llama",
        build=Llama,
        feed=decoder_feed,
        axes=TOKENS,
        outputs={"logits": TOKENS},
        exports={
            "ts17": (
                "decoder; RMSNorm decomposed, rotary embedding, grouped queries, SwiGLU",
                Expect(
                    {"ReduceMean": NORMS, "Pow": NORMS, "Sqrt": NORMS, "Sigmoid": LAYERS}, NO_FUSED
                ),
            ),
        },
    ),
    Family(
        name="convnet",
        build=ConvNet,
        feed=convnet_feed,
        axes=BATCH,
        outputs={"logits": BATCH},
        exports={
            "ts17": (
                "Conv-BatchNormalization-Relu (Conv with and without bias), Conv with group=4, Concat before Relu",
                Expect({"Conv": 5, "BatchNormalization": 2, "Concat": 1, "Relu": 3, "Gemm": 1}),
            ),
        },
        keep_batch_norm=True,
    ),
)

EXPORTERS = MappingProxyType(
    {
        "ts17": "torch.onnx.export(dynamo=False)",
        "ts13": "torch.onnx.export(dynamo=False)",
        "dyn20": "torch.onnx.export(dynamo=True, optimize=True)",
        "raw18": "torch.onnx.export(dynamo=True, optimize=False)",
    }
)


def export_torchscript(
    family: Family, module: nn.Module, example: Feed, opset: int, path: Path
) -> onnx.ModelProto:
    """Export by the TorchScript exporter."""
    axes = dict.fromkeys(example, family.axes)
    axes.update(family.outputs)
    training = (
        torch.onnx.TrainingMode.PRESERVE if family.keep_batch_norm else torch.onnx.TrainingMode.EVAL
    )
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(v) for v in example.values()),
        str(path),
        dynamo=False,
        opset_version=opset,
        input_names=list(example),
        output_names=list(family.outputs),
        dynamic_axes=axes,
        training=training,
    )
    return onnx.load(path)


def export_dynamo(
    family: Family, module: nn.Module, example: Feed, opset: int, *, optimize: bool
) -> onnx.ModelProto:
    """Export by the dynamo exporter."""
    program = torch.onnx.export(
        module,
        tuple(torch.from_numpy(v) for v in example.values()),
        None,
        dynamo=True,
        opset_version=opset,
        optimize=optimize,
        input_names=list(example),
        output_names=list(family.outputs),
        dynamic_shapes={name: dict(family.axes) for name in example},
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def torch_reference(module: nn.Module) -> Callable[[Feed], Sequence[np.ndarray]]:
    """Return a function that runs ``module`` on a feed."""

    def run(feed: Feed) -> Sequence[np.ndarray]:
        with torch.no_grad():
            result = module(*(torch.from_numpy(v) for v in feed.values()))
        return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]

    return run


def make_family(family: Family, seed: int, out: Path) -> Iterator[Made]:
    """Write all exports of ``family``."""
    for export, (purpose, expect) in family.exports.items():
        # A fresh module each time: an exporter may leave traces in the one it was given.
        torch.manual_seed(seed)
        module = family.build().eval()
        fill(module, seed)
        example = family.feed(EXPORT_SIZE, seed + 1, False)
        feeds = {
            letter: family.feed(size, seed + ord(letter), letter == "B")
            for letter, size in FEED_SIZES.items()
        }
        stem = f"{family.name}.{export}"
        path = out / f"{stem}.onnx"
        opset = int(export[-2:])
        with torch.no_grad():
            if export.startswith("ts"):
                model = export_torchscript(family, module, example, opset, path)
            else:
                model = export_dynamo(
                    family, module, example, opset, optimize=export.startswith("dyn")
                )
        strip(model)
        write(model, path)
        yield Made(stem, EXPORTERS[export], purpose, expect, feeds, torch_reference(module))


# --------------------------------------------------------------------------------------------------------------------
# models made by hand


@dataclasses.dataclass(frozen=True)
class HandMade:
    """A model in the ONNX textual syntax, with initializers to be drawn and sizes of the feeds."""

    name: str
    text: str
    purpose: str
    expect: Expect
    #: Initializers: name -> shape.
    weights: Mapping[str, tuple[int, ...]]
    #: Letter -> input -> a shape (drawn at random) or a value.
    feeds: Mapping[str, Mapping[str, tuple[int, ...] | np.ndarray]]
    #: The initializers to be kept in ``<name>.onnx.data``.
    external: Sequence[str] = ()


HAND_MADE = (
    HandMade(
        name="if",
        purpose="If: both branches capture a computed value and initializers of the outer graph; MatMul+Add everywhere",
        text="""
            <ir_version: 8, opset_import: ["" : 17]>
            if_model (float[N, 16] x, bool cond) => (float[N, 8] y) {
                m = MatMul (x, w0)
                a = Add (m, b0)
                h = Relu (a)
                picked = If (cond) <
                    then_branch = then_graph () => (float[N, 8] then_out) {
                        then_m = MatMul (h, w1)
                        then_a = Add (then_m, b1)
                        then_out = Relu (then_a)
                    },
                    else_branch = else_graph () => (float[N, 8] else_out) {
                        else_m = MatMul (h, w2)
                        else_out = Add (else_m, b2)
                    }
                >
                y = Tanh (picked)
            }
        """,
        expect=Expect({"If": 1, "MatMul": 3, "Add": 3, "Relu": 2}),
        weights={"w0": (16, 12), "b0": (12,), "w1": (12, 8), "b1": (8,), "w2": (12, 8), "b2": (8,)},
        feeds={
            "A": {"x": (2, 16), "cond": np.array(True)},
            "B": {"x": (5, 16), "cond": np.array(False)},
        },
    ),
    HandMade(
        name="loop",
        purpose="Loop with a trip-count input; the body captures initializers and a computed value; MatMul+Add inside",
        text="""
            <ir_version: 8, opset_import: ["" : 17]>
            loop_model (int64 trip_count, float[N, 8] x) => (float[N, 8] y, float[T, 8] trace) {
                scale = Sigmoid (x)
                keep_going = Constant <value = bool {1}> ()
                state, trace = Loop (trip_count, keep_going, x) <
                    body = body_graph (int64 i, bool go_in, float[N, 8] state_in)
                        => (bool go_out, float[N, 8] state_out, float[8] trace_out) {
                        go_out = Identity (go_in)
                        m = MatMul (state_in, w)
                        a = Add (m, b)
                        t = Tanh (a)
                        state_out = Mul (t, scale)
                        trace_out = ReduceMean <axes = [0], keepdims = 0> (state_out)
                    }
                >
                y_m = MatMul (state, w_out)
                y = Add (y_m, b_out)
            }
        """,
        expect=Expect({"Loop": 1, "MatMul": 2, "Add": 2, "Tanh": 1}),
        weights={"w": (8, 8), "b": (8,), "w_out": (8, 8), "b_out": (8,)},
        feeds={
            "A": {"trip_count": np.array(3, np.int64), "x": (2, 8)},
            "B": {"trip_count": np.array(5, np.int64), "x": (4, 8)},
        },
    ),
    HandMade(
        name="scan",
        purpose="Scan (a recurrent cell); the body captures initializers; two MatMul+Add inside",
        text="""
            <ir_version: 8, opset_import: ["" : 17]>
            scan_model (float[N, 8] h0, float[T, N, 6] x) => (float[N, 8] h_last, float[T, N, 8] y) {
                h_last, y = Scan (h0, x) <
                    num_scan_inputs = 1,
                    body = cell (float[N, 8] h_in, float[N, 6] x_t) => (float[N, 8] h_out, float[N, 8] y_t) {
                        xm = MatMul (x_t, w)
                        xa = Add (xm, b)
                        hm = MatMul (h_in, r)
                        ha = Add (hm, c)
                        s = Add (xa, ha)
                        h_out = Tanh (s)
                        y_t = Relu (h_out)
                    }
                >
            }
        """,
        expect=Expect({"Scan": 1, "MatMul": 2, "Add": 3}),
        weights={"w": (6, 8), "b": (8,), "r": (8, 8), "c": (8,)},
        feeds={"A": {"h0": (2, 8), "x": (3, 2, 6)}, "B": {"h0": (4, 8), "x": (7, 4, 6)}},
    ),
    HandMade(
        name="local_function",
        purpose="model-local function (MatMul+Add+LeakyRelu with an attribute parameter) called twice",
        text="""
            <ir_version: 8, opset_import: ["" : 17, "test.local" : 1]>
            local_function_model (float[N, 16] x) => (float[N, 8] y) {
                h = test.local.DenseLeaky <alpha = 0.1> (x, w1, b1)
                z = test.local.DenseLeaky <alpha = 0.3> (h, w2, b2)
                y = Tanh (z)
            }
            <domain: "test.local", opset_import: ["" : 17]>
            DenseLeaky <alpha> (data, weight, bias) => (result) {
                product = MatMul (data, weight)
                total = Add (product, bias)
                result = LeakyRelu <alpha: float = @alpha> (total)
            }
        """,
        expect=Expect({"DenseLeaky": 2, "MatMul": 1, "Add": 1, "LeakyRelu": 1}),
        weights={"w1": (16, 12), "b1": (12,), "w2": (12, 8), "b2": (8,)},
        feeds={"A": {"x": (2, 16)}, "B": {"x": (5, 16)}},
    ),
    HandMade(
        name="external",
        purpose="matrices in external.onnx.data, biases in the model file; MatMul+Add+Relu, MatMul+Add",
        text="""
            <ir_version: 8, opset_import: ["" : 17]>
            external_model (float[N, 24] x) => (float[N, 16] y) {
                m1 = MatMul (x, w1)
                a1 = Add (m1, b1)
                h = Relu (a1)
                m2 = MatMul (h, w2)
                y = Add (m2, b2)
            }
        """,
        expect=Expect({"MatMul": 2, "Add": 2, "Relu": 1}),
        weights={"w1": (24, 32), "b1": (32,), "w2": (32, 16), "b2": (16,)},
        feeds={"A": {"x": (2, 24)}, "B": {"x": (5, 24)}},
        external=("w1", "w2"),
    ),
    HandMade(
        name="ir3",
        purpose="IR version 3: every initializer is also a graph input; Conv, Relu, Gemm",
        text="""
            <ir_version: 3, opset_import: ["" : 9]>
            ir3_model (
                float[N, 3, 8, 8] x, float[8, 3, 3, 3] conv_w, float[8] conv_b, float[10, 128] fc_w, float[10] fc_b
            ) => (float[N, 10] y) {
                c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, conv_w, conv_b)
                r = Relu (c)
                f = Flatten <axis = 1> (r)
                y = Gemm <transB = 1> (f, fc_w, fc_b)
            }
        """,
        expect=Expect({"Conv": 1, "Relu": 1, "Flatten": 1, "Gemm": 1}),
        weights={"conv_w": (8, 3, 3, 3), "conv_b": (8,), "fc_w": (10, 128), "fc_b": (10,)},
        feeds={"A": {"x": (2, 3, 8, 8)}, "B": {"x": (5, 3, 8, 8)}},
    ),
)


def make_by_hand(spec: HandMade, seed: int, out: Path) -> Made:
    """Write one hand-made model."""
    model = onnx.parser.parse_model(spec.text)
    model.producer_name = "gehost-test-models"
    for offset, (name, shape) in enumerate(spec.weights.items()):
        values = normal(seed + offset, *shape, scale=0.3)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    feeds: dict[str, Feed] = {}
    for letter, inputs in spec.feeds.items():
        feeds[letter] = {
            name: value
            if isinstance(value, np.ndarray)
            else normal(seed + 10 * ord(letter) + offset, *value)
            for offset, (name, value) in enumerate(inputs.items())
        }
    reference = onnx.reference.ReferenceEvaluator(onnx.inliner.inline_local_functions(model))
    path = out / f"{spec.name}.onnx"
    data = out / f"{spec.name}.onnx.data"
    data.unlink(missing_ok=True)
    if spec.external:
        move_out(model, spec.external, data)
    write(model, path)
    return Made(
        spec.name,
        "by hand (onnx.parser)",
        spec.purpose,
        spec.expect,
        feeds,
        lambda feed: [np.asarray(v) for v in reference.run(None, feed)],
    )


def move_out(model: onnx.ModelProto, names: Sequence[str], data: Path) -> None:
    """Move the bytes of the initializers ``names`` to the file ``data`` beside the model."""
    content = bytearray()
    for tensor in model.graph.initializer:
        if tensor.name not in names:
            continue
        raw = tensor.raw_data
        content.extend(b"\0" * (-len(content) % 64))
        fields = {"location": data.name, "offset": str(len(content)), "length": str(len(raw))}
        content.extend(raw)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in fields.items():
            tensor.external_data.add(key=key, value=value)
    data.write_bytes(content)


# --------------------------------------------------------------------------------------------------------------------
# writing and checking


def walk(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a model, those of subgraphs and functions included."""
    stack: list[onnx.NodeProto] = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while stack:
        node = stack.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                stack.extend(graph.node)


def strip(model: onnx.ModelProto) -> None:
    """Remove doc strings and the large node metadata."""
    model.ClearField("doc_string")
    model.graph.ClearField("doc_string")
    values = [
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
        *model.graph.initializer,
    ]
    for item in (*walk(model), *values):
        item.ClearField("doc_string")
        retained = [p for p in item.metadata_props if p.key not in DROPPED_METADATA]
        if len(retained) != len(item.metadata_props):
            retained = [onnx.StringStringEntryProto(key=p.key, value=p.value) for p in retained]
            item.ClearField("metadata_props")
            item.metadata_props.extend(retained)


def write(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with a stable order of bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))


def write_feeds(result: Made, out: Path) -> None:
    """Write the feeds of a model."""
    directory = out / "feeds"
    directory.mkdir(exist_ok=True)
    for letter, feed in result.feeds.items():
        arrays: dict[str, Any] = dict(feed)
        np.savez(directory / f"{result.stem}.{letter}.npz", **arrays)


def check(result: Made, out: Path) -> None:
    """Raise unless the written model is valid, holds the expected operators and computes what it should."""
    path = out / f"{result.stem}.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path)
    counts = collections.Counter(node.op_type for node in walk(model))
    for op, count in result.expect.present.items():
        if counts[op] != count:
            raise AssertionError(f"{result.stem}: {counts[op]} nodes {op}, expected {count}")
    for op in result.expect.absent:
        if counts[op]:
            raise AssertionError(f"{result.stem}: {counts[op]} nodes {op}, expected none")
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size > 1 and array.dtype == np.float32 and np.ptp(array) == 0:
            raise AssertionError(f"{result.stem}: the initializer {tensor.name} is constant")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for letter in result.feeds:
        with np.load(out / "feeds" / f"{result.stem}.{letter}.npz") as stored:
            feed = {name: stored[name] for name in stored.files}
        outputs = session.run(None, feed)
        expected = result.reference(feed)
        if len(outputs) != len(expected):
            raise AssertionError(f"{result.stem}: {len(outputs)} outputs, expected {len(expected)}")
        for output, want in zip(outputs, expected, strict=True):
            array = np.asarray(output)
            if not np.isfinite(array).all():
                raise AssertionError(f"{result.stem}.{letter}: an output is not finite")
            np.testing.assert_allclose(
                array, want, rtol=1e-4, atol=1e-5, err_msg=f"{result.stem}.{letter}"
            )


README_HEAD = """# Test models

Small models with seeded random weights, written by `tools/models/export.py`; see its docstring for how to run it and for the package
versions that made these files. This file is written by the script as well.

`feeds/<name>.A.npz` and `feeds/<name>.B.npz` (for `<name>.onnx`) hold inputs of two different sizes. In the feeds B the
attention masks have zeros. All exports of one family (`bert.*`, ...) have the same weights, feeds and outputs.

"Nodes" counts the main graph and, after the slash where it differs, all subgraphs and functions as well, without the
`Constant` nodes in both cases; these stand in parentheses.

| file | exporter | opset | IR | nodes | bytes | what it is for |
| --- | --- | --- | --- | --- | --- | --- |
"""


def readme(all_made: Sequence[Made], out: Path) -> str:
    """Return the text of the README."""
    lines = []
    for result in all_made:
        path = out / f"{result.stem}.onnx"
        model = onnx.load(path, load_external_data=False)
        opset = next(o.version for o in model.opset_import if o.domain == "")
        main = [n for n in model.graph.node if n.op_type != "Constant"]
        everything = [n.op_type for n in walk(model)]
        constants = everything.count("Constant")
        nodes = str(len(main))
        if len(everything) - constants != len(main):
            nodes += f"/{len(everything) - constants}"
        if constants:
            nodes += f" (+{constants})"
        cells = (
            f"`{path.name}`",
            result.exporter if result.exporter.startswith("by hand") else f"`{result.exporter}`",
            opset,
            model.ir_version,
            nodes,
            path.stat().st_size,
            result.purpose,
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |\n")
    return README_HEAD + "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and check everything."""
    parser = argparse.ArgumentParser(description="Make the test models.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parents[2] / "tests" / "models",
        help="directory to write to",
    )
    out: Path = parser.parse_args(arguments).out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("transformers").setLevel(logging.ERROR)

    all_made: list[Made] = []
    for number, family in enumerate(FAMILIES):
        all_made.extend(make_family(family, SEED + 1000 * number, out))
    for number, spec in enumerate(HAND_MADE):
        all_made.append(make_by_hand(spec, SEED + 1000 * (len(FAMILIES) + number), out))
    for result in all_made:
        write_feeds(result, out)
        check(result, out)
        print(f"{result.stem}: ok")
    (out / "README.md").write_text(readme(all_made, out), encoding="utf-8")
    total = sum(p.stat().st_size for p in out.rglob("*") if p.suffix in {".onnx", ".data", ".npz"})
    print(f"{total} bytes")
    if total > SIZE_LIMIT:
        raise AssertionError(f"the models take {total} bytes, more than {SIZE_LIMIT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
