"""``gehost zoo`` on this machine: what becomes of models, processes and results."""

from __future__ import annotations

import json
import os
import shlex
from concurrent.futures import Future
from html.parser import HTMLParser
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from gehost.cli import run

pytest.importorskip("pebble")
pytest.importorskip("distributed")

from gehost import HostOptions, UsageError, shipped
from gehost_zoo import command, engine, progress
from gehost_zoo import run as run_module
from gehost_zoo.engine import TRIES, Limits, LocalEngine
from gehost_zoo.manifest import Entry, find_models
from gehost_zoo.results import ResultFile
from gehost_zoo.run import Tasks
from gehost_zoo.work import DiskFullError, compile_model


def test_a_model_that_takes_too_long(place: Any) -> None:
    place.model("sleep.onnx")
    assert place.zoo(*["models", "-o", "out", "--timeout", "2"]) == 7
    assert place.results()["models/sleep.onnx"]["status"] == "timeout"
    assert (
        "gehost: timeout: models/sleep.onnx: not done after 2 s\n" in place.capsys.readouterr().err
    )


def test_models_are_optimized_and_resumed(place: Any) -> None:
    for name in ("a", "b"):
        place.model(f"{name}.onnx")
    Path("models/bad.onnx").write_bytes(b"no model")
    arguments = ["models", "-o", "out", "--jobs", "1", "--optimize", "--for", "any", "--no-measure"]
    assert place.zoo(*arguments) == 3
    results = place.results()
    assert results["models/a.onnx"]["status"] == "done"
    assert results["models/a.onnx"]["numbers"]["summary"].startswith("equal")
    assert Path("out/models/models/b.onnx").exists()
    words = shlex.split(results["models/bad.onnx"]["replay"])
    assert words[:2] + words[4:8] == [
        "gehost",
        "optimize",
        "out.onnx",
        "--for",
        "any",
        "--no-measure",
    ]
    assert place.zoo(*arguments, "--resume") == 3
    assert place.results()["models/a.onnx"] == results["models/a.onnx"]


def test_options_of_optimize_want_it(place: Any) -> None:
    place.model("a.onnx")
    assert place.zoo("models", "-o", "out", "--for", "any") == 2
    assert "--for and --no-measure are for --optimize" in place.capsys.readouterr().err
    assert place.zoo("models", "-o", "out", "--optimize", "--verify") == 2
    assert "--verify is for compiles" in place.capsys.readouterr().err


def test_each_model_ends_by_itself(place: Any) -> None:
    for name in ("a", "kept", "wrong", "raise", "crash", "hog", "sub/z"):
        place.model(f"{name}.onnx")
    place.model("dynamic.onnx", size="N")
    Path("models/bad.onnx").write_bytes(b"no model")
    arguments = "models -o out --jobs 3 --timeout 60 --memory 400MiB --verify --report out.html"
    code = place.zoo(*arguments.split())
    printed = place.capsys.readouterr()
    results = place.results()
    ends = {name: (row["status"], row["exit_code"]) for name, row in results.items()}
    assert ends == {
        "models/a.onnx": ("done", 0),
        "models/bad.onnx": ("failed", 3),
        "models/crash.onnx": ("died", 7),
        "models/dynamic.onnx": ("done", 0),
        "models/hog.onnx": ("memory", 7),
        "models/kept.onnx": ("done", 0),
        "models/raise.onnx": ("failed", 5),
        "models/sub/z.onnx": ("done", 0),
        "models/wrong.onnx": ("differs", 6),
    }
    assert code == 3  # of models/bad.onnx, the first in the order of the models
    assert results["models/a.onnx"]["rewrites"] == 1
    assert results["models/a.onnx"]["numbers"]["equal"] is True
    assert results["models/kept.onnx"]["passes"]["Treat"] == {
        "matched": 1, "replaced": 0, "refused": {"name": 1}
    }  # fmt: skip
    assert "SIGSEGV" in results["models/crash.onnx"]["error"]
    outputs = {str(path) for path in Path("out/models").rglob("*.onnx")}
    assert outputs == {
        "out/models/models/a.onnx",
        "out/models/models/dynamic.onnx",
        "out/models/models/kept.onnx",
        "out/models/models/sub/z.onnx",
        "out/models/models/wrong.refused.onnx",
    }
    assert "9 models: 4 done, 5 failed; 4 rewrites by 1 pass\n" in printed.out
    replay = shlex.split(results["models/raise.onnx"]["replay"])
    assert replay[0] == "gehost"
    assert run(replay[1:]) == 5
    page = Path("out.html").read_text(encoding="utf-8")
    first, *_, last = (page.index(name) for name in ("bad.onnx", "wrong.onnx", "h-passes"))
    assert first < last
    links = _Links.of(page)
    assert all(Path(link).is_file() for link in links)
    assert {Path(link).stem for link in links} >= {"a", "z", "wrong", "raise", "bad"}
    assert not {Path(link).stem for link in links} & {"crash", "sleep", "hog"}


