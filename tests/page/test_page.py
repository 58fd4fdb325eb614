"""The page: it says what the data says, needs nothing from outside, and no name in it is anything but text."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

from gehost import PassRecord, Report
from gehost.diagnose.report.recorder import RewriteRecorder
from gehost.page.page import render
from gehost.passes.snapshots import (
    Picture,
    PictureNode,
    PictureTensor,
    Refusals,
    RewriteGroup,
    RewriteNames,
)
from gehost.testing import parse

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
VOID = {"meta", "path", "rect"}


@dataclass
class Element:
    """An element of a parsed page."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list[Element | str] = field(default_factory=list["Element | str"])

    @property
    def text(self) -> str:
        return " ".join("".join(c if isinstance(c, str) else c.text for c in self.children).split())

    def all(self, *tags: str) -> list[Element]:
        inside = [child for child in self.children if isinstance(child, Element)]
        return [
            result
            for child in inside
            for result in ([child] if child.tag in tags or not tags else []) + child.all(*tags)
        ]

    def classed(self, name: str) -> list[Element]:
        return [
            element for element in self.all() if name in element.attributes.get("class", "").split()
        ]

    def rows(self) -> list[list[str]]:
        return [
            [cell.text for cell in row.all("th", "td")]
            for body in self.all("tbody")
            for row in body.all("tr")
        ]


class Page(HTMLParser):
    """A parsed page; fails on an end tag that ends nothing."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def table(self, name: str, number: int = 0) -> list[list[str]]:
        return self.root.classed(name)[number].rows()


def page(report: Report) -> Page:
    return Page(render(report))


def assert_inert(text: str) -> None:
    """No script, nothing that loads, no handler, no style of an element's own; a policy that says the same."""
    parsed = Page(text).root
    tags = {element.tag for element in parsed.all()}
    assert not tags & {
        "script",
        "iframe",
        "object",
        "embed",
        "img",
        "link",
        "base",
        "form",
        "image",
        "use",
        "a:a",
        "foreignobject",
    }
    for element in parsed.all():
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            assert name not in {
                "style",
                "src",
                "srcdoc",
                "srcset",
                "action",
                "formaction",
                "xlink:href",
            }
            assert name != "href" or re.fullmatch(r"#pass-\d+", value)
            assert "url(" not in value or value == "url(#arrow)"
    (style,) = parsed.all("style")
    assert "url(" not in style.text
    assert "@import" not in style.text
    policies = [
        meta.attributes["content"] for meta in parsed.all("meta") if "http-equiv" in meta.attributes
    ]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]
    assert "http:" not in text
    assert "https:" not in text
    assert all(c.isprintable() or c == "\n" for c in text)


# -- what it says ---------------------------------------------------------------------------------------------------


def record(name: str = "P", **more: Any) -> PassRecord:
    return PassRecord(
        name, "kAfterInferShape", "acme/p.py:3", "pattern", **{"vendor": "acme", **more}
    )


def group(number: int = 1, count: int = 1, op: str = "Relu", name: str = "relu") -> RewriteGroup:
    """``count`` rewrites of one node ``op`` by Abs."""
    tensors = (
        PictureTensor("x", "float[2]", "input"),
        PictureTensor("y", "float[2]", is_output=True),
    )
    before, after = (
        Picture((PictureNode(label, kind, role, (0,), (1,)),), tensors)
        for label, kind, role in ((name, op, "matched"), ("P_Abs_0", "Abs", "new"))
    )
    numbers = range(number, number + count)
    return RewriteGroup(
        before, after, [RewriteNames(n, (f"{name}_{n}",), (f"P_Abs_{n}",)) for n in numbers]
    )


def test_operators_come_with_the_largest_difference_first_and_the_others_fold() -> None:
    report = Report(
        nodes_before=1244,
        nodes_after=1034,
        op_types_before={"Add": 1200, "Relu": 30, "Abs": 10, "Neg": 4},
        op_types_after={"Add": 1000, "Abs": 30, "Neg": 4},
    )
    parsed = page(report)
    assert parsed.table("ops") == [
        ["Add", "1,200", "1,000", "−200"],
        ["Relu", "30", "0", "−30"],
        ["Abs", "10", "30", "+20"],
    ]
    assert parsed.table("ops", 1) == [["Neg", "4", "4", "0"]]
    assert "1,244→1,034" in parsed.root.classed("tiles")[0].text


