"""Prove the types of a converted model."""

from __future__ import annotations

import onnx
import onnx.shape_inference

from gehost.errors import ModelError, one_line
from gehost.infer import infer_model
from gehost.infer.findings import type_findings
from gehost.infer.local import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.verify.feeds import without_weights


def check_types(model: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """Prove the types of the result.

    Raises:
        ModelError: two types meet that no operator takes together.
    """
    before, after = set(_findings(model)), _findings(converted)
    new = [finding for finding in after if finding not in before]
    if not new and not before and not _inference_error(model):
        new = [error] if (error := _inference_error(converted)) else []
    if new and not before:
        raise ModelError(
            f"half: {new[0]}", hint="keep its node in float32 (--keep-float32), and report this"
        )


def _inference_error(model: onnx.ModelProto) -> str:
    """Return what ONNX's own inference finds wrong with the types, or ""."""
    try:
        onnx.shape_inference.infer_shapes(without_weights(model), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return one_line(str(error))
    except (RuntimeError, ValueError):
        return ""  # it has no answer: two gigabytes of Constant nodes
    return ""


def _findings(model: onnx.ModelProto) -> list[str]:
    indexed = Model(without_weights(model))
    inferrer = Inferrer(indexed, OpRegistry())
    infer_model(indexed, inferrer)
    return type_findings(indexed, inferrer)
