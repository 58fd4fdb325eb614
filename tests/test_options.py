"""What a host may be told, and what the environment says where nobody does."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

import gehost
from gehost import Host, HostOptions, UsageError
from gehost.options import from_environment


def test_the_names_and_defaults_that_outside_code_relies_on() -> None:
    assert dataclasses.asdict(HostOptions()) == {
        "vendors": (),
        "pass_paths": (),
        "plugins": True,
        "dump": None,
        "dump_level": 2,
        "dump_format": "pbtxt",
        "dump_stages": (),
        "compile_stat": None,
        "dump_passes": False,
        "enable": (),
        "only": (),
        "disable": (),
        "settings": {},
        "dims": {},
        "opset": None,
        "assume": (),
        "target": "",
        "half": False,
        "keep_io_types": False,
        "keep_float32": (),
        "fusion_switch_file": None,
        "room": 0,
        "cleanup": True,
        "verify": False,
        "feeds": None,
        "special_values": False,
        "ort_libraries": (),
        "rtol": None,
        "atol": None,
        "provider": "cpu",
        "keep_going": False,
        "rewrite_limit": None,
        "inline_functions": False,
    }


def test_options_as_data_have_paths_as_text() -> None:
    options = HostOptions(vendors=[Path("a"), "b"], dump=Path("d"), enable=("P",), rewrite_limit=3)
    plain = options.as_dict()
    assert plain == {**dataclasses.asdict(HostOptions()), **plain}
    assert {
        name: plain[name]
        for name in ("vendors", "dump", "enable", "disable", "rewrite_limit", "verify")
    } == {
        "vendors": ["a", "b"],
        "dump": "d",
        "enable": ["P"],
        "disable": [],
        "rewrite_limit": 3,
        "verify": False,
    }


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HostOptions().verify = True  # type: ignore[misc]


@pytest.fixture(autouse=True)
def no_default_vendors() -> None:
    """The default is what these tests are about."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"dump_level": 0}, "dump level 0: wanted 1"),
        ({"dump_level": 4}, "dump level 4: wanted 1"),
        ({"dump_format": "txt"}, 'dump format "txt": wanted pbtxt or onnx'),
        ({"rewrite_limit": -1}, "rewrite limit -1: wanted a number from 0"),
        ({"vendors": "vendors"}, "vendors='vendors': wanted a list"),
        ({"vendors": Path("vendors")}, "wanted a list"),
        ({"special_values": True}, "special values are only used by verify; turn verify on"),
        ({"atol": 1e-3}, "tolerances are only used by verify; turn verify on"),
        ({"provider": "cuda"}, "a provider is only used by verify; turn verify on"),
        ({"ort_libraries": ["a.so"]}, "libraries of operators are only used by verify; turn"),
        ({"ort_libraries": "a.so"}, "ort_libraries='a.so': wanted a list"),
        ({"settings": ["P.a=1"]}, "wanted a dict of values by PASS.option"),
        ({"dims": ["n=1"]}, "wanted a dict of sizes by name"),
        ({"dims": {"n": -1}}, "dim n=-1: wanted a whole number from 0"),
        ({"dims": {"n": 1 << 63}}, r"wanted a whole number from 0 to 2\*\*63 - 1"),
        ({"dims": {"n": "3"}}, "dim n=.3.: wanted a whole number from 0"),
        ({"only": "Pass"}, "only='Pass': wanted a list"),
        ({"disable": "Pass"}, "disable='Pass': wanted a list"),
        ({"enable": "Pass"}, "enable='Pass': wanted a list"),
    ],
)
def test_nonsense_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        HostOptions(**value)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("value", "environ", "there", "vendors"),
    [
        ((), {}, False, ["gehost:onnx"]),
        ((), {}, True, ["vendors"]),
        ((), {"GEHOST_VENDORS": "a:b c:"}, True, ["a", "b c"]),
        ((), {"GEHOST_VENDORS": ""}, True, ["vendors"]),
        (("given",), {"GEHOST_VENDORS": "a"}, True, ("given",)),
    ],
)
def test_vendors_are_those_given_else_the_environments_else_the_directory_here(
    here: Path, value: Any, environ: dict[str, str], there: bool, vendors: Any
) -> None:
    if there:
        (here / "vendors").mkdir()
    notes: list[str] = []
    actual = from_environment({"vendors": value}, environ, note=notes.append)
    assert actual.vendors == vendors
    assert notes == ["no vendors given: using gehost:onnx"] * (vendors == ["gehost:onnx"])
    assert HostOptions().vendors == ()


