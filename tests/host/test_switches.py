"""Which passes are switched off, and switches that name nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gehost import HostOptions, UsageError
from gehost.host.switches import disabled_passes, read_switch_file
from gehost.testing import parse

KNOWN = ["FuseMatMulAdd", "FuseGelu", "RemoveIdentity"]
DEFAULTS = dict.fromkeys(KNOWN, True)


@pytest.fixture
def switch_file(tmp_path: Path) -> Any:
    def write(entries: Any) -> Path:
        path = tmp_path / "switch.json"
        path.write_text(
            entries
            if isinstance(entries, str)
            else json.dumps({"Switch": {"GraphFusion": entries}})
        )
        return path

    return write


@pytest.mark.parametrize(
    ("entries", "options", "off"),
    [
        (None, {}, set()),
        (None, {"disable": ["FuseGelu"]}, {"FuseGelu"}),
        ({"FuseGelu": "off"}, {}, {"FuseGelu"}),
        ({"FuseGelu": "OFF"}, {}, {"FuseGelu"}),
        ({"ALL": "off"}, {}, set(KNOWN)),
        ({"ALL": "on"}, {}, set()),
        ({"ALL": "off", "FuseGelu": "on"}, {}, set(KNOWN) - {"FuseGelu"}),
        ({"FuseGelu": "on", "ALL": "off"}, {}, set(KNOWN) - {"FuseGelu"}),
        ({"ALL": "on", "FuseGelu": "off"}, {}, {"FuseGelu"}),
        ({"FuseGelu": "off"}, {"enable": ["FuseGelu"]}, set()),
        ({"FuseGelu": "on"}, {"disable": ["FuseGelu"]}, {"FuseGelu"}),
        ({"ALL": "off"}, {"enable": ["FuseGelu"]}, set(KNOWN) - {"FuseGelu"}),
        (
            {"ALL": "off", "FuseGelu": "on"},
            {"disable": ["FuseGelu"], "enable": ["RemoveIdentity"]},
            set(KNOWN) - {"RemoveIdentity"},
        ),
        ({}, {"enable": ["FuseGelu"]}, set()),
    ],
)
def test_an_option_beats_an_entry_beats_all_beats_on(
    switch_file: Any, entries: Any, options: Any, off: set[str]
) -> None:
    path = None if entries is None else switch_file(entries)
    assert disabled_passes(HostOptions(fusion_switch_file=path, **options), DEFAULTS) == off


@pytest.mark.parametrize("option", ["enable", "disable"])
def test_a_name_that_no_pass_has_is_an_error_with_the_nearest(option: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"^--enable/--disable: there is no pass FuseMatmulAdd; did you mean FuseMatMulAdd\?$",
    ):
        disabled_passes(HostOptions(**{option: ["FuseMatmulAdd"]}), DEFAULTS)
    with pytest.raises(UsageError, match=r"there is no pass Zzz; `gehost passes` lists them$"):
        disabled_passes(HostOptions(**{option: ["Zzz"]}), DEFAULTS)


def test_a_name_in_the_file_that_no_pass_has_is_one_note(vendors: Any, switch_file: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("FuseGelu", "Relu", "Abs"))
    path = switch_file({"FuseGello": "off", "GePass": "on", "ALL": "on"})
    host = vendors.host(fusion_switch_file=path)
    assert (
        f"{path}: no pass of this name is loaded: FuseGello, GePass; did you mean FuseGelu?"
        in host.notes
    )


def test_statistics_have_ges_form_and_no_pass_that_is_off(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Relu", "Abs"), vendors.swap("B", "Relu", "Neg"))
    host = vendors.host(compile_stat=tmp_path / "made", disable=["B"])
    host.run(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { y = Relu(x) }""")
    )
    assert json.loads((tmp_path / "made" / "fusion_result.json").read_text()) == {
        "session_and_graph_id_0_0": {
            "graph_fusion": {"A": {"effect_times": "1", "match_times": "1"}},
            "ub_fusion": {},
        }
    }


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("FuseGelu:off\n RemoveIdentity : on \n\n", {"FuseGelu": False, "RemoveIdentity": True}),
        ("ALL:off", {"ALL": False}),
        (
            '{"Switch": {"GraphFusion": {"FuseGelu": "off"}, "UBFusion": {"ALL": "off"}}}',
            {"FuseGelu": False},
        ),
        ('{"Switch": {"UBFusion": {"ALL": "off"}}}', {}),
        ("\ufeffFuseGelu : OFF\r\n\r\nALL:on\r\n", {"FuseGelu": False, "ALL": True}),
        ('\ufeff{"Switch": {"GraphFusion": {"ALL": "off"}}}\r\n', {"ALL": False}),
    ],
)
def test_ges_forms_of_a_file(switch_file: Any, text: str, passes: dict[str, bool]) -> None:
    assert read_switch_file(str(switch_file(text))).passes == passes


