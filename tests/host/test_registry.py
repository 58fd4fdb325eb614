"""The passes of a host: load order, names, all of a file or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import CustomPassStage, VendorError
from gehost.host.registry import PassRegistry, PassSpec

FIRST, LAST = CustomPassStage.kBeforeInferShape, CustomPassStage.kAfterOriginGraphOptimize


def spec(name: str, stage: Any = FIRST, **more: Any) -> PassSpec:
    return PassSpec(name, stage, f"{name.lower()}.py:1", "pattern", lambda: None, **more)  # type: ignore[arg-type, return-value]


def filled(*specs: PassSpec) -> PassRegistry:
    registry = PassRegistry()
    for one in specs:
        registry.add(one)
    return registry


def test_passes_keep_the_order_of_loading_within_a_stage() -> None:
    registry = filled(spec("Z", LAST), spec("A"), spec("M", LAST), spec("B"))
    assert registry.names() == [actual.name for actual in registry] == ["Z", "A", "M", "B"]
    assert [actual.name for actual in registry.at(LAST)] == ["Z", "M"]
    assert [actual.name for actual in registry.at(FIRST)] == ["A", "B"]
    assert registry.at(CustomPassStage.kAfterInferShape) == []
    assert len(registry) == 4
    assert registry.get("A") in list(registry)
    assert registry.get("a") is None


def test_a_name_is_taken_once_over_all_stages() -> None:
    registry = filled(spec("Same"))
    with pytest.raises(
        VendorError,
        match=r"^other.py:7: a pass called Same is registered already at same.py:1; rename one$",
    ):
        registry.add(PassSpec("Same", LAST, "other.py:7", "pattern", lambda: None))  # type: ignore[arg-type, return-value]
    assert registry.names() == ["Same"]


@pytest.mark.parametrize("stage", [CustomPassStage.kAfterAssignLogicStream, "kAfterInferShape"])
def test_a_plugins_style_cannot_register_where_nothing_runs(stage: Any) -> None:
    with pytest.raises(VendorError, match=r"^p.py:1: P: fusion passes cannot run at"):
        filled(spec("P", stage))


def test_what_is_added_while_a_file_is_loaded_is_its_vendors() -> None:
    registry = PassRegistry()
    with registry.loading("acme"):
        registry.add(spec("Mine"))
        registry.add(spec("Theirs", vendor="zeta"))
    registry.add(spec("Nobodys"))
    assert [actual.vendor for actual in registry] == ["acme", "zeta", ""]


def test_after_an_error_nothing_of_the_file_stays() -> None:
    registry = filled(spec("Old"))
    with (
        pytest.raises(VendorError, match="a pass called Old is registered already"),
        registry.loading("acme"),
    ):
        _ = [registry.add(spec(name)) for name in ("New", "Old")]  # type: ignore[func-returns-value]
    assert registry.names() == ["Old"]
    registry.add(spec("New"))
    assert [actual.vendor for actual in registry] == ["", ""]