def test_a_link_to_nothing_in_place_of_the_directory_here_is_not_passed_over(here: Path) -> None:
    (here / "vendors").symlink_to("nowhere")
    options = from_environment({}, {})
    with pytest.raises(UsageError, match="vendors: a link to nowhere, which does not exist$"):
        Host(options)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("value", "environ", "dump", "level"),
    [
        ({}, {}, None, 2),
        ({}, {"DUMP_GE_GRAPH": "1"}, ".", 1),
        ({}, {"DUMP_GE_GRAPH": "2"}, ".", 2),
        ({}, {"DUMP_GE_GRAPH": "3"}, ".", 3),
        ({}, {"DUMP_GE_GRAPH": "0"}, None, 2),
        ({}, {"DUMP_GE_GRAPH": ""}, None, 2),
        ({}, {"DUMP_GRAPH_PATH": "there"}, None, 2),
        ({}, {"DUMP_GE_GRAPH": "1", "DUMP_GRAPH_PATH": "there"}, "there/PROCESS", 1),
        (
            {},
            {"DUMP_GE_GRAPH": "1", "DUMP_GRAPH_PATH": "there", "NPU_COLLECT_PATH": "first"},
            "first/PROCESS",
            1,
        ),
        (
            {},
            {"DUMP_GE_GRAPH": "1", "ASCEND_DUMP_PATH": "first", "NPU_COLLECT_PATH": "second"},
            "first/PROCESS",
            1,
        ),
        ({}, {"DUMP_GE_GRAPH": "1", "ASCEND_WORK_PATH": "work"}, "work/PROCESS", 1),
        ({}, {"DUMP_GE_GRAPH": "1", "DUMP_GRAPH_PATH": ""}, ".", 1),
        ({"dump": "given"}, {"DUMP_GRAPH_PATH": "there"}, "given", 2),
        ({"dump": "given"}, {"DUMP_GE_GRAPH": "3", "DUMP_GRAPH_PATH": "there"}, "given", 3),
        ({"dump_level": 1}, {"DUMP_GE_GRAPH": "3"}, ".", 1),
        ({"dump": "given", "dump_level": 1}, {"DUMP_GE_GRAPH": "3"}, "given", 1),
    ],
)
def test_dumps_go_where_it_was_said_else_where_ges_variables_say(
    value: Any, environ: Any, dump: Any, level: int
) -> None:
    options = from_environment(value, environ)
    process = f"pid_{os.getpid()}_deviceid_0"
    expected = None if dump is None else dump.replace("PROCESS", process)
    assert (options.dump, options.dump_level) == (expected, level)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DUMP_GRAPH_LEVEL": "1"}, {"dump_passes": True}),
        ({"DUMP_GRAPH_LEVEL": "2"}, {}),
        ({"DUMP_GRAPH_LEVEL": "3"}, {"dump_stages": ("Build",)}),
        ({"DUMP_GRAPH_LEVEL": "4"}, {"dump_stages": ("PreRunBegin",)}),
        (
            {"DUMP_GRAPH_LEVEL": '"PreRunBegin|AfterInfershape"'},
            {"dump_stages": ("PreRunBegin", "AfterInfershape")},
        ),
        ({"DUMP_GRAPH_FORMAT": "onnx|readable"}, {"dump_format": ("pbtxt", "readable")}),
        ({"DUMP_GRAPH_FORMAT": "readable"}, {"dump_format": ("readable",)}),
        ({"DUMP_GRAPH_FORMAT": "ge_proto"}, {"dump_format": "pbtxt"}),
    ],
)
def test_ges_variables_choose_stages_and_formats(environ: Any, expected: Any) -> None:
    notes: list[str] = []
    value = {"vendors": ["v"]}
    options = from_environment(value, {"DUMP_GE_GRAPH": "2", **environ}, note=notes.append)
    assert options == HostOptions(vendors=["v"], dump=".", dump_level=2, **expected)
    assert ["ge_proto" in note for note in notes] == [True] * ("ge_proto" in str(environ))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "name",
    [
        "ASCEND_DUMP_PATH",
        "NPU_COLLECT_PATH",
        "DUMP_GRAPH_PATH",
        "DUMP_GRAPH_LEVEL",
        "DUMP_GRAPH_FORMAT",
    ],
)
def test_a_variable_without_effect_is_noted(name: str) -> None:
    notes: list[str] = []
    from_environment({"vendors": ["v"]}, {name: "1"}, note=notes.append)
    assert notes == [f"{name} has no effect without DUMP_GE_GRAPH=1, 2 or 3"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "value"), [("DUMP_GRAPH_LEVEL", "7"), ("DUMP_GRAPH_FORMAT", "dot")]
)
def test_a_wrong_value_of_a_variable_of_dumps_is_an_error(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}={value}: wanted"):
        from_environment({}, {"DUMP_GE_GRAPH": "1", name: value})


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("chosen", "environ", "note"),
    [
        ({}, {"ASCEND_DUMP_PATH": "a", "DUMP_GRAPH_PATH": "b"}, "PATH has no effect beside ASCEND"),
        ({}, {"ASCEND_DUMP_PATH": "a", "NPU_COLLECT_PATH": "b"}, "NPU_COLLECT_PATH has no effect"),
        ({"dump": "own"}, {"DUMP_GRAPH_PATH": "b"}, "DUMP_GRAPH_PATH has no effect beside --dump"),
        ({"dump": "own"}, {"ASCEND_DUMP_PATH": "b"}, "ASCEND_DUMP_PATH has no effect beside --"),
        ({"dump_level": 3}, {}, "the level of DUMP_GE_GRAPH has no effect beside --dump-level"),
        (
            {"dump_format": ["readable"]},
            {"DUMP_GRAPH_FORMAT": "onnx"},
            "DUMP_GRAPH_FORMAT has no effect beside --dump-format",
        ),
    ],
)
def test_a_variable_of_dumps_that_another_choice_beats_is_noted(
    chosen: dict[str, Any], environ: dict[str, str], note: str
) -> None:
    notes: list[str] = []
    from_environment(
        {"vendors": ["v"], **chosen}, {"DUMP_GE_GRAPH": "1", **environ}, note=notes.append
    )
    assert len(notes) == 1
    assert note in notes[0]


