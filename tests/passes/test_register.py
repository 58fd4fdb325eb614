"""Marks that registration leaves on classes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from gehost import (
    REG_DECOMPOSE_PASS,
    REG_FUSION_PASS,
    CustomPassStage,
    DecomposePass,
    FusionBasePass,
    PassOption,
    PatternFusionPass,
    VendorError,
)
from gehost.host.ge_style import pass_spec
from gehost.passes.registration import mark_of

LAST = CustomPassStage.kAfterOriginGraphOptimize


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_bare_decorator_takes_the_class_name_and_the_first_stage() -> None:
    here = line() + 2

    @REG_FUSION_PASS
    class Bare(PatternFusionPass):
        pass

    mark = mark_of(Bare)
    assert mark is not None
    assert (mark.name, mark.stage, mark.min_opset, mark.max_opset) == (
        "Bare",
        CustomPassStage.kBeforeInferShape,
        None,
        None,
    )
    assert mark.origin == f"{__file__}:{here}"
    assert mark.module == __name__


def test_a_decorator_with_arguments_keeps_them_and_returns_the_class_itself() -> None:
    class Plain(FusionBasePass):
        pass

    registered = REG_FUSION_PASS(stage=LAST, name="Other", min_opset=11, max_opset=17)(Plain)
    assert registered is Plain
    mark = mark_of(Plain)
    assert mark is not None
    assert (mark.name, mark.stage, mark.min_opset, mark.max_opset) == ("Other", LAST, 11, 17)


def test_a_decorator_keeps_whether_the_pass_runs_by_default_and_its_options() -> None:
    option = PassOption("control", str, "one-use", "help")

    @REG_FUSION_PASS(default=False, options=[option])
    class Fusion(PatternFusionPass):
        pass

    @REG_DECOMPOSE_PASS(["Gelu"], default=False, options=[option])
    class Decompose(DecomposePass):
        def Replacement(self, node: Any) -> Any: ...

    for cls in (Fusion, Decompose):
        mark = mark_of(cls)
        assert mark is not None
        assert (mark.default, mark.options) == (False, (option,))
    assert mark is not None
    spec = pass_spec(Decompose, mark)
    assert (spec.default, spec.options) == (False, (option,))


def test_one_decorator_used_twice_names_each_class_by_itself() -> None:
    register = REG_FUSION_PASS(stage=LAST)

    @register
    class One(FusionBasePass):
        pass

    @register
    class Two(FusionBasePass):
        pass

    assert [mark.name for mark in map(mark_of, (One, Two)) if mark] == ["One", "Two"]
    Two.Stage(CustomPassStage.kAfterInferShape)
    assert [mark.stage for mark in map(mark_of, (One, Two)) if mark] == [
        LAST,
        CustomPassStage.kAfterInferShape,
    ]


def test_the_call_form_of_ge_sets_the_stage_afterwards() -> None:
    class Called(PatternFusionPass):
        pass

    assert REG_FUSION_PASS(Called).Stage(LAST) is Called
    mark = mark_of(Called)
    assert mark is not None
    assert (mark.name, mark.stage) == ("Called", LAST)


@pytest.mark.parametrize(
    ("register", "op_types"),
    [
        (REG_DECOMPOSE_PASS, ()),
        (REG_DECOMPOSE_PASS(["Conv", "ge::GEMM"]), ("Conv", "ge::GEMM")),
        (REG_DECOMPOSE_PASS("Conv"), ("Conv",)),
        (REG_DECOMPOSE_PASS(op_types=["Conv"]), ("Conv",)),
        (REG_DECOMPOSE_PASS(op_types="Conv"), ("Conv",)),
        (REG_DECOMPOSE_PASS(), ()),
        (lambda cls: REG_DECOMPOSE_PASS(cls, ["Conv"]), ("Conv",)),
        (lambda cls: REG_DECOMPOSE_PASS(cls, ["Conv"]).Stage(LAST), ("Conv",)),
    ],
)
def test_every_form_of_a_decompose_registration(register: Any, op_types: tuple[str, ...]) -> None:
    class Split(DecomposePass):
        pass

    assert register(Split) is Split
    mark = mark_of(Split)
    assert mark is not None
    assert (mark.name, mark.op_types) == ("Split", op_types)
    assert mark.origin.startswith(f"{__file__}:")


def test_a_decompose_decorator_keeps_stage_name_and_opsets() -> None:
    @REG_DECOMPOSE_PASS(["Conv"], stage=LAST, name="Other", min_opset=7, max_opset=9)
    class Split(DecomposePass):
        pass

    mark = mark_of(Split)
    assert mark is not None
    assert (mark.name, mark.stage, mark.min_opset, mark.max_opset) == ("Other", LAST, 7, 9)


def test_a_subclass_of_a_marked_class_is_not_marked() -> None:
    @REG_FUSION_PASS
    class Base(FusionBasePass):
        pass

    class Derived(Base):
        pass

    assert mark_of(Base) is not None
    assert mark_of(Derived) is None
    with pytest.raises(
        VendorError,
        match=rf"{__file__}:\d+: Derived.Stage\(\) needs a class marked with REG_FUSION_PASS",
    ):
        Derived.Stage(LAST)


class NotDerived:
    def Run(self, graph: Any, context: Any) -> None:
        pass


@pytest.mark.parametrize("wrong", [lambda: None, NotDerived, NotDerived(), 3])
def test_what_is_no_pass_is_refused_with_file_and_line(wrong: Any) -> None:
    with pytest.raises(
        VendorError,
        match=rf"^{__file__}:\d+: cannot register .*; it must derive from Pattern",
    ):
        REG_FUSION_PASS()(wrong)


def test_a_pattern_pass_cannot_be_registered_to_decompose() -> None:
    class Pairs(PatternFusionPass):
        pass

    with pytest.raises(
        VendorError,
        match="cannot register Pairs; it must derive from DecomposePass",
    ):
        REG_DECOMPOSE_PASS(["Conv"])(Pairs)
    assert mark_of(Pairs) is None


@pytest.mark.parametrize(
    "stage", [CustomPassStage.kAfterAssignLogicStream, "kAfterInferShape", None]
)
def test_a_stage_at_which_nothing_runs_is_refused(stage: Any) -> None:
    class Late(FusionBasePass):
        pass

    message = rf"^{__file__}:\d+: Late: fusion passes cannot run at .*; wanted one of kBeforeInferShape, .*kAfterOriginGraphOptimize(; did you mean kAfterInferShape\?)?$"
    with pytest.raises(VendorError, match=message):
        REG_FUSION_PASS(stage=stage)(Late)
    with pytest.raises(VendorError, match=message):
        REG_FUSION_PASS(Late).Stage(stage)
    mark = mark_of(Late)
    assert mark is not None
    assert mark.stage is CustomPassStage.kBeforeInferShape