class _Links(HTMLParser):
    @classmethod
    def of(cls, page: str) -> set[str]:
        self = cls()
        self.links: set[str] = set()
        self.feed(page)
        return self.links

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "a":
            self.links.add(dict(attrs)["href"])


def test_a_shipped_vendor_is_named_not_found_by_path(place: Any, monkeypatch: Any) -> None:
    """Its name goes to the workers as it is; its files are part of the hashes."""
    entry = EntryPoint("acme", "gehost_zoo_shipped:acme", "gehost.vendors")
    Path("gehost_zoo_shipped.py").write_text(f"acme = {str(place.root / 'vendors/acme')!r}\n")
    monkeypatch.syspath_prepend(str(place.root))
    monkeypatch.setattr(shipped, "entry_points", lambda group: [entry])
    monkeypatch.setattr(shipped, "_spelled", lambda entry: f"here:{entry.name}")
    place.model("a.onnx")
    (model,) = find_models(["models"], lambda _: True, outside="out").entries
    tasks = Tasks("out", HostOptions(vendors=["here:acme"]), paged=False)
    task = tasks.of(model)
    assert json.loads(task.options)["vendors"] == ["here:acme"]
    by_path = Tasks("out", HostOptions(vendors=["vendors/acme"]), paged=False).of(model)
    assert task.hashes["vendors"] == by_path.hashes["vendors"]
    assert compile_model(task)["rewrites"] == 1


def test_a_run_that_is_interrupted_continues(place: Any, monkeypatch: Any) -> None:
    names = [f"m{number}" for number in range(5)]
    for name in (*names, "raise"):
        place.model(f"{name}.onnx")
    assert place.zoo("models", "-o", "whole", "--jobs", "1") == 5
    finished = progress.Progress.finished
    calls: list[str] = []

    def interrupted(self: Any, record: Any) -> None:
        finished(self, record)
        calls.append(record["model"])
        if len(calls) in (2, 4):
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "finished", interrupted)
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 130
    assert len(place.results()) == 2
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 2  # not without --resume
    assert "--resume continues it" in place.errors()
    with open("out/zoo.jsonl", "a", encoding="utf-8") as file:
        file.write('{"model": "models/m4.onnx", "stat')  # a line that was not completed
    assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 130
    assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 5
    assert len(calls) == 6
    assert _outputs(place.results()) == _outputs(place.results("whole"))
    files = {path.name: path.read_bytes() for path in Path("out").rglob("*.onnx")}
    assert files == {path.name: path.read_bytes() for path in Path("whole").rglob("*.onnx")}
    # another model: its line alone is replaced; another pass: all are
    place.model("m1.onnx", "kept")
    assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 5
    assert calls[6:] == ["models/m1.onnx"]
    place.zoo("models", "-o", "out", "--jobs", "1", "--resume", "--disable", "Treat")
    assert len(calls) == 13
    assert all(row["rewrites"] == 0 for row in place.results().values())


def _outputs(results: Any) -> Any:
    return sorted(results.items())


def test_a_process_that_is_killed_runs_its_model_again(place: Any) -> None:
    place.model("a.onnx", "once")
    place.model("b.onnx")
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 0
    assert (place.root / "flag").exists()
    assert [row["status"] for row in place.results().values()] == ["done", "done"]


