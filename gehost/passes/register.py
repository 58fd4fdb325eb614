"""``REG_FUSION_PASS`` and ``REG_DECOMPOSE_PASS``: marks on classes, read by the host that loads
the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from gehost.errors import VendorError
from gehost.passes.base import DecomposePass, FusionBasePass
from gehost.passes.mark import MARK, PassMark, check_stage
from gehost.settings import PassOption
from gehost.stages import CustomPassStage

_Pass = TypeVar("_Pass", bound=type[FusionBasePass])
_Decompose = TypeVar("_Decompose", bound=type[DecomposePass])


@overload
def REG_FUSION_PASS(cls: _Pass) -> _Pass: ...
@overload
def REG_FUSION_PASS(
    *,
    stage: CustomPassStage = ...,
    name: str | None = ...,
    min_opset: int | None = ...,
    max_opset: int | None = ...,
    default: bool = ...,
    options: Sequence[PassOption] = ...,
) -> Callable[[_Pass], _Pass]: ...
def REG_FUSION_PASS(
    cls: Any = None,
    *,
    stage: CustomPassStage = CustomPassStage.kBeforeInferShape,
    name: str | None = None,
    min_opset: int | None = None,
    max_opset: int | None = None,
    default: bool = True,
    options: Sequence[PassOption] = (),
) -> Any:
    """Mark a pass for registration: ``@REG_FUSION_PASS``, ``@REG_FUSION_PASS(stage=…)`` or
    ``REG_FUSION_PASS(Cls).Stage(…)``.

    Args:
        cls: the class, when it is not given by decoration.
        stage: when the pass runs.
        name: the class's name unless said otherwise.
        min_opset: below it the pass does not apply.
        max_opset: above it the pass does not apply.
        default: False for a pass that runs only where ``--enable`` or a switch file names it.
        options: what ``--set NAME.option=value`` may set.

    Raises:
        VendorError: the class is no pass, or fusion passes cannot run at the stage.
    """
    mark = PassMark(
        name or "",
        stage,
        *_caller(),
        min_opset,
        max_opset,
        default=default,
        options=tuple(options),
    )
    return _marker(mark, FusionBasePass) if cls is None else _marker(mark, FusionBasePass)(cls)


@overload
def REG_DECOMPOSE_PASS(cls: _Decompose, op_types: Sequence[str] = ...) -> _Decompose: ...
@overload
def REG_DECOMPOSE_PASS(
    cls: Sequence[str] = ...,
    *,
    stage: CustomPassStage = ...,
    name: str | None = ...,
    min_opset: int | None = ...,
    max_opset: int | None = ...,
    default: bool = ...,
    options: Sequence[PassOption] = ...,
) -> Callable[[_Decompose], _Decompose]: ...
@overload
def REG_DECOMPOSE_PASS(
    *,
    op_types: Sequence[str],
    stage: CustomPassStage = ...,
    name: str | None = ...,
    min_opset: int | None = ...,
    max_opset: int | None = ...,
    default: bool = ...,
    options: Sequence[PassOption] = ...,
) -> Callable[[_Decompose], _Decompose]: ...
def REG_DECOMPOSE_PASS(
    cls: Any = None,
    op_types: Sequence[str] = (),
    *,
    stage: CustomPassStage = CustomPassStage.kBeforeInferShape,
    name: str | None = None,
    min_opset: int | None = None,
    max_opset: int | None = None,
    default: bool = True,
    options: Sequence[PassOption] = (),
) -> Any:
    """Mark a decompose pass: ``@REG_DECOMPOSE_PASS(["Conv"], stage=…)`` or
    ``REG_DECOMPOSE_PASS(Cls, ["Conv"]).Stage(…)``.

    Args:
        cls: the class when it is not given by decoration; or, as the only argument, the operators.
        op_types: operators to be replaced, ``domain::Type`` outside ONNX's own; empty when the constructor gives them.
        stage: when the pass runs.
        name: the class's name unless said otherwise.
        min_opset: below it the pass does not apply.
        max_opset: above it the pass does not apply.
        default: False for a pass that runs only where ``--enable`` or a switch file names it.
        options: what ``--set NAME.option=value`` may set.

    Raises:
        VendorError: the class is no ``DecomposePass``, or passes cannot run at the stage.
    """
    if cls is not None and not isinstance(cls, type):
        cls, op_types = None, cls
    operators = (op_types,) if isinstance(op_types, str) else tuple(op_types)
    mark = PassMark(
        name or "",
        stage,
        *_caller(),
        min_opset,
        max_opset,
        operators,
        default=default,
        options=tuple(options),
    )
    return _marker(mark, DecomposePass) if cls is None else _marker(mark, DecomposePass)(cls)


def _caller() -> tuple[str, str, int]:
    """Module, file and line of the call of a ``REG_`` function."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    assert frame is not None
    return str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename, frame.f_lineno


def _marker(mark: PassMark, wanted: type[FusionBasePass]) -> Callable[[Any], Any]:
    def marked(cls: Any) -> Any:
        name = mark.name or getattr(cls, "__name__", None) or repr(cls)
        if not isinstance(cls, type) or not issubclass(cls, wanted):
            others = (
                "PatternFusionPass, DecomposePass or FusionBasePass"
                if wanted is FusionBasePass
                else wanted.__name__
            )
            raise VendorError(
                f"{mark.origin}: {name} is no pass that can be registered so; derive it "
                f"from {others}"
            )
        check_stage(mark.stage, mark.origin, name)
        setattr(cls, MARK, replace(mark, name=name))
        return cls

    return marked