def test_passes_come_by_stage_with_what_they_did() -> None:
    passes = [
        record("A", matched=5, replaced=3, rejected=Counter(rank=1, dtype=2), seconds=0.0125),
        record("B", status="not changed", seconds=0.5),
    ]
    passes[0].stage = "kBeforeInferShape"
    assert page(Report(passes=passes)).table("passes") == [
        ["kBeforeInferShape", "12.5 ms"],
        ["A", "acme", "done", "5", "3", "dtype 2rank 1", "12.5 ms"],
        ["kAfterInferShape", "500.0 ms"],
        ["B", "acme", "not changed", "0", "0", "", "500.0 ms"],
    ]


def test_a_pass_shows_its_origin_its_message_and_its_refusals_most_frequent_first() -> None:
    refusals = [Refusals("rank: 3", ["a"]), Refusals("dtype: int8", ["b", "c"])]
    shown = record(
        message="pattern 2 needs opset 20", rejected=Counter(rank=1, dtype=2), refusals=refusals
    )
    parsed = page(Report(passes=[shown]))
    (article,) = parsed.root.all("article")
    assert "acme/p.py:3" in article.text
    assert "pattern 2 needs opset 20" in article.text
    assert parsed.table("refusals") == [["2", "dtype: int8", "b, c"], ["1", "rank: 3", "a"]]


def test_a_pass_without_anything_to_say_has_a_row_alone() -> None:
    assert page(Report(passes=[record(status="not changed")])).root.all("article") == []


def test_a_group_is_drawn_once_and_lists_all() -> None:
    parsed = page(Report(passes=[record(replaced=3, rewrites=[group(count=3)])]))
    (figure,) = parsed.root.all("figure")
    before, after = figure.all("svg")
    assert [text.children[-1] for text in before.all("text")] == [
        "Relu",
        "relu",
        "input x",
        "output y",
        "float[2]",
        "float[2]",
    ]
    assert after.all("g")[0].attributes["class"] == "box new is-math"
    assert figure.all("figcaption")[0].text == "3 rewrites of this kind, here no. 1"
    assert parsed.table("rewrites") == [[str(n), f"relu_{n}", f"P_Abs_{n}"] for n in (1, 2, 3)]


def test_the_largest_groups_are_drawn_and_the_others_counted() -> None:
    groups = [group(1, 1, f"acme::Op{n}") for n in range(10)] + [group(1, 7, "Tanh")]
    parsed = page(Report(passes=[record(rewrites=groups)]))
    figures = parsed.root.all("figure")
    assert len(figures) == 6
    assert "Tanh" in figures[0].text
    (left_out,) = [element.text for element in parsed.root.classed("left-out")]
    assert (
        left_out
        == "Not drawn: 5 more kinds of rewrites, 5 rewrites together. The JSON report has them."
    )


def test_long_lists_are_cut_and_it_is_said() -> None:
    many = [Refusals(f"reason {n}", [f"n{m}" for m in range(50)]) for n in range(100)]
    report = Report(
        passes=[record(rewrites=[group(count=1051)], rejected=Counter(reason=100), refusals=many)],
        problems=[f"problem {n}" for n in range(51)],
        op_types_before={f"acme::Op{n}": 1 for n in range(110)},
    )
    parsed = page(report)
    assert [element.text for element in parsed.root.classed("left-out")] == [
        "1 more problem is in the JSON report.",
        "60 more operators are in the JSON report.",
        "1,001 more rewrites are in the JSON report.",
        "50 more reasons are in the JSON report.",
    ]
    assert len(parsed.table("rewrites")) == 50
    assert parsed.table("refusals")[0][2].endswith("n11 … and 38 more")


def test_the_size_of_a_page_is_bounded() -> None:
    long = "n" * 100_000
    tensors = tuple(PictureTensor(long, long, "input") for _ in range(40))
    nodes = tuple(PictureNode(long, long, "matched", (n,), (), {long: long}) for n in range(40))
    picture = Picture(nodes, tensors)
    rewrites = [RewriteNames(n, (long,) * 1000, (long,) * 1000) for n in range(2000)]
    passes = [
        record(f"P{n}", rewrites=[RewriteGroup(picture, picture, rewrites)] * 20) for n in range(20)
    ]
    assert len(render(Report(passes=passes))) < 10_000_000