def test_a_model_is_not_blamed_for_kills_from_outside(place: Any, monkeypatch: Any) -> None:
    place.model("a.onnx", "killed")
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 0
    flag = place.root / "flag"
    assert flag.read_text() == "xxxxxx"  # killed five times, more often than a model may die
    # the same kills are the model's, at most three, where the kernel freed memory meanwhile
    flag.unlink()
    counts = iter(range(99))
    monkeypatch.setattr(engine, "_kills_for_memory", lambda: next(counts))
    assert place.zoo("models", "-o", "memory", "--jobs", "1") == 7
    assert flag.read_text() == "xxx"
    (row,) = place.results("memory").values()
    assert row["error"] == "its process died 3 times; the last time by SIGKILL"
    # and they end somewhere
    flag.unlink()
    monkeypatch.setattr(engine, "_kills_for_memory", lambda: 0)
    monkeypatch.setattr(engine, "_KILLED", 2)
    assert place.zoo("models", "-o", "kills", "--jobs", "1") == 7
    (row,) = place.results("kills").values()
    assert row["error"].startswith("2 processes ended before it was done, 2 of them killed")


def test_a_process_that_leaves_without_a_result_is_noticed(place: Any) -> None:
    place.model("a.onnx", "leave")
    place.model("b.onnx", "stop")
    place.model("c.onnx")
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 7
    first, second, third = place.results().values()
    assert first["error"] == "its process died 3 times; the last time with exit code 0"
    assert (second["exit_code"], third["exit_code"]) == (1, 0)
    assert "KeyboardInterrupt" in second["error"]


def test_a_process_that_dies_between_two_models_costs_none(place: Any) -> None:
    place.model("a.onnx")
    tasks = Tasks("out", HostOptions(vendors=["vendors"]), paged=False)
    task = tasks.of(Entry("a", "models/a.onnx"))
    local = LocalEngine(1, Limits())
    try:
        assert local.run(task)["status"] == "done"
        for _ in range(TRIES):
            (worker,) = local._workers
            worker._process.kill()
            assert local.run(task)["status"] == "done"
    finally:
        local.close()


def test_invalid_lines_and_duplicates_are_reported_and_the_rest_runs(place: Any) -> None:
    place.model("a.onnx")
    place.model("b.onnx", size="N")
    Path("zoo.jsonl").write_text(
        '{"model": "models/a.onnx"}\n'
        '{"model": "models/a.onnx", "option": {}}\n'
        "\n"
        '{"model": "models/b.onnx", "dims": {"N": 3}, "options": {"disable": ["Treat"]}}\n'
        "{nonsense\n"
        '{"model": "./models/a.onnx"}\n'
        '{"model": "models/a.onnx", "name": "a again", "options": {"rewrite_limit": 0}}\n',
        encoding="utf-8",
    )
    assert place.zoo("zoo.jsonl", "models/*.onnx", "-o", "out", "--jobs", "1") == 2
    errors = place.errors()
    assert "invalid: zoo.jsonl:2: Object contains unknown field `option`" in errors
    assert "invalid: zoo.jsonl:5: JSON is malformed" in errors
    assert "duplicate: zoo.jsonl:6: models/a.onnx is the model of zoo.jsonl:1" in errors
    assert "duplicate: models/b.onnx: models/b.onnx is the model of zoo.jsonl:4" in errors
    results = place.results()
    rewrites = {name: row["rewrites"] for name, row in results.items()}
    assert rewrites == {"models/a.onnx": 1, "models/b.onnx": 0, "a again": 0}
    assert Path("out/models/a again.onnx").is_file()


def test_options_of_compile_hold_and_are_part_of_the_replay(place: Any) -> None:
    place.model("a.onnx")
    place.model("b.onnx")
    lines = ({"model": "models/a.onnx", "options": {"opset": 16}}, {"model": "models/b.onnx"})
    text = "\n".join(map(json.dumps, lines))
    Path("zoo.jsonl").write_text(text, encoding="utf-8-sig")  # with a byte-order mark
    arguments = "zoo.jsonl -o out --jobs 1 --opset 18 --only Treat"
    assert place.zoo(*arguments.split()) == 2
    results = place.results()
    assert onnx.load("out/models/models/b.onnx").opset_import[0].version == 18
    assert results["models/b.onnx"]["rewrites"] == 1
    replay = shlex.split(results["models/a.onnx"]["replay"])
    assert [" ".join(pair) for pair in pairwise(replay)].count("--opset 16") == 1
    assert [" ".join(pair) for pair in pairwise(replay)].count("--only Treat") == 1
    place.errors()
    assert run(replay[1:]) == results["models/a.onnx"]["exit_code"] == 2
    assert results["models/a.onnx"]["error"] in place.errors()
    assert place.zoo("models", "-o", "other", "--jobs", "1", "--assume", "nothing") == 2
    assert "nothing" in place.errors()


