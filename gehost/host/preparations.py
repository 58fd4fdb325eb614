"""What a compile does to a loaded model before its passes run: a row each, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gehost.errors import ModelError, UsageError
from gehost.host.report import Report
from gehost.infer.findings import type_findings
from gehost.infer.local import Inferrer
from gehost.infer.whole import infer_model
from gehost.ir.dims import contradictions, fix_dims, refuse_contradiction
from gehost.ir.files.validate import validate
from gehost.ir.inline import inline_functions
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.opset import raise_opset
from gehost.options import HostOptions
from gehost.sizes import is_fact, name_of


@dataclass(frozen=True)
class Preparation:
    """One step, run where its option asks for it."""

    label: str
    """Of its time in the report."""
    applies: Callable[[HostOptions, Model], bool]
    run: Callable[[Model, HostOptions, Report], Model]


def _inlined(model: Model, _options: HostOptions, report: Report) -> Model:
    """Return the model with its functions inlined.

    ONNX's inliner may leave some of them.

    Raises:
        ModelError: the inlined model is not valid.
    """
    model.close()
    try:
        inlined = Model(inline_functions(model.proto), path=model.path)
        validate(inlined)
    except (ModelError, RuntimeError) as error:
        message = str(error).removeprefix(f"{model}: ")
        raise ModelError(
            f"its functions cannot be inlined: {message}",
            where=model,
            hint="compile without inline_functions",
        ) from error
    if inlined.functions:
        rest = ", ".join(inlined.functions)
        report.problems.append(
            f"not inlined, as operators in them are others at the model's opset: {rest}"
        )
    return inlined


def with_dims(model: Model, dims: Mapping[str, int]) -> Model:
    """Return the model with sizes for some of its open dimensions.

    Raises:
        UsageError: a name or size does not fit the model.
    """
    before = _type_findings(model)
    model.close()
    try:
        fix_dims(model.proto, dims)
        # ONNX's inference ends at an operator that it does not know, this one does not
        after = _type_findings(Model(model.proto))
        refuse_contradiction(dims, before, after)
    except UsageError as error:
        raise UsageError(str(error), where=model) from error
    return Model(model.proto, path=model.path)


def _type_findings(model: Model) -> list[str]:
    inferrer = Inferrer(model, OpRegistry())
    infer_model(model, inferrer)
    return type_findings(model, inferrer)


def _with_opset(model: Model, version: int) -> Model:
    """Return the model at a newer opset, itself if already there.

    Raises:
        UsageError: the opset is older than the model's, or onnx does not know it.
        ModelError: the model cannot be converted, or is not valid afterwards.
    """
    if version == model.opset():
        return model
    before = contradictions(model.proto)
    try:
        raise_opset(model, version)
    except UsageError as error:
        raise UsageError(f"--opset {version}: {error}", where=model) from error
    except ModelError as error:
        raise ModelError(f"--opset {version}: {error}", where=model) from error
    model.close()
    try:
        converted = Model(model.proto, path=model.path)
        validate(converted)
        if not before:
            for finding in contradictions(converted.proto):
                raise ModelError(finding)
    except ModelError as error:
        raise ModelError(
            f"--opset {version}: the converted model is not valid: "
            f"{str(error).removeprefix(f'{model}: ')}",
            where=model,
        ) from error
    return converted


def _with_dims(model: Model, options: HostOptions, _report: Report) -> Model:
    return with_dims(model, options.dims)


def _at_opset(model: Model, options: HostOptions, _report: Report) -> Model:
    assert options.opset is not None
    return _with_opset(model, options.opset)


def _with_facts(model: Model, options: HostOptions, _report: Report) -> Model:
    """Return the model with facts about its sizes, before any size is computed.

    Raises:
        UsageError: no input has a size of a fact's name.
    """
    facts = tuple([text for text in options.assume if is_fact(text)])
    names = {
        name
        for value in model.graph.inputs
        for dim in value.shape or ()
        if isinstance(dim, str)
        for name in model.sizes.names_in(dim)
    }
    for fact in facts:
        name = name_of(fact)
        if name and name not in names:
            listing = ", ".join(sorted(names)) or "none"
            raise UsageError(
                f'--assume {fact!r}: no input has a size "{name}"',
                where=model,
                hint=f"named sizes of inputs: {listing}",
            )
    model.assume(facts)
    return model


PREPARATIONS = (
    Preparation(
        "inline",
        lambda options, model: options.inline_functions and bool(model.functions),
        _inlined,
    ),
    Preparation("dims", lambda options, _model: bool(options.dims), _with_dims),
    Preparation("opset", lambda options, _model: options.opset is not None, _at_opset),
    Preparation("facts", lambda options, _model: any(map(is_fact, options.assume)), _with_facts),
)
