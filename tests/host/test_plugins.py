"""Plugins are called in order, one by one, and named when they are at fault."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gehost import Host, HostOptions, UsageError, VendorError, hookimpl
from gehost.host.plugins import Plugins, installed_plugins
from gehost.location import SourceLocation


class Says:
    """A plugin that answers its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def gehost_check_node_support(self) -> str:
        return self.name


def test_hooks_are_called_in_the_order_given_and_nothing_is_left_out() -> None:
    class Silent:
        @hookimpl
        def gehost_check_node_support(self, node: Any) -> None:
            assert node == "the node"

    class First:
        @hookimpl(tryfirst=True)
        def gehost_check_node_support(self) -> str:
            return "first"

    plugins = Plugins(
        [("b", Says("b")), ("silent", Silent()), ("a", Says("a")), ("first", First())]
    )
    assert plugins.call("gehost_check_node_support", node="the node") == ["first", "b", "a"]
    assert [hook.plugin for hook in plugins.each("gehost_check_node_support")] == [
        "first",
        "b",
        "silent",
        "a",
    ]
    assert plugins.call("gehost_register_ops", registry=None) == []


def test_what_a_plugin_raises_names_plugin_hook_and_line() -> None:
    class Broken:
        @hookimpl
        def gehost_register_ops(self, registry: Any) -> None:
            raise ValueError("no such thing")

    line = Broken.gehost_register_ops.__code__.co_firstlineno + 2
    with pytest.raises(VendorError) as caught:
        Plugins([("broken", Broken())]).call("gehost_register_ops", registry=None)
    assert caught.value.where == SourceLocation(__file__, line)
    assert (
        str(caught.value)
        == f"plugin broken ({__file__}:{line}): gehost_register_ops: ValueError: no such thing"
    )


@pytest.mark.parametrize("error", [UsageError("as it is"), KeyboardInterrupt()])
def test_errors_of_gehost_and_interrupts_go_through_as_they_are(error: BaseException) -> None:
    class Raising:
        @hookimpl
        def gehost_register_ops(self) -> None:
            raise error

    with pytest.raises(type(error)) as caught:
        Plugins([("raising", Raising())]).call("gehost_register_ops", registry=None)
    assert caught.value is error


def test_sys_exit_in_a_hook_is_no_exit() -> None:
    class Leaving:
        @hookimpl
        def gehost_register_ops(self) -> None:
            sys.exit(0)

    with pytest.raises(VendorError, match=r"plugin leaving .*SystemExit: 0"):
        Plugins([("leaving", Leaving())]).call("gehost_register_ops", registry=None)


# -- plugins that are refused ---------------------------------------------------------------------------------------


class Misspelt:
    @hookimpl
    def gehost_after_infershap(self) -> None: ...


class AsksTooMuch:
    @hookimpl
    def gehost_after_infershape(self, graph: Any, model: Any) -> None: ...


class Unmarked:
    def gehost_after_infershape(self, graph: Any) -> None: ...


class Wrapper:
    @hookimpl(wrapper=True)
    def gehost_after_infershape(self, graph: Any) -> Any:
        return (yield)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Misspelt(), "unknown hook 'gehost_after_infershap' in plugin"),
        (
            AsksTooMuch(),
            "Argument(s) {'model'} are declared in the hookimpl but can not be found in the hookspec",
        ),
        (Unmarked(), "gehost_after_infershape is not marked; put @gehost.hookimpl above it"),
        (Wrapper(), "gehost_after_infershape is a hook wrapper"),
    ],
)
def test_a_plugin_with_a_wrong_hook_is_named(plugin: Any, message: str) -> None:
    with pytest.raises(VendorError) as caught:
        Plugins([("fine", Says("x")), ("odd one", plugin)])
    assert str(caught.value).startswith("plugin odd one: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_plugins_of_one_name_and_one_plugin_of_two_names() -> None:
    with pytest.raises(VendorError, match="plugin x: two plugins have this name"):
        Plugins([("x", Says("a")), ("x", Says("b"))])
    one = Says("a")
    with pytest.raises(VendorError, match=r"plugin x: .*one was given twice"):
        Plugins([("x", one), ("y", one)])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@hookimpl\ndef gehost_after_infershap(graph): pass\n", "unknown hook"),
        ("@hookimpl\ndef gehost_after_infershape(model): pass\n", "Argument"),
        ("def gehost_after_infershape(graph): pass\n", "not marked"),
    ],
)
def test_a_vendor_file_with_a_wrong_hook_is_named_or_skipped(
    vendors: Any, code: str, message: str
) -> None:
    file = vendors.write("acme/hooks.py", code)
    vendors.write("acme/passes.py", vendors.swap("P", "Relu", "Abs"))
    with pytest.raises(VendorError, match=f"^{file}: plugin acme/hooks: .*{message}"):
        vendors.host()
    host = vendors.host(keep_going=True)
    assert host.passes.names() == ["P"]
    assert message in host.problems[0]