def test_the_verification_shows_each_output_the_different_ones_first() -> None:
    outputs: list[dict[str, Any]] = [
        {
            "output": "y",
            "feed": 0,
            "equal": True,
            "max_abs": 1.25e-7,
            "rtol": 1e-4,
            "atol": 1e-5,
            "reason": "",
        },
        {
            "output": "z",
            "feed": 0,
            "equal": False,
            "max_abs": "inf",
            "rtol": 0.0,
            "atol": 0.0,
            "reason": "",
        },
    ]
    verify = {
        "equal": False,
        "feeds": 1,
        "seed": 0,
        "engine": "onnxruntime",
        "outputs": outputs,
        "summary": "differ: z[1]",
    }
    parsed = page(Report(verify=verify))
    assert parsed.table("verify") == [
        ["z", "0", "differs", "inf", "0.0", "0.0"],
        ["y", "0", "equal", "1.2e-07", "0.0001", "1e-05"],
    ]
    assert "differ: z[1]" in parsed.root.text


def test_times_options_versions_and_dumps_are_there() -> None:
    report = Report(
        seconds={"load": 0.25, "passes": 1.5},
        options={"vendors": ["a", "b"], "dump": None, "verify": True, "dump_level": 2},
        versions={"gehost": "0.1.0"},
        dumps=["d/0.pbtxt", "d/1.pbtxt"],
    )
    parsed = page(report)
    assert [row[:2] for row in parsed.table("seconds")] == [
        ["load", "250.0 ms"],
        ["passes", "1.50 s"],
    ]
    assert parsed.table("options") == [
        ["vendors", "a, b"],
        ["dump", "–"],
        ["verify", "yes"],
        ["dump level", "2"],
    ]
    assert parsed.table("versions") == [["gehost", "0.1.0"]]
    assert "2 dumps, the first is d/0.pbtxt" in parsed.root.text


def test_a_failed_compile_says_so_first_and_claims_nothing_of_the_end() -> None:
    failed = record("Bad", status="failed", message="no way", rewrites=[group()])
    report = Report(
        model="m.onnx",
        nodes_before=2,
        op_types_before={"Relu": 2},
        passes=[failed],
        error="Bad (p.py:3): no way",
    )
    parsed = page(report)
    notice = parsed.root.classed("notice")[0]
    assert notice.attributes["role"] == "alert"
    assert "Bad (p.py:3): no way" in notice.text
    assert parsed.table("ops") == [["Relu", "2"]]
    assert "→" not in parsed.root.classed("tiles")[0].text
    assert "Its rewrites were undone" in parsed.root.text


def test_what_fails_after_the_compile_does_not_unwrite_the_model() -> None:
    counts = {"Relu": 1}
    report = Report(
        nodes_before=1,
        nodes_after=1,
        op_types_before=counts,
        op_types_after=counts,
        error="it does not run",
    )
    text = page(report).root.text
    assert "it does not run" in text
    assert "No model was written" not in text
    assert "No model was written" in page(Report(error="it does not load")).root.text


def test_the_row_of_a_pass_leads_to_what_it_did() -> None:
    parsed = page(
        Report(passes=[record("Idle", status="not changed"), record("Busy", rewrites=[group()])])
    )
    (link,) = parsed.root.all("a")
    (article,) = parsed.root.all("article")
    assert (link.text, link.attributes["href"]) == ("Busy", f"#{article.attributes['id']}")


def test_an_empty_report_is_a_page() -> None:
    assert_inert(render(Report()))
    assert "a model without a name" in page(Report(error="nothing could be read")).root.text


@pytest.mark.parametrize(
    "header", ["passes", "ops", "rewrites", "refusals", "verify", "seconds", "options", "versions"]
)
def test_tables_have_headers_and_numbers_stand_right(header: str) -> None:
    (table, *_) = page(full()).root.classed(header)
    assert all(cell.attributes.get("scope") for cell in table.all("th"))
    for row in table.all("tr"):
        for cell in row.all("td"):
            if re.fullmatch(r"[−+]?[\d,.]+( m?s)?", cell.text) and header not in (
                "options",
                "versions",
            ):
                assert "number" in cell.attributes["class"].split()