@pytest.mark.usefixtures("here")
def test_paths_of_passes_come_from_the_environment() -> None:
    notes: list[str] = []
    paths = os.pathsep.join(["a.py", "dir", " ", ""])
    environ = {"ASCEND_GE_PY_PASS_PATH": paths}
    options = from_environment({"vendors": ["v"]}, environ, note=notes.append)
    assert options.pass_paths == ["a.py", "dir"]
    assert notes == ["ASCEND_GE_PY_PASS_PATH: loading passes of a.py, dir"]
    value = {"export_compile_stat": 1}
    assert from_environment(value, {}).compile_stat == "."
    work = from_environment(value, {"ASCEND_WORK_PATH": "work"})
    assert work.compile_stat == f"work/FE/{os.getpid()}"


@pytest.mark.usefixtures("here")
def test_the_process_environment_is_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEHOST_VENDORS", "from the environment")
    monkeypatch.delenv("DUMP_GE_GRAPH", raising=False)
    monkeypatch.delenv("DUMP_GRAPH_PATH", raising=False)
    assert from_environment({"verify": True, "dump_format": None}) == HostOptions(
        vendors=["from the environment"], verify=True
    )


def test_only_the_options_read_the_environment() -> None:
    package = Path(gehost.__file__).parent
    reading = [
        path.name
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("os.environ", "getenv"))
    ]
    assert reading == ["options.py"]