def test_models_are_read_when_their_turn_comes(place: Any, monkeypatch: Any) -> None:
    for number in range(9):
        place.model(f"m{number}.onnx")
    real, hashed, ahead = run_module.hash_model, list[str](), list[int]()
    monkeypatch.setattr(run_module, "hash_model", lambda path: hashed.append(path) or real(path))
    monkeypatch.setattr(
        progress.Progress, "finished", lambda *_: ahead.append(len(hashed) - len(ahead))
    )
    assert place.zoo("models", "-o", "out", "--jobs", "1") == 0
    assert len(hashed) == 9
    assert max(ahead) <= 3


class _Comes:
    """An engine whose workers connect when the third model is submitted, and leave after it."""

    def __init__(self) -> None:
        self.capacity = self.checks = self.submitted = 0

    def submit(self, task: Any) -> Future[Any]:
        self.submitted += 1
        self.capacity = 2 if self.submitted == 3 else 0
        future: Future[Any] = Future()
        future.set_result({"model": task})
        return future

    def check(self) -> None:
        self.checks += 1
        if self.checks > 9:
            raise AssertionError("waits for results that nobody computes")

    def close(self) -> None:
        pass


def test_a_cluster_without_workers_for_a_while_runs_the_rest_later() -> None:
    finished, lines = list[Any](), list[Any]()
    results: Any = SimpleNamespace(append=lines.append)
    run_module.run_tasks(iter("abcdef"), _Comes(), results, finished.append)  # pyright: ignore[reportArgumentType]
    assert finished == lines
    assert sorted(record["model"] for record in lines) == list("abcdef")


def test_two_runs_at_a_time_do_not_share_a_directory(place: Any) -> None:
    place.model("a.onnx")
    with ResultFile("out", []):
        assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 2
        assert place.errors() == "gehost: out: another run writes there\n"
        assert os.listdir("out") == ["zoo.jsonl"]
    assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 0
    assert list(place.results()) == ["models/a.onnx"]


