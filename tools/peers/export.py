"""``make peers``: twelve small exports beside the corpus, into a folder, with random seeded weights.

It runs in an environment of its own, with torch, torchvision and transformers; no test needs it.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

# torchvision's own kernels may be of another build of torch; none of them is used here
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import torchvision  # noqa: E402

IMAGE = (1, 3, 64, 64)


class Yolo(nn.Module):
    """A detector with SiLU, an upsampled branch, and boxes from a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = self._block(3, 8, 2), self._block(8, 16, 2)
        self.deep, self.head = self._block(16, 16, 2), self._block(32, 16, 1)
        self.boxes = nn.Conv2d(16, 3 * 9, 1)

    @staticmethod
    def _block(inputs: int, outputs: int, stride: int) -> nn.Module:
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shallow = self.down(self.stem(x))
        up = nn.functional.interpolate(self.deep(shallow), scale_factor=2.0)
        raw = self.boxes(self.head(torch.cat([up, shallow], 1)))
        batch, _, rows, columns = raw.shape
        raw = raw.view(batch, 3, 9, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
        grid = torch.stack(
            torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy"), -1
        )
        centers = (raw[..., :2] * 2 - 0.5 + grid) * 4
        return torch.cat([centers, raw[..., 2:]], -1).view(batch, -1, 9)


def _swin() -> nn.Module:
    return torchvision.models.swin_transformer.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=24,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[4, 4],
        num_classes=10,
    )


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=500,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
    )
    return transformers.BertModel(config)


def _modernbert() -> nn.Module:
    config = transformers.ModernBertConfig(
        vocab_size=500, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        pad_token_id=0, reference_compile=False, attn_implementation="eager",
    )  # fmt: skip
    return transformers.ModernBertModel(config)


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=16,
        max_source_positions=50, pad_token_id=0, vocab_size=100, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=64,
    )  # fmt: skip
    return transformers.WhisperModel(config).get_encoder()


def _densenet() -> nn.Module:
    return torchvision.models.DenseNet(8, (2, 2, 2, 2), 16, num_classes=10)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]], bool, bool]] = {
    # name: make, inputs, by dynamo, in training mode (BatchNormalization stays)
    "resnet18_bn.ts": (lambda: torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10), lambda: (torch.randn(*IMAGE),), False, True),
    "mobilenetv3.ts": (lambda: torchvision.models.mobilenet_v3_small(width_mult=0.35), lambda: (torch.randn(*IMAGE),), False, False),
    "shufflenetv2.ts": (torchvision.models.shufflenet_v2_x0_5, lambda: (torch.randn(*IMAGE),), False, False),
    "squeezenet.dyn": (torchvision.models.squeezenet1_1, lambda: (torch.randn(*IMAGE),), True, False),
    "densenet.dyn": (_densenet, lambda: (torch.randn(*IMAGE),), True, False),
    "swin.ts": (_swin, lambda: (torch.randn(*IMAGE),), False, False),
    "swin.dyn": (_swin, lambda: (torch.randn(*IMAGE),), True, False),
    "lraspp.ts": (lambda: torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None), lambda: (torch.randn(*IMAGE),), False, False),
    "yolo.ts": (Yolo, lambda: (torch.randn(*IMAGE),), False, False),
    "bert_pool.ts": (_bert, lambda: (torch.randint(0, 500, (2, 16)), torch.ones(2, 16, dtype=torch.long)), False, False),
    "modernbert.dyn": (_modernbert, lambda: (torch.randint(0, 500, (2, 16)), torch.ones(2, 16, dtype=torch.long)), True, False),
    "whisper_encoder.ts": (_whisper, lambda: (torch.randn(1, 16, 100),), False, False),
}  # fmt: skip


class _Outputs(nn.Module):
    """Only tensors come out."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> Any:
        result = self.module(*inputs)
        if isinstance(result, torch.Tensor):
            return result
        return tuple(one for one in result.values() if isinstance(one, torch.Tensor))


def main(folder: Path) -> int:
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, inputs, dynamo, training) in MODELS.items():
        target = folder / f"{name}.onnx"
        if target.exists():
            continue
        torch.manual_seed(0)
        try:
            module = _Outputs(make().eval())
            for item in module.modules():
                if isinstance(item, nn.BatchNorm2d):
                    nn.init.uniform_(item.running_mean, -0.2, 0.2)
                    nn.init.uniform_(item.running_var, 0.5, 1.5)
            options: dict[str, Any] = {"dynamo": dynamo, "opset_version": 18 if dynamo else 17}
            if training:
                options["training"] = torch.onnx.TrainingMode.PRESERVE
                options["do_constant_folding"] = False
            if dynamo:
                options["external_data"] = False
            torch.onnx.export(module, inputs(), str(target), **options)
            print(name, target.stat().st_size, flush=True)
        except Exception:  # noqa: BLE001 - whatever an exporter raises
            print(name, traceback.format_exc().splitlines()[-1], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
