"""Options that passes declare, and the settings that give them values."""

from __future__ import annotations

from typing import Any

import pytest

from gehost import HostOptions, PassOption, UsageError, VendorError
from gehost.settings import check_assumptions, check_options, check_settings, option_values
from gehost.testing import parse

MODEL = parse(
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)
OPTIONS = (
    PassOption("control", str, "one-use", "what to fuse"),
    PassOption("most", int, 4),
    PassOption("ratio", float, 0.5),
    PassOption("deep", bool, False),
    PassOption("unset", int, None),
)
DECLARED = {"Fuse": OPTIONS, "Plain": ()}


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [
        (str, "a=b", "a=b"),
        (int, "12", 12),
        (int, 12, 12),
        (float, "1e-3", 1e-3),
        (float, 2, 2.0),
        (bool, "On", True),
        (bool, "0", False),
        (bool, True, True),
    ],
)
def test_a_value_or_its_text_is_converted(kind: Any, argument: Any, value: Any) -> None:
    actual = PassOption("o", kind, None).convert(argument)
    assert (type(actual), actual) == (kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "1.5"),
        (int, 1.5),
        (int, True),
        (float, "x"),
        (float, "nan"),
        (float, "inf"),
        (float, True),
        (bool, "maybe"),
        (bool, 1),
        (str, 1),
        (str, None),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="^wanted (a|true)"):
        PassOption("o", kind, None).convert(value)


@pytest.mark.parametrize(
    ("name", "kind", "default", "message"),
    [
        ("a-b", str, "", "its name must be a Python identifier"),
        (3, str, "", "its name must be a Python identifier"),
        ("a", list, [], "its type must be str, int, float or bool"),
        ("a", int, "x", "its default is 'x', wanted a whole number"),
    ],
)
def test_a_wrong_declaration_is_refused(name: Any, kind: Any, default: Any, message: str) -> None:
    with pytest.raises(VendorError, match=message):
        PassOption(name, kind, default)


def test_what_is_declared_is_checked_with_its_owner() -> None:
    with pytest.raises(VendorError, match=r"^a.py:1: P: two options are called most; rename one$"):
        check_options([OPTIONS[1], OPTIONS[1]], "P", "a.py:1")
    with pytest.raises(VendorError, match=r"^a.py:1: P: options must be PassOption objects, got"):
        check_options(["most"], "P", "a.py:1")  # type: ignore[list-item]


def test_values_are_what_is_set_else_the_defaults() -> None:
    values = option_values("Fuse", OPTIONS, {"Fuse.most": "9", "Fuse.deep": True, "Other.most": 1})
    assert values == {"control": "one-use", "most": 9, "ratio": 0.5, "deep": True, "unset": None}
    with pytest.raises(TypeError):
        values["most"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "Fuze.most",
            1,
            "setting Fuze.most: there is no pass or importer Fuze; did you mean Fuse?",
        ),
        ("fUSE.most", 1, "there is no pass or importer fUSE; did you mean Fuse?"),
        ("Fuse.MOST", 1, "Fuse has no option MOST; did you mean most?"),
        ("Zzz.most", 1, "there is no pass or importer Zzz; `gehost passes -v` lists them"),
        ("Fuse.mots", 1, "setting Fuse.mots: Fuse has no option mots; did you mean most?"),
        ("Fuse.zzzz", 1, "its options are control, most, ratio, deep, unset"),
        ("Plain.most", 1, "Plain has no option most; it has none"),
        ("most", 1, "setting most: wanted NAME.option=value, the name of a pass or importer"),
        ("Fuse.most", "x", "setting Fuse.most='x': wanted a whole number"),
    ],
)
def test_a_setting_that_names_nothing_is_refused_with_the_nearest(
    key: str, value: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_settings({key: value}, DECLARED)
    assert message in str(caught.value)


SETTABLE = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[PassOption("most", int, 1, "how many")])
class Counting(FusionBasePass):
    def Run(self, graph, context):
        context.SetErrorMessage(f"{context.options['most']} {dict(self.options)}")
        return FAILED
