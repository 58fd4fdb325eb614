"""``REG_FUSION_PASS`` and ``REG_DECOMPOSE_PASS``: mark classes for the host that loads the file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, TypeVar, overload

from gehost.errors import VendorError
from gehost.location import SourceLocation
from gehost.passes.base import DecomposePass, FusionBasePass
from gehost.passes.registration import MARK, MARKED, PassRegistration, check_stage, mark_of
from gehost.settings import PassOption
from gehost.stages import CustomPassStage

_Pass = TypeVar("_Pass", bound=type[FusionBasePass])
_FLAGS = ("shape_proven", "bottom_up")
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
    default: bool | Any = True,  # Any: checked by _marker, with an error of ours
    options: Sequence[PassOption] = (),
) -> Any:
    """Mark a pass for registration.

    Use ``@REG_FUSION_PASS``, ``@REG_FUSION_PASS(stage=…)`` or ``REG_FUSION_PASS(Cls).Stage(…)``.

    Args:
        cls: the class, if not used as a decorator.
        stage: when the pass runs.
        name: default: the class's name.
        min_opset: below it the pass does not apply.
        max_opset: above it the pass does not apply.
        default: False for a pass that runs only if ``--enable`` or a switch file names it.
        options: settable with ``--set NAME.option=value``.

    Raises:
        VendorError: the class is not a pass, or fusion passes cannot run at the stage.
    """
    mark = PassRegistration(
        name or "",
        stage,
        *_module_and_location(_caller()),
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
    op_types: Any = (),
    *,
    stage: CustomPassStage = CustomPassStage.kBeforeInferShape,
    name: str | None = None,
    min_opset: int | None = None,
    max_opset: int | None = None,
    default: bool | Any = True,
    options: Sequence[PassOption] = (),
) -> Any:
    """Mark a decompose pass for registration.

    Use ``@REG_DECOMPOSE_PASS(["Conv"], stage=…)`` or
    ``REG_DECOMPOSE_PASS(Cls, ["Conv"]).Stage(…)``.

    Args:
        cls: the class, if not used as a decorator; or, as the only argument, the operators.
        op_types: operators to be replaced, ``domain::Type`` outside ONNX's own; empty if the
            constructor sets them.
        stage: when the pass runs.
        name: default: the class's name.
        min_opset: below it the pass does not apply.
        max_opset: above it the pass does not apply.
        default: False for a pass that runs only if ``--enable`` or a switch file names it.
        options: settable with ``--set NAME.option=value``.

    Raises:
        VendorError: the class is not a ``DecomposePass``, or passes cannot run at the stage.
    """
    if cls is not None and not isinstance(cls, type):
        cls, op_types = None, cls
    items: Any = op_types
    if isinstance(op_types, str) or not isinstance(op_types, Iterable):
        items = (op_types,)
    mark = PassRegistration(
        name or "",
        stage,
        *_module_and_location(_caller()),
        min_opset,
        max_opset,
        tuple(items),
        default=default,
        options=tuple(options),
    )
    return _marker(mark, DecomposePass) if cls is None else _marker(mark, DecomposePass)(cls)


def _caller(module: str = "") -> FrameType | None:
    """Return the nearest frame outside this module, or of the named module."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name == module or (not module and name != __name__):
            return frame
        frame = frame.f_back
    return None


def _module_and_location(frame: FrameType | None) -> tuple[str, SourceLocation]:
    """Return a frame's module and the line that it runs."""
    assert frame is not None
    location = SourceLocation(frame.f_code.co_filename, frame.f_lineno)
    return str(frame.f_globals.get("__name__", "")), location


def _marker(mark: PassRegistration, expected: type[FusionBasePass]) -> Callable[[Any], Any]:
    def marked(cls: Any) -> Any:
        name = mark.name or getattr(cls, "__name__", None) or repr(cls)
        if not isinstance(cls, type) or not issubclass(cls, expected):
            others = (
                "PatternFusionPass, DecomposePass or FusionBasePass"
                if expected is FusionBasePass
                else expected.__name__
            )
            raise VendorError(
                f"cannot register {name}",
                where=mark.origin,
                hint=f"it must derive from {others}",
            )
        check_stage(mark.stage, mark.origin, name)
        flags = {"default": mark.default} | {flag: getattr(cls, flag, False) for flag in _FLAGS}
        for flag, value in flags.items():
            # a property is computed where it is read
            if not isinstance(value, bool | property):
                raise VendorError(
                    f"{flag} must be True or False, got {value!r}", where=mark.origin, subject=name
                )
        if not all(isinstance(op, str) for op in mark.op_types):
            raise VendorError(
                f'wanted names of operators, as in ["Conv"], got {mark.op_types!r}',
                where=mark.origin,
                subject=name,
            )
        entry = mark_of(cls)
        if entry is not None:
            raise VendorError(
                f"{name} is registered already at {entry.origin}",
                where=mark.origin,
                hint="register a class once",
            )
        own = replace(mark, name=name)
        # A helper may mark a class of another file: the mark belongs to the file of the class.
        frame = _caller(cls.__module__)
        if frame is None:
            frame = _caller()
        elif mark.module != cls.__module__:
            own.module, own.location = _module_and_location(frame)
        assert frame is not None
        frame.f_globals.setdefault(MARKED, []).append(cls)
        setattr(cls, MARK, own)
        return cls

    return marked
