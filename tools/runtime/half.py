"""``make half HALF_ARGS=DIR``: the passes for ONNX Runtime on exports in half, beside their float32 twins.

DIR is what ``tools/models/half.py`` wrote. Each file is compiled with all passes of the vendor; a line has the kernels
that it got (A Attention, M MultiHeadAttention, Q GroupQueryAttention, S skip norms, N other norms, R RotaryEmbedding,
G BiasGelu, K QuickGelu, C Conv, B BatchNormalization that is left), those of the float32 twin, and the verdict of
``gehost.verify`` under no, right and left padding. A second compile must write the same bytes. Where a file has fewer
kernels than its twin, ``gehost explain`` names the cause; the last lines count the causes, and what computes in float32.
Exit code 1 where a number or a byte differs, or a kernel is missing without a cause that the twin lacks; files that no
runtime loads have to be refused.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnxruntime

from gehost import GehostError, Host, HostOptions, verify
from gehost.diagnose.explain.findings import Outcome
from gehost.diagnose.explain.run import explain
from gehost.verify.retype import element_types

ROOT = Path(__file__).parents[2]
LETTERS = {
    "Attention": "A",
    "MultiHeadAttention": "M",
    "GroupQueryAttention": "Q",
    "SkipLayerNormalization": "S",
    "SkipSimplifiedLayerNormalization": "S",
    "LayerNormalization": "N",
    "SimplifiedLayerNormalization": "N",
    "RMSNormalization": "N",
    "RotaryEmbedding": "R",
    "BiasGelu": "G",
    "QuickGelu": "K",
    "Conv": "C",
    "FusedConv": "C",
    "BatchNormalization": "B",
}
PASSES = {
    "A": ("OrtAttentionPass",),
    "M": ("OrtAttentionPass",),
    "Q": ("OrtCausalAttentionPass",),
    "S": ("OrtSkipNormPass", "OrtSkipRmsNormPass"),
    "N": ("LayerNormalizationFusionPass", "RMSNormalizationFusionPass"),
    "R": ("OrtRotaryPass",),
    "G": ("OrtBiasGeluPass",),
    "K": ("OrtQuickGeluPass",),
}
"""The passes that write each kernel."""
FORMS = ("f32", "f16", "bf16", "occ", "ortc")


def every_pass() -> HostOptions:
    """All vendors, and all passes for ONNX Runtime."""
    vendors = [ROOT / "vendors"]
    every = Host(HostOptions(vendors=vendors, plugins=False)).passes
    names = [spec.name for spec in every if spec.vendor == "onnxruntime"]
    return HostOptions(vendors=vendors, enable=names, assume=["no-empty-inputs"])


def feeds(path: Path, inputs: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """The inputs, in the file's types, with no, right and left padding of the last row."""
    for value in onnx.load(path, load_external_data=False).graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        inputs = inputs | {value.name: inputs[value.name].astype(dtype)}
    yield inputs
    mask = inputs.get("attention_mask")
    if mask is not None:
        third = mask.shape[1] // 3
        for masked in (slice(mask.shape[1] - third, None), slice(0, third)):
            padded = np.ones_like(mask)
            padded[-1, masked] = 0
            yield inputs | {"attention_mask": padded}


