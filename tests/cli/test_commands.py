"""Options that several commands share, and machine-readable answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gehost import CustomPassStage, HostOptions, UsageError, VendorError
from gehost.cli import run
from gehost.passes.registration import check_stage

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] z) { y = Relu(x)  z = Exp(y) }"""
WRONG = "replaces Relu by Abs"


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return ask


@pytest.fixture
def files(here: Any, vendors: Any) -> None:
    """``m.onnx`` and two passes: one that changes numbers, one that does not fire."""
    import onnx

    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    vendors.write("acme/a.py", vendors.swap("Wrong", "Relu", "Abs"))
    vendors.write("acme/b.py", vendors.swap("Idle", "Neg", "Abs"))


def replaced(host: Any) -> dict[str, int]:
    import onnx

    report = host.run(onnx.parser.parse_model(MODEL))[1]
    return {record.name: record.replaced for record in report.passes if record.status == "done"}


@pytest.mark.usefixtures("files")
def test_only_runs_one_pass_and_turns_the_others_off(vendors: Any) -> None:
    assert replaced(vendors.host()) == {"Wrong": 1}
    assert replaced(vendors.host(only=["Wrong"])) == {"Wrong": 1}
    assert replaced(vendors.host(only=["Idle"])) == {}


@pytest.mark.usefixtures("files")
def test_only_refuses_unknown_names_and_other_switches(vendors: Any) -> None:
    with pytest.raises(UsageError, match="--only: there is no pass Wrnog; did you mean Wrong?"):
        vendors.host(only=["Wrnog"])
    with pytest.raises(UsageError, match="--only and Idle by --enable or --disable contradict"):
        vendors.host(only=["Wrong"], disable=["Idle"])


@pytest.mark.usefixtures("files")
def test_no_plugins_leaves_their_passes_out(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gehost.host import loaded

    prompts: list[bool] = []
    monkeypatch.setattr(loaded, "installed_plugins", lambda: prompts.append(True) or [])
    assert answer("compile", "m.onnx", "-o", "o.onnx", "--no-plugins")[0] == 0
    assert prompts == []
    assert answer("compile", "m.onnx", "-o", "o.onnx")[0] == 0
    assert prompts == [True]


@pytest.mark.usefixtures("files")
def test_verify_gives_json_also_where_numbers_differ(answer: Any) -> None:
    assert answer("compile", "m.onnx", "-o", "o.onnx")[0] == 0
    code, out, err = answer("verify", "m.onnx", "o.onnx", "--json")
    actual = json.loads(out)
    assert (code, actual["equal"]) == (6, False)
    assert actual["outputs"][0]["output"] == "z"
    assert err.startswith("gehost: differ: z[")
    code, out, err = answer("verify", "m.onnx", "m.onnx", "--json")
    assert (code, json.loads(out)["equal"], err) == (0, True, "")


@pytest.mark.usefixtures("files")
def test_bisect_gives_json(answer: Any) -> None:
    code, out, _ = answer("bisect", "m.onnx", "--json", "-o", "found")
    actual = json.loads(out)
    assert (code, actual["equal"], actual["rewrites"], actual["directory"]) == (
        6,
        False,
        1,
        "found",
    )
    assert actual["wrong_rewrite"]["pass"] == "Wrong"
    assert [node["op"] for node in actual["wrong_rewrite"]["nodes"]] == ["Relu"]
    assert [trial["equal"] for trial in actual["trials"]] == [False, True]
    code, out, _ = answer("bisect", "m.onnx", "--json", "--only", "Idle")
    actual = json.loads(out)
    assert (code, actual["equal"], actual["wrong_rewrite"]) == (0, True, None)


@pytest.mark.usefixtures("files")
def test_check_pass_gives_json(answer: Any) -> None:
    code, out, _ = answer(
        "check-pass", "vendors/acme/custom_fusion_passes/a.py", "--json", "--instances", "1"
    )
    (actual,) = json.loads(out)
    assert (code, actual["name"], actual["verdict"]) == (6, "Wrong", "wrong")
    assert actual["findings"][0]["wrong"] == "numbers differ"


def test_help_lists_whole_summaries(answer: Any) -> None:
    code, out, _ = answer("--help")
    listing = out[out.index("Commands:") :]
    assert code == 0
    assert "..." not in listing
    assert "compile that changes the numbers." in " ".join(listing.split())


def test_a_misspelled_stage_gets_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no stage kAfterInfershape; did you mean kAfterInfer"):
        _ = CustomPassStage.kAfterInfershape  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(VendorError, match="did you mean kAfterInferShape?"):
        check_stage("kAfterInfershape", "p.py:1", "P")
    assert not HostOptions().only
