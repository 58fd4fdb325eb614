"""Every hook is documented, in its docstring and in docs/hooks.md, and really called, in the order that they state."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from gehost import hookimpl
from gehost.errors import PassError
from gehost.host import hookspecs
from gehost.testing import parse

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"
MODEL = (
    """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
)
NAMES = [
    name
    for name, found in vars(hookspecs).items()
    if name.startswith("gehost_") and inspect.isfunction(found)
]


def test_the_list_of_hooks_is_complete() -> None:
    assert list(hookspecs.HOOKS) == NAMES
    assert len(NAMES) == 23


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_says_when_a_hook_is_called_and_what_it_may_do(name: str) -> None:
    text = inspect.getdoc(getattr(hookspecs, name)) or ""
    assert re.match(r"(Called|Asked) ", text)
    assert re.search(r"read only|may edit|add |Return False|groups", text)
    annotations = inspect.get_annotations(getattr(hookspecs, name))
    assert set(annotations) == {*inspect.signature(getattr(hookspecs, name)).parameters, "return"}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_the_page_has_each_hook_with_its_arguments(name: str) -> None:
    table = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `gehost_")
    ]
    arguments = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
    assert sum(f"`{name}({arguments})`" in line for line in table) == 1


def recorder() -> tuple[Any, list[str]]:
    """A plugin that implements every hook with all its arguments, and what it saw."""
    calls: list[str] = []
    plugin = type("Recorder", (), {})()

    def implement(name: str) -> None:
        def implementation(**arguments: Any) -> None:
            context = arguments.get("context")
            stage = (
                f" {context.stage.name}"
                if context is not None and context.stage is not None
                else ""
            )
            spec = f" {arguments['spec'].name}" if "spec" in arguments else ""
            calls.append(f"{name.removeprefix('gehost_')}{spec}{stage}")

        names = list(inspect.signature(getattr(hookspecs, name)).parameters)
        source = f"def {name}({', '.join(names)}): implementation({', '.join(f'{n}={n}' for n in names)})"
        scope: dict[str, Any] = {"implementation": implementation}
        exec(source, scope)
        setattr(plugin, name, hookimpl(scope[name]))

    for name in NAMES:
        implement(name)
    return plugin, calls


ASKING = """
@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Asking(FusionBasePass):
    def Run(self, graph, context):
        for node in graph.nodes:
            GeUtils.CheckNodeSupport(node)
"""


def early_and_picky(vendors: Any) -> tuple[str, str]:
    """A pass that rewrites, and one that refuses what the first has made."""
    early = vendors.swap("Early", "Relu", "Abs", stage="kBeforeInferShape")
    return early, vendors.swap("Picky", "Abs", "Relu", meet="return False")


def test_the_host_calls_every_hook_in_order(vendors: Any) -> None:
    vendors.write("acme/a.py", *early_and_picky(vendors), ASKING)
    vendors.write("acme/b.py", vendors.swap("Off", "Relu", "Abs"))
    plugin, calls = recorder()
    host = vendors.host(plugins=[("recorder", plugin)], disable=["Off"])
    assert calls == [
        "import_path",
        "collect_passes",
        "collect_passes",
        "register_ops",
        "register_passes",
        "register_importers",
    ]
    calls.clear()
    host.tune_kinds()
    assert calls == ["tune_kinds"]
    calls.clear()
    host.run(parse(MODEL))
    assert calls == [
        "compile_started",
        "before_pass Early",
        "before_rule",
        "before_rewrite",
        "after_rewrite",
        "after_pass Early",
        "before_infershape kBeforeInferShape",
        "stage_finished kBeforeInferShape",
        "before_pass Picky",
        "before_rule",
        "match_refused",
        "after_pass Picky",
        "before_pass Asking",
        "check_node_support",
        "after_pass Asking",
        "after_infershape kAfterInferShape",
        "stage_finished kAfterInferShape",
        "after_builtin_fusion_pass kAfterBuiltinFusionPass",
        "stage_finished kAfterBuiltinFusionPass",
        "after_origin_graph_optimize kAfterOriginGraphOptimize",
        "stage_finished kAfterOriginGraphOptimize",
        "compile_finished",
    ]


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_failure_is_told_once_what_failed_is_undone(vendors: Any, keep_going: bool) -> None:
    half = """
@REG_FUSION_PASS(name="Half")
class Half(FusionBasePass):
    def Run(self, graph, context):
        graph.set_attribute(next(graph.nodes), "alpha", 1.0)
        raise ValueError("no")

@hookimpl
def gehost_before_infershape(graph):
    raise ValueError("neither")
"""
    calls: list[tuple[str, list[str], str]] = []

    class Listener:
        @hookimpl
        def gehost_pass_failed(self, spec: Any, graph: Any, error: Exception) -> None:
            calls.append((spec and spec.name, list(next(graph.nodes).attrs), str(error)))

    vendors.write("acme/a.py", half)
    host = vendors.host(plugins=[("listener", Listener())], keep_going=keep_going)
    if keep_going:
        _, report = host.run(parse(MODEL))
        assert [message for _, _, message in calls] == report.problems
    else:
        with pytest.raises(PassError) as caught:
            host.run(parse(MODEL))
        assert [message for _, _, message in calls] == [str(caught.value)]
    assert [(name, attributes) for name, attributes, _ in calls] == [("Half", []), (None, [])][
        : 1 + keep_going
    ]


def test_the_command_line_calls_the_hook_for_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    from gehost.cli import run
    from gehost.host import plugins

    plugin, calls = recorder()
    monkeypatch.setattr(plugins, "installed_plugins", lambda: [("recorder", plugin)])
    assert run(["--version"]) == 0
    assert calls == ["register_commands"]


def test_new_calls_the_hook_for_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    from gehost.scaffold import styles

    plugin, calls = recorder()
    monkeypatch.setattr(styles, "installed_plugins", lambda: [("recorder", plugin)])
    assert list(styles.installed_styles()) == ["class", "decompose"]
    assert calls == ["register_styles"]


def test_a_vendor_file_may_implement_every_other_hook(
    vendors: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The four that are called of plugins only are never called of a vendor file; the rest are."""
    implementations = [f"@hookimpl\ndef {name}(): print('called {name}')\n" for name in NAMES]
    vendors.write("acme/hooks.py", *implementations)
    vendors.write(
        "acme/p.py",
        *early_and_picky(vendors),
        ASKING,
        vendors.swap("Failing", "Abs", "Relu", meet="1 / 0"),
    )
    host = vendors.host(keep_going=True)
    host.tune_kinds()
    host.run(parse(MODEL))
    lines = capsys.readouterr().err.splitlines()
    called = {line.removeprefix("called ") for line in lines}
    of_plugins = {
        "gehost_collect_passes",
        "gehost_import_path",
        "gehost_register_commands",
        "gehost_register_styles",
    }
    assert set(NAMES) - called == of_plugins
