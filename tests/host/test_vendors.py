"""Which vendor files are found, in which order, and how they are imported."""

from __future__ import annotations

import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gehost import Host, HostOptions, UsageError, VendorError
from gehost.host.loaded import REGISTERS_NOTHING
from gehost.host.vendors import find_vendor_files
from gehost.testing import parse

MODEL = (
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)


def swap(vendors: Any, name: str) -> str:
    return vendors.swap(name, "Relu", "Abs", stage="kBeforeInferShape")


# -- finding --------------------------------------------------------------------------------------------------------


def test_files_come_in_the_order_of_code_points_and_passes_in_that_of_definition(
    vendors: Any,
) -> None:
    vendors.write("b/one.py", swap(vendors, "B1"))
    vendors.write("a/z.py", swap(vendors, "Zz"), swap(vendors, "Aa"))
    vendors.write("a/Z.py", swap(vendors, "Upper"))
    vendors.write("a/é.py", swap(vendors, "Accent"))
    vendors.write("a/a10.py", swap(vendors, "A10"))
    vendors.write("a/a9.py", swap(vendors, "A9"))
    vendors.write("B/one.py", swap(vendors, "UpperB"))
    host = vendors.host()
    assert host.passes.names() == ["UpperB", "Upper", "A10", "A9", "Zz", "Aa", "Accent", "B1"]
    assert [spec.vendor for spec in host.passes] == ["B", *"aaaaaa", "b"]


def test_what_is_no_pass_is_skipped_and_listed_with_the_reason(vendors: Any) -> None:
    passes = vendors.write("acme/good.py", swap(vendors, "Good")).parent
    vendors.write("acme/_helper.py", "raise SystemError")
    vendors.write("acme/.hidden.py", "raise SystemError")
    vendors.write_raw("acme/custom_fusion_passes/notes.md", "")
    vendors.write_raw("acme/custom_fusion_passes/data/x.py", "raise SystemError")
    vendors.write_raw("_off/custom_fusion_passes/x.py", "raise SystemError")
    vendors.write_raw("typo/custom_fusion_pass/x.py", "raise SystemError")
    vendors.write_raw("README.md", "")
    vendors.write("acme/other_style.py", "rule = 'for a plugin that is not installed'")
    vendors.write(
        "acme/operator.py",
        "from gehost import ops\n\n\n@ops.register('acme::One')\ndef one(x):\n    return x",
    )
    vendors.write(
        "acme/hook.py",
        "from gehost import hookimpl\n\n\n@hookimpl\ndef gehost_before_pass(spec):\n    pass",
    )
    host = vendors.host()
    assert host.passes.names() == ["Good"]
    assert host.skipped == [
        f"{vendors.root / '_off'}: the name starts with _",
        f"{vendors.root / 'typo'}: no directory custom_fusion_passes in it; is custom_fusion_pass meant?",
        f"{passes / '.hidden.py'}: the name starts with .",
        f"{passes / '_helper.py'}: the name starts with _",
        f"{passes / 'data'}: a directory without __init__.py",
        f"{passes / 'notes.md'}: no Python file",
        f"{passes / 'other_style.py'}: {REGISTERS_NOTHING}",
    ]
    assert host.problems == []


def test_a_package_is_one_file_with_modules_of_its_own(vendors: Any) -> None:
    vendors.write(
        "acme/pack/__init__.py",
        "from .first import First\nfrom . import second\n",
        swap(vendors, "Own"),
    )
    vendors.write("acme/pack/first.py", swap(vendors, "First"), swap(vendors, "NotImported"))
    vendors.write("acme/pack/second.py", swap(vendors, "Second"))
    assert vendors.host().passes.names() == ["First", "Own"]


