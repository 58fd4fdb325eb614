"""``make half HALF_ARGS=DIR``: the passes for ONNX Runtime on exports in half, beside their float32 twins.

DIR is what ``tools/models/half.py`` wrote. Each file is compiled with all passes of the vendor; a line has the kernels
that it got (A Attention, M MultiHeadAttention, Q GroupQueryAttention, S skip norms, N other norms, R RotaryEmbedding,
G BiasGelu, K QuickGelu, C Conv, B BatchNormalization that is left), those of the float32 twin, and the verdict of
``gehost.verify`` under no, right and left padding. A second compile must write the same bytes. Exit code 1 where a
count, a number or a byte differs; files that no runtime loads have to be refused.
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
FORMS = ("f32", "f16", "bf16", "occ", "ortc")


def host() -> Host:
    """A host with all vendors, and all passes for ONNX Runtime."""
    vendors = [ROOT / "vendors"]
    every = Host(HostOptions(vendors=vendors, plugins=False)).passes
    names = [spec.name for spec in every if spec.vendor == "onnxruntime"]
    return Host(HostOptions(vendors=vendors, enable=names, assume=["no-empty-inputs"]))


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


def counted(
    path: Path, compiled: Path, inputs: dict[str, np.ndarray], passes: Host
) -> tuple[str, str]:
    """The kernels of a compiled file, and the verdict on its numbers."""
    try:
        passes.compile(path, compiled)
        again = compiled.with_suffix(".again.onnx")
        passes.compile(compiled, again)
    except GehostError as error:
        return "", f"refused{'' if loads(path) else ' (nor does the runtime load it)'}: {error}"
    nodes = onnx.load(compiled, load_external_data=False).graph.node
    counts = Counter(LETTERS[node.op_type] for node in nodes if node.op_type in LETTERS)
    kernels = " ".join(f"{count} {letter}" for letter, count in sorted(counts.items()))
    if compiled.read_bytes() != again.read_bytes():
        return kernels, "a second compile changes it"
    try:
        result = verify.compare(path, compiled, list(feeds(path, inputs)))
    except GehostError as error:
        return kernels, f"not judged: {error}"
    return kernels, result.summary()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=Path)
    parser.add_argument("--only", default="", help="files whose name starts so")
    options = parser.parse_args()
    passes, wrong = host(), 0
    stems = sorted({path.name.rsplit(".", 2)[0] for path in options.exports.glob("*.onnx")})
    with tempfile.TemporaryDirectory() as directory:
        for stem in stems:
            if not stem.startswith(options.only):
                continue
            inputs = dict(np.load(options.exports / f"{stem.partition('.')[0]}.npz"))
            twin = ""
            for form in FORMS:
                path = options.exports / f"{stem}.{form}.onnx"
                if not path.exists():
                    print(f"{path.stem:22} not made")
                    continue
                kernels, verdict = counted(path, Path(directory, path.name), inputs, passes)
                twin = kernels if form == "f32" else twin
                same = kernels == twin
                invalid = verdict.startswith("refused (nor")
                wrong += not invalid and (not same or not verdict.startswith("equal"))
                print(
                    f"{path.stem:22} {kernels:20} {'' if same else f'({twin})':22} {verdict[:110]}",
                    flush=True,
                )
    print(
        f"{wrong} files differ from their float32 twin, in kernels or numbers, or by a second compile"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
