"""Locations, aliases, resources and attributes of MLIR's texts."""

from __future__ import annotations

import pytest

from gehost_mlir.attributes import dictionary, integers, shown, written_out
from gehost_mlir.scanner import MlirError, Scanner
from gehost_mlir.source import (
    alias_definitions,
    attribute_end,
    balanced,
    resources_of,
    spaced,
    without_comments,
    without_locations,
)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('%0 = f(%a) : f32 loc("x.py":1:2)', "%0 = f(%a) : f32"),
        ('#loc1 = loc("a("(#loc))\nreturn loc(#loc1)', "return"),
        ('f {x = "loc(a)"} // loc(b', 'f {x = "loc(a)"} // loc(b'),
        ("%a: f32 loc(unknown), %b: f32", "%a: f32 , %b: f32"),
        ("alloc(%n)", "alloc(%n)"),
        ("#loc\n  =\nloc (unknown)\nreturn loc (#loc)", "return"),
    ],
)
def test_locations_are_blank(text: str, rest: str) -> None:
    result = without_locations(text)
    assert len(result) == len(text)
    assert " ".join(result.split()) == " ".join(rest.split())


def test_a_location_without_end_is_refused() -> None:
    with pytest.raises(MlirError, match="end of the location"):
        without_locations("return loc(unknown")


def test_comments_are_blank() -> None:
    text = 'a // b "c"\n"//d" // e'
    assert without_comments(text) == 'a         \n"//d"     '


def test_aliases_stand_anywhere() -> None:
    text = '#a\n= 1 !b =i32 {x = #a, y = "#c = 2"} #d == 3'
    assert [name for name, _, _ in alias_definitions(text)] == ["#a", "!b"]
    assert [text[start:][:2] for _, start, _ in alias_definitions(text)] == ["#a", "!b"]


@pytest.mark.parametrize(
    "text",
    [
        "affine_map\n<(d0, d1)\n -> (d0)>",
        "dense<[1, 2]> :\ntensor<2xi32>",
        "#a.b<1, c = {d = 2}>",
        "@a::@b",
        '"text" : i32',
        "(i32, i64) -> (i32)",
        "{a = 1}",
        "-1.5e+03 : f32",
        "!a.b",
    ],
)
@pytest.mark.parametrize(
    "behind", ["", " #b = 2", "\nmodule {", ' "builtin.module"() ({', "\n!c = i32"]
)
def test_an_attribute_ends_where_nothing_goes_on(text: str, behind: str) -> None:
    assert attribute_end(f"#x = {text}{behind}", 5) == 5 + len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("array\n< i64:1,\t2 >", "array<i64: 1, 2>"),
        ("dense <1>:tensor< 4xf32>", "dense<1> : tensor<4xf32>"),
        ("[ 1 , 2 ]", "[1, 2]"),
        ('"a  :b( c"', '"a  :b( c"'),
        ("@a::@b", "@a::@b"),
        ('#sdy.mesh<["x"=4, "y"=2]>', '#sdy.mesh<["x"=4, "y"=2]>'),
        ("#s<word  EQ>", "#s<word EQ>"),
    ],
)
def test_attributes_get_the_blanks_of_mlir(text: str, expected: str) -> None:
    assert spaced(text) == expected
    assert spaced(expected) == expected


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


def test_properties_may_have_blanks_inside() -> None:
    scanner = Scanner("<\n {a = array\t<i64:3>} > rest")
    assert scanner.has_properties()
    assert integers(dictionary(scanner, {})["a"]) == [3]
    assert scanner.accept("rest")
    assert not Scanner("<a> {").has_properties()


def test_aliases_of_aliases_are_written_out() -> None:
    assert written_out("f(#a)", {"#a": "g<#b>", "#b": "1"}) == "f(g<1>)"
    assert written_out("#a", {"#a": "[#a]"}) == "[#a]"


@pytest.mark.parametrize("text", ["(a", "(a]", "[(])"])
def test_open_brackets_are_refused(text: str) -> None:
    with pytest.raises(MlirError, match="expected"):
        balanced(text, 0)