def test_what_a_file_imports_from_another_is_the_others(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        "from .b import B\n",
        "from ._base import Base\n",
        "class A(B): pass\nREG_FUSION_PASS(A)\n",
    )
    vendors.write("acme/b.py", swap(vendors, "B"))
    vendors.write("acme/_base.py", swap(vendors, "Base"))
    host = vendors.host()
    assert [(spec.name, Path(spec.origin).name.partition(":")[0]) for spec in host.passes] == [
        ("A", "a.py"),
        ("B", "b.py"),
    ]
    a, b = (host.passes.get(name).factory for name in "AB")  # type: ignore[union-attr]
    assert issubclass(a, b), "b.py was imported once"  # type: ignore[arg-type]


def test_a_class_of_a_helper_can_be_registered_by_the_file_that_imports_it(vendors: Any) -> None:
    vendors.write("acme/_base.py", vendors.swap("Base", "Relu", "Abs", registration=""))
    vendors.write(
        "acme/a.py",
        "from ._base import Base\nREG_FUSION_PASS(Base).Stage(CustomPassStage.kAfterInferShape)\n",
    )
    (spec,) = vendors.host().passes
    assert spec.origin == f"{vendors.root / 'acme/custom_fusion_passes/a.py'}:3"


def test_links_are_followed_and_one_file_is_loaded_once(vendors: Any) -> None:
    real = vendors.write("acme/real.py", swap(vendors, "Real"))
    elsewhere = vendors.root.parent / "elsewhere.py"
    elsewhere.write_text(real.read_text().replace("Real", "Elsewhere"))
    (real.parent / "zlink.py").symlink_to(real)
    (real.parent / "far.py").symlink_to(elsewhere)
    (vendors.root / "zlinked").symlink_to(vendors.root / "acme")
    host = vendors.host()
    assert host.passes.names() == ["Elsewhere", "Real"]
    linked = vendors.root / "zlinked/custom_fusion_passes"
    assert host.skipped == [
        f"{path}: loaded already"
        for path in (
            real.parent / "zlink.py",
            *(linked / n for n in ("far.py", "real.py", "zlink.py")),
        )
    ]


def test_the_same_root_twice_is_loaded_once(vendors: Any) -> None:
    vendors.write("acme/a.py", swap(vendors, "A"))
    assert vendors.host(vendors=[vendors.root, vendors.root / "."]).passes.names() == ["A"]


def test_several_roots_in_the_order_given(vendors: Any, tmp_path: Path) -> None:
    other = type(vendors)(tmp_path / "other")
    vendors.write("acme/a.py", swap(vendors, "A"))
    vendors.write("zeta/z.py", swap(vendors, "Z"))
    other.write("acme/a.py", swap(vendors, "Other"))
    other.write("beta/b.py", swap(vendors, "B"))
    assert vendors.host(vendors=[other.root, vendors.root]).passes.names() == [
        "Other",
        "B",
        "A",
        "Z",
    ]
    files, *_ = find_vendor_files([str(other.root), vendors.root])
    assert [(file.module_name, file.plugin_name) for file in files] == [
        ("gehost_vendors.acme.a", "acme/a"),
        ("gehost_vendors.beta.b", "beta/b"),
        ("gehost_vendors_2.acme.a", "acme/a#2"),
        ("gehost_vendors.zeta.z", "zeta/z"),
    ]


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("missing", "no such directory of vendors"),
        ("vendors/acme/custom_fusion_passes/a.py", "no such directory of vendors"),
        ("vendors/acme", "this is one vendor's directory; give the one that holds it: .*/vendors$"),
        (
            "vendors/acme/custom_fusion_passes",
            "this is one vendor's directory of passes; give .*/vendors$",
        ),
    ],
)
def test_a_root_that_is_none(vendors: Any, root: str, message: str) -> None:
    vendors.write("acme/a.py", swap(vendors, "A"))
    with pytest.raises(UsageError, match=f"{root}: {message}"):
        vendors.host(vendors=[vendors.root.parent / root], keep_going=True)


