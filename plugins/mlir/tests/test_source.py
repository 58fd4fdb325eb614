"""Locations, aliases, resources and attributes of MLIR's texts."""

from __future__ import annotations

import pytest

from gehost_mlir.attributes import dictionary, integers, shown, written_out
from gehost_mlir.scanner import MlirError, Scanner
from gehost_mlir.source import balanced, resources_of, without_locations


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('%0 = f(%a) : f32 loc("x.py":1:2)', "%0 = f(%a) : f32"),
        ('#loc1 = loc("a("(#loc))\nreturn loc(#loc1)', "return"),
        ('f {x = "loc(a)"} // loc(b', 'f {x = "loc(a)"} // loc(b'),
        ("%a: f32 loc(unknown), %b: f32", "%a: f32 , %b: f32"),
        ("alloc(%n)", "alloc(%n)"),
    ],
)
def test_locations_are_blank(text: str, rest: str) -> None:
    result = without_locations(text)
    assert len(result) == len(text)
    assert " ".join(result.split()) == " ".join(rest.split())


def test_a_location_without_end_is_refused() -> None:
    with pytest.raises(MlirError, match="end of the location"):
        without_locations("return loc(unknown")


def test_resources_are_bytes() -> None:
    text = 'f\n{-#\n  dialect_resources: {\n    builtin: {\n      w: "0x040000000000803F"\n    }\n  }\n#-}\n'
    rest, blobs = resources_of(text)
    assert rest.strip() == "f"
    assert blobs == {"w": b"\x04\x00\x00\x00\x00\x00\x80\x3f"}


def test_a_dictionary_keeps_texts_and_writes_aliases_out() -> None:
    scanner = Scanner('<{a = [#m, 2], "b.c" = array<i64: 1, -3>, d, e = "#m, }"}> rest')
    result = dictionary(scanner, {"#m": "affine_map<(d0) -> (d0)>"})
    assert result == {
        "a": "[affine_map<(d0) -> (d0)>, 2]",
        "b.c": "array<i64: 1, -3>",
        "d": "",
        "e": '"#m, }"',
    }
    assert scanner.accept("rest")
    assert integers(result["b.c"]) == [1, -3]
    assert integers("7 : i64") == [7]
    assert shown({"a": "1", "b": ""}) == "{a = 1, b}"


def test_aliases_of_aliases_are_written_out() -> None:
    assert written_out("f(#a)", {"#a": "g<#b>", "#b": "1"}) == "f(g<1>)"
    assert written_out("#a", {"#a": "[#a]"}) == "[#a]"


@pytest.mark.parametrize("text", ["(a", "(a]", "[(])"])
def test_open_brackets_are_refused(text: str) -> None:
    with pytest.raises(MlirError, match="expected"):
        balanced(text, 0)