def test_enabled_and_disabled_at_once_is_an_error() -> None:
    with pytest.raises(UsageError, match="pass FuseGelu is both enabled and disabled; give one"):
        disabled_passes(HostOptions(enable=["FuseGelu"], disable=["FuseGelu"]), DEFAULTS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"Switch": {}}',
        '{"GraphFusion": {}}',
        '{"Switch": {"GraphFusion": ["FuseGelu"]}}',
        "\x80",
    ],
)
def test_a_file_that_is_no_switch_file(switch_file: Any, text: str) -> None:
    path = switch_file(text)
    line = ":1" if text else ""
    with pytest.raises(UsageError, match=f"^{path}{line}: not a fusion-switch file; wanted"):
        read_switch_file(path)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"Switch":\n {"GraphFusion":\n  {"A": "off",,}}}', 3, "not a fusion-switch file"),
        ('{"Switch":\n {"GraphFusion": 3}}', 2, "not a fusion-switch file"),
        ("A:off\n\nB off\n", 3, "not a fusion-switch file"),
        ("A:off\n\n B : of\n", 3, 'switch "B" is "of"'),
        (
            '{"Switch": {"UBFusion": {\n"A": "of"},\n"GraphFusion": {"B": "on",\n"A": "of"}}}',
            4,
            'switch "A" is "of"',
        ),
        ('{"Switch": {"GraphFusion": {"\\u0041":\n"of"}}}', 1, 'switch "A" is "of"'),
        ('{"Switch": {"GraphFusion": {},\n\n"Runtim": {}}}', 3, 'Switch: there is no key "Runtim"'),
        (
            '{"Switch": {"GraphFusion": {},\n"Runtime": {\n"level": 3}}}',
            3,
            "Runtime: level is 3; wanted a text",
        ),
        (
            '{"Switch": {"GraphFusion": {}},\n"Evidence": {\n"versions": 3}}',
            3,
            "Evidence: versions must be versions by package",
        ),
    ],
)
def test_an_error_of_a_switch_file_has_its_line(
    switch_file: Any, text: str, line: int, message: str
) -> None:
    path = switch_file(text)
    with pytest.raises(UsageError, match=f"^{path}:{line}: {re.escape(message)}"):
        read_switch_file(path)


@pytest.mark.parametrize("state", ["yes", True, None, 1])
def test_a_switch_is_on_or_off(switch_file: Any, state: Any) -> None:
    with pytest.raises(
        UsageError, match=f'switch "FuseGelu" is "{str(state).lower()}"; wanted on or off'
    ):
        read_switch_file(switch_file({"FuseGelu": state}))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"missing.json: cannot read the fusion-switch file: No such file"
    ):
        read_switch_file(str(tmp_path / "missing.json"))


def test_a_pass_that_is_off_is_reported_and_does_not_run(vendors: Any, switch_file: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Relu", "Abs"), vendors.swap("B", "Relu", "Neg"))
    host = vendors.host(fusion_switch_file=switch_file({"A": "off"}))
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
    )
    result, report = host.run(model)
    assert [node.op_type for node in result.graph.node] == ["Neg"]
    assert [(record.name, record.status, record.matched) for record in report.passes] == [
        ("A", "disabled", 0),
        ("B", "done", 1),
    ]


@pytest.mark.parametrize(
    ("entries", "options", "runs"),
    [
        (None, {}, False),
        ({"ALL": "on"}, {}, False),
        ({"Quiet": "on"}, {}, True),
        ({"Quiet": "on", "ALL": "off"}, {}, True),
        (None, {"enable": ["Quiet"]}, True),
        ({"Quiet": "on"}, {"disable": ["Quiet"]}, False),
    ],
)
def test_a_pass_that_is_off_by_default_runs_where_it_is_named(
    vendors: Any, switch_file: Any, entries: Any, options: Any, runs: bool
) -> None:
    quiet = "@REG_FUSION_PASS(stage={stage}, default=False)"
    vendors.write("acme/a.py", vendors.swap("Quiet", "Relu", "Abs", registration=quiet))
    path = None if entries is None else switch_file(entries)
    host = vendors.host(fusion_switch_file=path, **options)
    _, report = host.run(
        parse(
            """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
        )
    )
    (record,) = report.passes
    assert (record.replaced, record.status) == ((1, "done") if runs else (0, "disabled"))
    assert record.message == ("" if runs else "off by default; --enable Quiet runs it")


def test_a_wrong_switch_stops_before_a_model_is_touched(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Relu", "Abs"))
    with pytest.raises(UsageError, match="there is no pass B"):
        vendors.host(disable=["B"])