def test_a_root_without_a_name_is_not_the_directory_here(
    vendors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(vendors.root)
    with pytest.raises(UsageError, match="a directory of vendors has no name"):
        vendors.host(vendors=[""])


def test_a_relative_root_is_told_in_full(vendors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = vendors.write("acme/a.py", "\n1 / 0\n")
    monkeypatch.chdir(vendors.root.parent)
    with pytest.raises(VendorError, match=f"^{file}:3: ZeroDivisionError"):
        vendors.host(vendors=["vendors"])


def test_names_with_dots_and_dashes(vendors: Any) -> None:
    for vendor, number in (("a.b", 1), ("a_b", 2), ("a-b", 3)):
        vendors.write(f"{vendor}/_utils.py", f"NUMBER = {number}\n")
        vendors.write(
            f"{vendor}/x.y.py",
            "from ._utils import NUMBER\n",
            f"assert NUMBER == {number}\n",
            swap(vendors, f"P{number}"),
        )
    assert [(spec.name, spec.vendor) for spec in vendors.host().passes] == [
        ("P3", "a-b"),
        ("P1", "a.b"),
        ("P2", "a_b"),
    ]


@pytest.mark.parametrize("other", ["same/__init__.py", "same.py/__init__.py"])
def test_a_module_and_a_package_of_one_name(vendors: Any, other: str) -> None:
    passes = vendors.root / "acme/custom_fusion_passes"
    vendors.write(f"acme/{other}", swap(vendors, "Package"))
    if not (passes / "same.py").exists():
        vendors.write("acme/same.py", swap(vendors, "Module"))
        with pytest.raises(
            VendorError,
            match=f"^{passes}/same.py: {passes}/same/__init__.py is a module of the same name; rename one",
        ):
            vendors.host()
    else:
        assert vendors.host().passes.names() == ["Package"]


def test_a_dotted_file_and_a_module_of_a_package_are_two(vendors: Any) -> None:
    vendors.write("acme/b/__init__.py", "from .c import InPackage\n")
    vendors.write("acme/b/c.py", swap(vendors, "InPackage"))
    vendors.write("acme/b.c.py", swap(vendors, "Dotted"))
    assert vendors.host().passes.names() == ["InPackage", "Dotted"]


# -- modules --------------------------------------------------------------------------------------------------------

HELPED = """
@REG_FUSION_PASS
class {name}(FusionBasePass):
    def Run(self, graph, context):
        from ._utils import NAME
        from . import _utils
        context.SetErrorMessage(NAME + _utils.NAME)
        return FAILED
"""


def test_each_vendor_has_its_own_helper_also_when_it_is_imported_at_run_time(vendors: Any) -> None:
    for vendor in ("acme", "zeta"):
        vendors.write(f"{vendor}/_utils.py", f"NAME = '{vendor}'\n")
        vendors.write(f"{vendor}/same.py", HELPED.format(name=f"Of{vendor}"))
    _, report = vendors.host(keep_going=True).run(parse(MODEL))
    assert [record.message.rpartition(" ")[2] for record in report.passes] == [
        "acmeacme",
        "zetazeta",
    ]


def test_helpers_that_are_found_by_sys_path_are_each_vendors_own(vendors: Any) -> None:
    for vendor in ("acme", "zeta"):
        vendors.write(f"{vendor}/_gehost_test_helper.py", f"NAME = '{vendor}'\n")
        code = "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\nimport _gehost_test_helper as helper\n"
        vendors.write(
            f"{vendor}/same.py",
            code,
            f"assert helper.NAME == '{vendor}'\n",
            swap(vendors, vendor.capitalize()),
        )
    assert len(vendors.host().passes) == 2
    assert "_gehost_test_helper" not in sys.modules


def test_two_hosts_share_nothing_and_leave_no_modules(vendors: Any, tmp_path: Path) -> None:
    other = type(vendors)(tmp_path / "other")
    for tree, name in ((vendors, "one"), (other, "two")):
        tree.write("acme/_utils.py", f"NAME = '{name}'\n")
        tree.write("acme/same.py", HELPED.format(name="Same"))
    first, second = vendors.host(keep_going=True), other.host(keep_going=True)
    for host, name in ((first, "one"), (second, "two"), (first, "one")):
        _, report = host.run(parse(MODEL))
        assert report.passes[0].message.endswith(name * 2)
        assert not [module for module in sys.modules if module.startswith("gehost_vendors")]


# -- files that cannot be loaded ------------------------------------------------------------------------------------

BROKEN = [
    ("x = 1\nthis is no Python\n", 3, "SyntaxError: "),
    (
        "\nimport no_such_module_at_all\n",
        3,
        "ModuleNotFoundError: No module named 'no_such_module_at_all'",
    ),
    ("from gehost import NoSuchName\n", 2, "ImportError: cannot import name 'NoSuchName'"),
    ("import sys\nsys.exit(0)\n", 3, "SystemExit: 0"),
    ("def f():\n    raise ValueError('a\\nb')\nf()\n", 3, "ValueError: a\nb"),
    ("from . import _broken\n", 2, "ZeroDivisionError"),
    ("@REG_FUSION_PASS\ndef f(): pass\n", 2, "cannot register f; it must derive"),
    (
        "@REG_FUSION_PASS\nclass P(PatternFusionPass): pass\n",
        2,
        "P does not define Patterns and Replacement",
    ),
    (
        "@REG_DECOMPOSE_PASS(['Conv'])\nclass P(DecomposePass): pass\n",
        2,
        "P does not define Replacement",
    ),
    ("@REG_FUSION_PASS\nclass P(FusionBasePass): pass\n", 2, "P does not define Run"),
    (
        "@REG_FUSION_PASS(stage=CustomPassStage.kAfterAssignLogicStream)\nclass P(FusionBasePass): pass\n",
        2,
        "P: fusion passes cannot run at",
    ),
    ("EsGraphBuilder('x').BuildAndReset([])\n", 2, "graph 'x' has no outputs"),
    ("ops.register('NoDomain')\n", 2, 'operator "NoDomain" needs a domain'),
]


@pytest.mark.parametrize(("code", "line", "message"), BROKEN)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(
    vendors: Any, code: str, line: int, message: str
) -> None:
    file = vendors.write("acme/broken.py", code)
    helper = vendors.write("acme/_broken.py", "1 / 0\n")
    where = helper if "_broken" in code else file
    with pytest.raises(VendorError) as caught:
        vendors.host()
    assert str(caught.value).startswith(f"{where}:{line}: {message}")
    assert caught.value.exit_code == 4


def test_an_error_that_says_its_line_is_told_as_it_is(vendors: Any) -> None:
    """Of what a function builds for its caller, the line that called it."""
    path = vendors.write("acme/a.py", "raise PatternError(f'{__file__}:7: told')")
    with pytest.raises(VendorError) as caught:
        vendors.host()
    assert str(caught.value) == f"{path}:7: told"


@pytest.mark.parametrize(("code", "line", "message"), BROKEN)
def test_with_keep_going_it_is_skipped_and_reported_and_leaves_nothing(
    vendors: Any, code: str, line: int, message: str
) -> None:
    vendors.write("acme/_broken.py", "1 / 0\n")
    vendors.write("acme/broken.py", swap(vendors, "Before"), "ops.register('acme::Before')\n", code)
    vendors.write("acme/good.py", swap(vendors, "Good"), "ops.register('acme::Good')\n")
    host = vendors.host(keep_going=True)
    assert host.passes.names() == ["Good"]
    assert [definition.name for definition in host.ops] == ["acme::Good", "ge::GEMM"]
    assert len(host.problems) == 1
    assert message.partition("\n")[0] in host.problems[0]
    result, report = host.run(parse(MODEL))
    assert [node.op_type for node in result.graph.node] == ["Abs"]
    assert report.problems == host.problems


def test_a_file_that_failed_is_not_there_by_half_for_those_that_import_it(vendors: Any) -> None:
    first = vendors.write("acme/a.py", "HALF = 1\n1 / 0\n")
    vendors.write("acme/b.py", "from .a import HALF\n", swap(vendors, "B"))
    host = vendors.host(keep_going=True)
    assert host.passes.names() == []
    assert [problem.partition(": ")[0] for problem in host.problems] == [f"{first}:3"] * 2


def test_of_a_file_whose_second_operator_clashes_the_first_is_not_there(vendors: Any) -> None:
    vendors.write("acme/a.py", "ops.register('x::Old')\n")
    vendors.write(
        "acme/b.py",
        swap(vendors, "B"),
        "ops.register('x::New')\nops.register('x::Old', version=2)\n",
    )
    host = vendors.host(keep_going=True)
    assert (
        len(host.problems),
        host.passes.names(),
        [definition.name for definition in host.ops],
    ) == (1, [], ["x::Old", "ge::GEMM"])


def test_a_link_to_nowhere_and_a_pipe_are_errors_and_no_hang(vendors: Any) -> None:
    passes = vendors.write("acme/good.py", swap(vendors, "Good")).parent
    (passes / "gone.py").symlink_to(passes / "nowhere")
    os.mkfifo(passes / "pipe.py")
    host = vendors.host(keep_going=True)
    assert host.passes.names() == ["Good"]
    assert [problem.partition(": ")[0] for problem in host.problems] == [
        f"{passes / 'gone.py'}",
        f"{passes / 'pipe.py'}",
    ]


def test_an_interrupt_while_loading_goes_through(vendors: Any) -> None:
    vendors.write("acme/a.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        vendors.host(keep_going=True)
    assert not [module for module in sys.modules if module.startswith("gehost_vendors")]


def test_two_passes_of_one_name_name_both_files(vendors: Any) -> None:
    first = vendors.write("acme/a.py", swap(vendors, "Same"))
    second = vendors.write("zeta/a.py", "\n", swap(vendors, "Same"))
    with pytest.raises(
        VendorError,
        match=f"^{second}:4: a pass called Same is registered already at {first}:3; rename one$",
    ):
        vendors.host()


def test_two_operators_of_one_name_name_both_files(vendors: Any) -> None:
    first = vendors.write("acme/a.py", "ops.register('x::Op')\n")
    second = vendors.write("zeta/a.py", "ops.register('x::Op', traits=['random'])\n")
    with pytest.raises(VendorError, match=f"^{second}:2: .* declared differently at {first}:2"):
        vendors.host()


def test_two_vendors_may_declare_an_operator_identically(vendors: Any) -> None:
    body = """
    def twice(x):
        return x + x

    @ops.register("x::Double")
    def double(x, *, times: int = 2):
        {doc}
        return twice(x) if times == 2 else es.Mul(x, {factor})
    """
    vendors.write("acme/a.py", body.format(doc="'Twice.'", factor=3.0))
    vendors.write("beta/a.py", "\n\n", body.format(doc="'Double.'", factor=3.0))
    assert [definition.name for definition in vendors.host().ops] == ["x::Double", "ge::GEMM"]
    vendors.write("zeta/a.py", body.format(doc="", factor=4.0))
    with pytest.raises(VendorError, match='zeta.*"x::Double" is declared differently at .*acme'):
        vendors.host()


# -- what a file does to the process --------------------------------------------------------------------------------

SPOIL = """
import os, random, sys, tempfile, warnings
import numpy as np
os.chdir(tempfile.gettempdir())
sys.path.insert(0, "/nowhere")
warnings.simplefilter("ignore")
random.seed(1)
np.random.seed(1)
print("printed by a vendor")
"""


@pytest.mark.parametrize("end", ["", "1 / 0\n"])
def test_the_process_is_as_it_was_after_loading(
    vendors: Any, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    vendors.write("acme/a.py", SPOIL, end)
    random.seed(7)
    np.random.seed(7)
    numbers = random.random(), np.random.random()
    random.seed(7)
    np.random.seed(7)
    before = os.getcwd(), list(sys.path), list(warnings.filters)
    Host(HostOptions(vendors=[vendors.root], plugins=False, keep_going=True))
    assert (os.getcwd(), list(sys.path), list(warnings.filters)) == before
    assert (random.random(), np.random.random()) == numbers
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "printed by a vendor\n")


def test_what_a_pass_prints_goes_to_stderr_too(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendors.write(
        "acme/a.py", vendors.swap("P", "Relu", "Abs", meet="return print('hello') or True")
    )
    vendors.host().run(parse(MODEL))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


@pytest.mark.parametrize("link", ["d.py", "pack", "pack2/__init__.py"])
def test_a_link_to_nothing_among_the_passes_is_one_line(vendors: Any, link: str) -> None:
    directory = vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs")).parent
    path = directory / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("nowhere")
    message = (
        f"{path}: a link to nowhere, which does not exist; remove it, or make it point to a file"
    )
    with pytest.raises(VendorError) as caught:
        vendors.host()
    assert str(caught.value) == message
    host = Host(HostOptions(vendors=[vendors.root], plugins=False, keep_going=True))
    assert (host.problems, host.passes.names()) == ([message], ["One"])


@pytest.mark.parametrize("link", ["gone", "zeta/custom_fusion_passes"])
def test_a_link_to_nothing_in_place_of_a_directory_is_one_note(vendors: Any, link: str) -> None:
    vendors.write("acme/a.py", vendors.swap("One", "Neg", "Abs"))
    path = vendors.root / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to("nowhere", target_is_directory=True)
    host = vendors.host()
    assert host.notes[0] == f"{path}: a link to nowhere, which does not exist"
    assert host.passes.names() == ["One"]
    with pytest.raises(UsageError, match="a link to nowhere, which does not exist$"):
        Host(HostOptions(vendors=[path], plugins=False))


# -- files of passes by path


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("absent.py", "absent.py: no such file or directory of passes"),
        ("notes.txt", "notes.txt: a file of passes ends in .py"),
        ("empty", "empty: no file of passes in this directory; wanted .py files or packages"),
        ("hidden", "hidden: no file of passes in this directory; wanted .py files or packages"),
    ],
)
def test_a_path_without_passes_is_an_error(tmp_path: Path, entry: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "_helper.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(VendorError) as caught:
        find_vendor_files([], [tmp_path / entry])
    assert message in str(caught.value)
    assert caught.value.exit_code == 4


HELPER_OPS = """
from gehost import es, ops

@ops.register("acme::Twice", provided_by="acmert>=1")
def twice(x):
    return x + x
"""
IMPORTS = {
    "relative": ("_bodies.py", "from . import _bodies\n"),
    "relative, by name": ("_bodies.py", "from ._bodies import twice\n"),
    "in a package": ("_lib/__init__.py", "from ._lib import twice\n"),
    "by sys.path": (
        "_gehost_bodies.py",
        "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\nimport _gehost_bodies\n",
    ),
    "by sys.path, by name": (
        "_gehost_bodies.py",
        "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\n"
        "from _gehost_bodies import twice\n",
    ),
}


@pytest.mark.parametrize("way", IMPORTS)
def test_operators_of_a_helper_that_files_import_are_registered(way: str, vendors: Any) -> None:
    helper, line = IMPORTS[way]
    vendors.write(f"acme/{helper}", HELPER_OPS)
    for name in ("a", "b"):
        vendors.write(f"acme/{name}.py", line, swap(vendors, name.upper()))
    host = vendors.host()
    definition = host.ops.get("acme::Twice")
    assert definition is not None
    assert (definition.provided_by, definition.body is None) == ("acmert>=1", False)
    assert host.ops.namesakes("Twice") == ["acme::Twice"]