"""
MATCHING = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, options=[PassOption("on", bool, False)])
class Matching(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

    def MeetRequirements(self, match):
        return self.options["on"] or match.reject("off: the option")

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        return builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
"""


def test_a_run_reads_its_options(vendors: Any) -> None:
    vendors.write("acme/a.py", SETTABLE)
    for settings, message in (({}, "1 {'most': 1}"), ({"Counting.most": "3"}, "3 {'most': 3}")):
        _, report = vendors.host(keep_going=True, settings=settings).run(MODEL)
        assert report.passes[0].message.endswith(message)


def test_the_methods_of_a_pattern_pass_read_its_options(vendors: Any) -> None:
    vendors.write("acme/a.py", MATCHING)
    (off,) = vendors.host().run(MODEL)[1].passes
    assert (off.replaced, dict(off.rejected)) == (0, {"off": 1})
    (on,) = vendors.host(settings={"Matching.on": True}).run(MODEL)[1].passes
    assert on.replaced == 1


def test_a_wrong_setting_stops_before_a_model_is_touched(vendors: Any) -> None:
    vendors.write("acme/a.py", SETTABLE)
    with pytest.raises(UsageError, match="Counting has no option mots; did you mean most"):
        vendors.host(settings={"Counting.mots": 3})


def test_settings_of_a_pass_that_is_off_are_reported(vendors: Any) -> None:
    vendors.write("acme/a.py", MATCHING)
    line = "Matching is off, so its settings have no effect; turn it on (--enable Matching)"
    host = vendors.host(settings={"Matching.on": True}, disable=["Matching"])
    assert host.run(MODEL)[1].notes.count(line) == 1
    assert line not in host.with_options(disable=[]).run(MODEL)[1].notes


def test_settings_are_in_the_report(vendors: Any) -> None:
    vendors.write("acme/a.py", MATCHING)
    _, report = vendors.host(settings={"Matching.on": True}).run(MODEL)
    assert report.as_dict()["options"]["settings"] == {"Matching.on": True}
    assert HostOptions(settings={"a.b": 1}).settings == {"a.b": 1}


ASSUMING = MATCHING.replace(
    'PassOption("on", bool, False)', 'PassOption("all_positive", bool, False, assumption=True)'
).replace('self.options["on"]', 'self.options["all_positive"]')


def test_an_assumption_is_off_until_it_is_named_and_then_recorded(vendors: Any) -> None:
    vendors.write("acme/a.py", ASSUMING)
    result, report = vendors.host().run(MODEL)
    assert report.passes[0].replaced == 0
    assert not result.metadata_props
    result, report = vendors.host(assume=["all-positive"]).run(MODEL)
    assert report.passes[0].replaced == 1
    assert report.as_dict()["options"]["assume"] == ["all-positive"]
    assert {entry.key: entry.value for entry in result.metadata_props} == {
        "gehost.assumed": "all-positive"
    }


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        (ASSUMING, "all-positiv", "all-positiv: no pass has this.*; did you mean all-positive?"),
        (ASSUMING, "zzz", "zzz: no pass has this assumption; known: all-positive"),
        (MATCHING, "on", "on: no pass has this assumption; no pass has one"),
    ],
)
def test_an_assumption_that_no_pass_has_is_refused(
    vendors: Any, code: str, name: str, message: str
) -> None:
    vendors.write("acme/a.py", code)
    with pytest.raises(UsageError, match=message):
        vendors.host(assume=[name])


def test_an_assumption_is_no_setting_and_false_by_default(vendors: Any) -> None:
    vendors.write("acme/a.py", ASSUMING)
    with pytest.raises(UsageError, match="an assumption, for all passes: --assume all-positive"):
        vendors.host(settings={"Matching.all_positive": True})
    with pytest.raises(VendorError, match="an assumption is a bool, False by default"):
        PassOption("all_positive", bool, True, assumption=True)
    check_assumptions([], [])