def test_a_style_that_fails_on_a_vendor_file_is_named_with_the_file(vendors: Any) -> None:
    class Style:
        @hookimpl
        def gehost_collect_passes(self, module: Any, registry: Any) -> None:
            _ = module.RULES[0]

    file = vendors.write("acme/a.py", "RULES = []\n", vendors.swap("P", "Relu", "Abs"))
    vendors.write("acme/b.py", "RULES = [1]\n", vendors.swap("Q", "Relu", "Abs"))
    message = rf"^{file}: plugin style \(.*test_plugins.py:\d+\): gehost_collect_passes: IndexError"
    with pytest.raises(VendorError, match=message):
        vendors.host(plugins=[("style", Style())])
    host = vendors.host(plugins=[("style", Style())], keep_going=True)
    assert host.passes.names() == ["Q"]
    assert re.match(message, host.problems[0])


@pytest.mark.parametrize(
    "hook", ["gehost_register_ops", "gehost_register_passes", "gehost_register_importers"]
)
def test_a_vendor_file_that_fails_to_register_is_named_or_reported(vendors: Any, hook: str) -> None:
    file = vendors.write("acme/a.py", f"@hookimpl\ndef {hook}(registry):\n    1 / 0\n")
    with pytest.raises(
        VendorError, match=rf"^plugin acme/a \({file}:4\): {hook}: ZeroDivisionError"
    ):
        vendors.host()
    assert len(vendors.host(keep_going=True).problems) == 1


# -- installed plugins ----------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A directory on ``sys.path`` into which distributions with plugins are put."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)

    def install(distribution: str, entries: dict[str, str], **modules: str) -> None:
        info = directory / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[gehost]\n{lines}")
        for name, code in modules.items():
            (directory / f"{name}.py").write_text(code)
            monkeypatch.delitem(sys.modules, name, raising=False)

    yield SimpleNamespace(directory=directory, install=install)
    for module in [name for name in sys.modules if name.startswith("gehost_test_")]:
        del sys.modules[module]


ANSWER = """
from gehost import hookimpl

@hookimpl
def gehost_check_node_support(node):
    return __name__
"""


def of_tests(plugins: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [
        (name, plugin)
        for name, plugin in plugins
        if getattr(plugin, "__name__", "").startswith("gehost_test_")
    ]


def test_installed_plugins_are_sorted_by_name_and_called_before_vendors(
    site: Any, vendors: Any
) -> None:
    site.install(
        "one",
        {"z": "gehost_test_z", "a": "gehost_test_a"},
        gehost_test_z=ANSWER,
        gehost_test_a=ANSWER,
    )
    assert [name for name, _ in of_tests(installed_plugins())] == ["a", "z"]
    vendors.write("acme/hooks.py", ANSWER)
    host = vendors.host(plugins=[("mine", Says("mine"))])
    assert host._loaded.plugins.call("gehost_check_node_support", node=None) == [
        "mine",
        "gehost_vendors.acme.hooks",
    ]
    host = Host(HostOptions(vendors=[vendors.root]), plugins=[("mine", Says("mine"))])
    answers = host._loaded.plugins.call("gehost_check_node_support", node=None)
    assert answers == ["mine", "gehost_test_a", "gehost_test_z", "gehost_vendors.acme.hooks"]


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ("gehost_test_absent", "", "ModuleNotFoundError: No module named 'gehost_test_absent'"),
        ("gehost_test_p", "1 / 0", "ZeroDivisionError"),
        ("gehost_test_p", "raise SystemExit(0)", "SystemExit: 0"),
        ("gehost_test_p:missing", "", "AttributeError"),
    ],
)
def test_an_installed_plugin_that_cannot_be_loaded_is_named(
    site: Any, value: str, code: str, message: str
) -> None:
    site.install("broken", {"bad": value}, gehost_test_p=code)
    with pytest.raises(
        VendorError, match=rf"^plugin bad \({value}\) cannot be loaded: {message}"
    ) as caught:
        Host()
    assert ("make .venv/installed" in str(caught.value)) == (value == "gehost_test_absent")
    assert Host(HostOptions(plugins=False)).passes.names() == []


def test_an_installed_plugin_with_a_wrong_hook_is_named_with_its_file(site: Any) -> None:
    site.install(
        "broken", {"bad": "gehost_test_p"}, gehost_test_p=ANSWER.replace("(node)", "(nodes)")
    )
    with pytest.raises(
        VendorError, match=f"^{site.directory}/gehost_test_p.py: plugin bad: .*'nodes'"
    ):
        Host()


def test_two_installed_plugins_of_one_name_are_an_error_and_one_seen_twice_is_not(
    site: Any,
) -> None:
    site.install("one", {"same": "gehost_test_a"}, gehost_test_a=ANSWER)
    site.install("two", {"same": "gehost_test_a"})
    assert [name for name, _ in of_tests(installed_plugins())] == ["same"]
    site.install("three", {"same": "gehost_test_b"}, gehost_test_b=ANSWER)
    with pytest.raises(VendorError, match="plugin same: two plugins have this name"):
        Host()


def test_a_plugin_may_be_a_module_without_a_file() -> None:
    module = ModuleType("made_up")
    module.gehost_check_node_support = hookimpl(lambda node: "made up")  # type: ignore[attr-defined]
    assert Plugins([("made up", module)]).call("gehost_check_node_support", node=None) == [
        "made up"
    ]