def test_lines_that_name_no_file_or_no_output_are_invalid(place: Any) -> None:
    place.model("a.onnx")
    place.model("b.onnx")
    names = ["n" * 205, "nul\0", ".", "../..", "b", "b.refused", "n" * 204]
    lines: list[dict[str, Any]] = [{"model": "models/a.onnx", "name": name} for name in names]
    lines += [{"model": "models"}, {"model": "gone.onnx"}, {"model": "a\0.onnx"}]
    lines += [{"model": "models/b.onnx", "name": "b.onnx"}]
    lines += [{"model": "models/a.onnx", "name": "f", "feeds": "gone.npz"}]
    Path("zoo.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert place.zoo("zoo.jsonl", "-o", "out", "--jobs", "1", "--report", "out/zoo.html") == 2
    printed = place.capsys.readouterr()
    assert list(place.results()) == ["b", "n" * 204]
    assert "2 models: 2 done, 0 failed, 9 invalid lines;" in printed.out
    for line in (
        "invalid: zoo.jsonl:1: outputs cannot have this name",
        "invalid: zoo.jsonl:2: outputs cannot have this name",
        'invalid: zoo.jsonl:3: "." names no file',
        'invalid: zoo.jsonl:4: "../.." names no file',
        "duplicate: zoo.jsonl:6: b.refused is the model of zoo.jsonl:5",
        "invalid: zoo.jsonl:8: models: no such file",
        "invalid: zoo.jsonl:9: gone.onnx: no such file",
        r"invalid: zoo.jsonl:10: a\x00.onnx: no such file",
        "invalid: zoo.jsonl:11: its outputs would have the names of those of zoo.jsonl:5",
        "invalid: zoo.jsonl:12: gone.npz: no such file",
    ):
        assert f"gehost: {line}" in printed.err


def test_linked_directories_are_searched_once(place: Any) -> None:
    place.model("a.onnx")
    place.model("../far/b.onnx")
    Path("models/link").symlink_to("../far")
    Path("models/link2").symlink_to("../far")
    Path("far/up").symlink_to("../models")
    Path("models/same.onnx").symlink_to("a.onnx")
    zoo = find_models(["models"], lambda path: path.endswith(".onnx"), outside="out")
    assert [entry.name for entry in zoo.entries] == ["models/a.onnx", "models/link/b.onnx"]
    (line,) = zoo.duplicates
    assert line.startswith("models/same.onnx: models/same.onnx is the model of models/a.onnx")


def test_a_directory_that_cannot_be_read_is_reported(place: Any, monkeypatch: Any) -> None:
    place.model("a.onnx")
    real = os.scandir

    def denied(path: Any) -> Any:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    Path("models/secret").mkdir()
    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(UsageError, match="models/secret: cannot be read: Permission denied"):
        find_models(["models"], lambda _: True, outside="out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere", "nowhere: no such file, directory or glob"),
        ("empty", "empty: no model there"),
        ("models/no*.onnx", "models/no*.onnx: no model there"),
        ("nowhere.jsonl", "nowhere.jsonl: cannot read the manifest: No such file"),
        ("models --send", "--send is for the workers of --dask"),
        ("models --dask tcp://x:1 --jobs 2", "--jobs is for this machine"),
        ("models --memory much", '"much": wanted a size such as 4GiB'),
        ("models --memory 0.0001", '"0.0001": wanted a size such as 4GiB'),
        ("models --timeout nan", "nan: wanted a number of seconds"),
        ("models --timeout -1", "-1: wanted a number of seconds"),
        ("models --dask ", "--dask: must not be empty"),
        ("models --report ", "--report: must not be empty"),
        ("models --against ", "--against: must not be empty"),
        ("models -o ", "--output: must not be empty"),
        ("models --report no/page.html", "no: there is no such directory to write to"),
        ("models --report empty.html", "empty.html: is a directory"),
        ("models --report page.txt", "wanted a file name that ends in .html"),
        ("models --against empty", "empty/zoo.jsonl: no results there"),
        ("models -o empty2", "empty2: exists and is no directory of a run"),
        ("models -o other --resume", "holds the results of another zoo (x.onnx is not in"),
        ("models -o broken --resume", "broken/zoo.jsonl:1: this is no result of a model"),
    ],
)
def test_bad_arguments_are_one_line_and_nothing_is_written(
    place: Any, arguments: str, message: str
) -> None:
    place.model("a.onnx")
    for name, text in (
        ("empty2/file", ""),
        ("other/zoo.jsonl", '{"model": "x.onnx", "status": "", "hashes": 0, "exit_code": 0}\n'),
        ("broken/zoo.jsonl", '{"model": 1}\n'),
    ):
        Path(name).parent.mkdir()
        Path(name).write_text(text, encoding="utf-8")
    Path("empty").mkdir()
    Path("empty.html").mkdir()
    words = arguments.split(" ")
    assert place.zoo(*words, *(() if "-o" in words else ("-o", "out"))) == 2
    line = place.errors().strip()
    assert message in line
    assert "\n" not in line
    assert not Path("out").exists()


class _FullDisk:
    """An engine whose second model finds no space."""

    capacity = 1

    def __init__(self) -> None:
        self.closed = False

    def submit(self, task: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if task.name.endswith("b.onnx"):
            future.set_exception(DiskFullError("out/models/b.onnx: No space left on device"))
        else:
            future.set_result({**task.record("done", 0, ""), "measured": {}})
        return future

    def check(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_a_full_disk_stops_the_run_which_can_be_resumed(place: Any, monkeypatch: Any) -> None:
    for name in "abc":
        place.model(f"{name}.onnx")
    full_disk = _FullDisk()
    with monkeypatch.context() as patched:
        patched.setattr(command, "_engine", lambda *_: full_disk)
        assert place.zoo("models", "-o", "out", "--jobs", "1") == 2
    assert "No space left on device" in place.errors()
    assert full_disk.closed
    assert list(place.results()) == ["models/a.onnx"]

    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if b'"models/c.onnx"' in data:
            real(descriptor, data[:10])
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 2
    assert "--resume continues when there is space" in place.errors()
    lines = Path("out/zoo.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["model"] for line in lines] == ["models/a.onnx", "models/b.onnx"]
    assert place.zoo("models", "-o", "out", "--jobs", "1", "--resume") == 0
    assert len(place.results()) == 3
