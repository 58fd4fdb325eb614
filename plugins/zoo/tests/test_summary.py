"""What the results of runs say together, and the page, on records that are made here."""

from __future__ import annotations

import random
from typing import Any

from gehost_zoo.page import render
from gehost_zoo.summary import Comparison, summarize_passes


def record(name: str, cpu: float = 0.1, code: int = 0, replaced: int = 1, **more: Any) -> Any:
    row = {
        "model": name,
        "status": "failed" if code else "done",
        "exit_code": code,
        "hashes": {},
        "nodes_before": 10,
        "nodes_after": 9,
        "rewrites": replaced,
        "passes": {"P": {"matched": 3, "replaced": replaced, "refused": {"rank": 2}}},
        "bytes": 100,
        "sha256": "a",
        "measured": {"cpu": cpu, "seconds": cpu, "memory": 2**27, "first": False},
    }
    if code:
        row |= {"error": "<b>it & broke</b>", "replay": "gehost compile x.onnx"}
    return {**row, **more}


def test_passes_are_summed_over_models() -> None:
    (row,) = summarize_passes([record("a"), record("b", replaced=0), record("c", replaced=2)])
    assert (row.models, row.replaced, row.refused_models, row.refused) == (2, 3, 3, {"rank": 6})


def test_a_slowdown_exceeds_the_noise_of_all_models() -> None:
    draw = random.Random(0)
    before = {f"m{n}": record(f"m{n}", 0.2) for n in range(100)}
    after = [record(f"m{n}", 0.2 * draw.uniform(1.0, 1.2)) for n in range(100)]
    assert Comparison.of(before, after).slowdowns == []
    after[7] = record("m7", 0.4)
    after[8] = record("m8", 0.6)
    after[9] = record("m9", 9.0, measured={**after[9]["measured"], "cpu": 9.0, "first": True})
    comparison = Comparison.of(before, after)
    assert [row.model for row in comparison.slowdowns] == ["m8", "m7"]
    assert comparison.speed is not None
    assert 1.05 < comparison.speed < 1.15
    # all models slower together is a matter of the median
    slow = Comparison.of(before, [record(f"m{n}", 0.4) for n in range(100)])
    assert (slow.slowdowns, slow.speed) == ([], 2.0)


def test_a_comparison_names_what_changed() -> None:
    before = {
        "a": record("a"),
        "b": record("b", code=5),
        "c": record("c"),
        "d": record("d", replaced=4),
        "gone": record("gone"),
    }
    after = [
        record("a", code=3),
        record("b"),
        record("c", replaced=3, sha256="b"),
        record("d", replaced=0),
        record("new", code=6),
    ]
    comparison = Comparison.of(before, after)
    assert [row["model"] for row in comparison.failed] == ["a", "new"]
    assert (comparison.mended, comparison.added, comparison.removed) == (["b"], ["new"], ["gone"])
    assert (comparison.common, comparison.outputs) == (4, ["c"])
    (row,) = comparison.passes  # over c and d, which were done both times
    assert (row.name, row.models, row.replaced) == ("P", (2, 1), (5, 3))


def test_the_page_escapes_what_models_are_called_and_begins_with_failures() -> None:
    records = [record(f"zoo/m{n}.onnx") for n in range(30)]
    records.insert(20, record("zoo/<script>.onnx", code=5, report="zoo/ä #1.html"))
    text = render("out/zoo.html", "out", records, ["m.jsonl:3: <oops>"], None, None)
    assert "<script>.onnx" not in text
    assert "&lt;script&gt;.onnx" in text
    assert "&lt;b&gt;it &amp; broke" in text
    assert 'href="reports/zoo/%C3%A4%20%231.html"' in text
    body = text[text.index("<main>") :]
    assert body.index("&lt;oops&gt;") < body.index("it &amp; broke") < body.index("m0.onnx")
    assert text.count("<tr>") == 1 + 1 + 2 + 10 + 10 + 1 + 31  # passes, extremes, models