def full(text: str = "x") -> Report:
    """A report in which every text is ``text``."""
    tensors = (
        PictureTensor(text, text, "input"),
        PictureTensor(text, text, "constant", text),
        PictureTensor(text, text, is_output=True),
    )
    before = Picture((PictureNode(text, text, "matched", (0, 1), (2,), {text: text}),), tensors)
    outcome = PassRecord(text, text, text, text, vendor=text, matched=2, replaced=1, message=text)
    outcome.rejected[text.partition(":")[0]] += 1
    outcome.rewrites.append(RewriteGroup(before, before, [RewriteNames(1, (text,), (text,))]))
    outcome.refusals.append(Refusals(text, [text]))
    output = {
        "output": text,
        "feed": 0,
        "equal": False,
        "max_abs": 1.0,
        "rtol": 0.0,
        "atol": 0.0,
        "reason": text,
    }
    return Report(
        model=text,
        nodes_before=2,
        nodes_after=2,
        op_types_before={text: 1, "Add": 1},
        op_types_after={text: 1, "Mul": 1},
        seconds={"load": 1.0, text: 1.0},
        dumps=[text],
        verify={
            "equal": False,
            "feeds": 1,
            "seed": 0,
            "engine": text,
            "outputs": [output],
            "summary": text,
        },
        passes=[outcome],
        cleanup={text: 1},
        problems=[text],
        options={text: text, "vendors": [text]},
        versions={text: text},
        error=text,
    )


# -- hostile texts --------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    '" onload="alert(1)',
    "' onclick='alert(1)",
    "</title></style></svg><img src=x onerror=alert(1)>",
    "</details><svg onload=alert(1)>",
    "--><!--]]>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&#60;",
    "a\x00b\x1b[31m\r\n\tc",
    "\u202egnp.exe\u2066\u200f",
    "weights-\udcff",
    "javascript:alert(1)",
    "x" * 100_000,
]


@pytest.mark.parametrize(
    "text", HOSTILE, ids=lambda text: text[:12].encode("unicode_escape").decode()
)
def test_hostile_texts_stay_texts(text: str) -> None:
    shown = render(full(text))
    assert_inert(shown.replace("javascript:", ""))
    assert shown.encode()
    assert structure(shown) == structure(render(full()))


def structure(text: str) -> Counter[str]:
    """The elements of a page, those apart that depend on how texts split."""
    return Counter(
        element.tag for element in Page(text).root.all() if element.tag not in ("p", "code")
    )


def test_a_hostile_model_and_a_hostile_reason_stay_texts(vendors: Any) -> None:
    meet = """return match.reject("<img src=x onerror=alert(1)>: " + match.GetMatchedNodes()[0].label)"""
    vendors.write(
        "acme/a.py", vendors.swap("P", "Relu", "Abs"), vendors.swap("Q", "Neg", "Exp", meet=meet)
    )
    model = parse(
        HEAD + "main (float[2] x) => (float[2] y) { a = Relu(x)  b = Neg(a)  y = Exp(b) }"
    )
    for node, name in zip(model.graph.node, HOSTILE, strict=False):
        node.name = name
        node.doc_string = name
    report = vendors.host(plugins=[("recorder", RewriteRecorder())]).run(model)[1]
    shown = render(report)
    assert_inert(shown)
    assert "<script>alert(1)</script>" in Page(shown).root.all("article")[0].text


# -- the same as data -----------------------------------------------------------------------------------------------


def test_the_page_and_the_json_say_the_same(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        vendors.swap(
            "P",
            "Relu",
            "Abs",
            meet="return match.GetMatchedNodes()[0].label != 'c' or match.reject('c: no')",
        ),
    )
    model = parse(
        HEAD + "main (float[2] x) => (float[2] c) { a = Relu(x)  b = Relu(a)  c = Relu(b) }"
    )
    report = vendors.host(plugins=[("recorder", RewriteRecorder())]).run(model)[1]
    plain = json.loads(report.to_json())
    parsed = page(report)
    (row,) = plain["passes"]
    assert parsed.table("passes")[1][:5] == [
        row["name"],
        row["vendor"],
        row["status"],
        str(row["matched"]),
        str(row["replaced"]),
    ]
    (message,) = row["rewrites"]
    assert parsed.table("rewrites") == [
        [str(one["number"]), *one["nodes"], *one["made"]] for one in message["matches"]
    ]
    ops = [node["op"] for node in message["before"]["nodes"]]
    (before, _) = parsed.root.all("figure")[0].all("svg")
    assert [text.text for text in before.all("text") if text.attributes["class"] == "op"] == ops
    assert parsed.table("refusals") == [
        [str(len(r["nodes"])), r["reason"], *r["nodes"]] for r in row["refusals"]
    ]
    changes = {name: [before, after] for name, before, after, _ in parsed.table("ops")}
    assert changes == {"Relu": ["3", "1"], "Abs": ["0", "2"]}
    assert plain["op_types_after"] == {"Abs": 2, "Relu": 1}