def loads(path: Path) -> bool:
    """Whether ONNX Runtime loads a file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - the runtime's errors have no common class
        return False
    return True


def causes(path: Path, letter: str, options: HostOptions) -> Counter[str]:
    """Why passes left candidates for a kernel, without names of nodes."""
    return Counter(
        f"{name}: {finding.cause}"
        for name in PASSES.get(letter, ())
        for finding in explain(path, name, options).findings
        if finding.outcome in (Outcome.REFUSED, Outcome.MISSED) and not finding.is_shallow
    )


def held_back(
    path: Path, twin: Path, missing: Counter[str], options: HostOptions
) -> Counter[str] | None:
    """Why a file has fewer kernels than its twin; None where that explains not each of them."""
    every = Counter[str]()
    for letter, count in missing.items():
        new = causes(path, letter, options) - causes(twin, letter, options)
        if new.total() < count:
            return None
        every += new
    return every


def in_float32(path: Path) -> Counter[str]:
    """What computes in float32 in a file of half: operators that have such a result."""
    model = onnx.load(path, load_external_data=False)
    types = element_types(model)
    return Counter(
        node.op_type
        for node in model.graph.node
        if node.op_type not in ("Cast", "Constant")
        and types.get(node.output[0]) == onnx.TensorProto.FLOAT
    )


def counted(
    path: Path, compiled: Path, inputs: dict[str, np.ndarray], passes: Host
) -> tuple[Counter[str], str]:
    """The kernels of a compiled file, and the verdict on its numbers."""
    try:
        passes.compile(path, compiled)
        again = compiled.with_suffix(".again.onnx")
        passes.compile(compiled, again)
    except GehostError as error:
        refused = f"refused{'' if loads(path) else ' (nor does the runtime load it)'}: {error}"
        return Counter(), refused
    nodes = onnx.load(compiled, load_external_data=False).graph.node
    kernels = Counter(LETTERS[node.op_type] for node in nodes if node.op_type in LETTERS)
    if compiled.read_bytes() != again.read_bytes():
        return kernels, "a second compile changes it"
    try:
        result = verify.compare(path, compiled, list(feeds(path, inputs)))
    except GehostError as error:
        return kernels, f"not judged: {error}"
    return kernels, result.summary()


def text(kernels: Counter[str]) -> str:
    return " ".join(f"{count} {letter}" for letter, count in sorted(kernels.items()))


class Table:
    """Compares files with their twins, prints a line for each, and counts causes."""

    def __init__(self, exports: Path, scratch: Path) -> None:
        self.wrong = 0
        self.causes = Counter[str]()
        self.float32 = Counter[str]()
        self._exports, self._scratch = exports, scratch
        self._options = every_pass()
        self._host = Host(self._options)

    def add(self, stem: str) -> None:
        """All forms of an export."""
        inputs = dict(np.load(self._exports / f"{stem.partition('.')[0]}.npz"))
        twin = Counter[str]()
        for form in FORMS:
            path, compiled = (at / f"{stem}.{form}.onnx" for at in (self._exports, self._scratch))
            if not path.exists():
                print(f"{path.stem:22} not made")
                continue
            kernels, verdict = counted(path, compiled, inputs, self._host)
            twin = kernels if form == "f32" else twin
            same = kernels == twin
            print(
                f"{path.stem:22} {text(kernels):20} {'' if same else f'({text(twin)})':22} "
                f"{verdict[:110]}",
                flush=True,
            )
            if verdict.startswith("refused (nor"):
                continue
            why: Counter[str] | None = Counter()
            if not same:
                first = self._exports / f"{stem}.f32.onnx"
                why = held_back(path, first, twin - kernels, self._options)
            self.wrong += why is None or not verdict.startswith("equal")
            self.causes += why or Counter()
            if form != "f32" and compiled.exists():
                self.float32 += in_float32(compiled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=Path)
    parser.add_argument("--only", default="", help="files whose name starts so")
    options = parser.parse_args()
    stems = sorted({path.name.rsplit(".", 2)[0] for path in options.exports.glob("*.onnx")})
    with tempfile.TemporaryDirectory() as directory:
        table = Table(options.exports, Path(directory))
        for stem in stems:
            if stem.startswith(options.only):
                table.add(stem)
    for title, counts in (
        ("kernels that the float32 twin has, held back by", table.causes),
        ("float32 between the half nodes", table.float32),
    ):
        print(f"{title}:{'' if counts else ' none'}")
        for name, count in counts.most_common():
            print(f"{count:6} x {name}")
    print(
        f"{table.wrong} files differ from their float32 twin, in numbers, kernels or a second compile"
    )
    return bool(table.wrong)


if __name__ == "__main__":
    sys.exit(main())
