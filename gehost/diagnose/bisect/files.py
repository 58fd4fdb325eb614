"""Write a wrong rewrite as files: ``before.onnx``, ``after.onnx``, ``feeds.npz`` and a README."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gehost.diagnose.bisect.capture import Captured
from gehost.diagnose.bisect.run import Bisection, Trial
from gehost.diagnose.directory import fresh_directory
from gehost.errors import one_line
from gehost.ir.files.save import save_model
from gehost.spelling import counted
from gehost.verify import save_feeds

Tolerance = tuple[float | None, float | None]


def write_match(captured: Captured, directory: str, answer: str, tolerance: Tolerance) -> None:
    """Write the match before and after its rewrite.

    The values at its inputs and a README are written, too.

    Weights of the match are written too, also those that are external data.

    Raises:
        UsageError: the directory is not empty.
        OutputError: the directory cannot be written.
    """
    with fresh_directory(directory) as home:
        save_model(captured.before, home / "before.onnx", captured.base_dir)
        save_model(captured.after, home / "after.onnx", captured.base_dir)
        (home / "feeds.npz").write_bytes(save_feeds(captured.feeds))
        (home / "README.md").write_text(
            "\n".join(_readme(captured, answer, tolerance)) + "\n", encoding="utf-8"
        )


def _readme(captured: Captured, answer: str, tolerance: Tolerance) -> Iterator[str]:
    yield "# A rewrite after which the numbers are wrong\n"
    yield f"    {one_line(answer)}\n"
    yield (
        "`before.onnx` holds the matched nodes with their constants, `after.onnx` those that "
        "replaced them. `feeds.npz` holds"
    )
    yield (
        f"generated inputs, as those of the run are not known ({one_line(captured.made_up)})."
        if captured.made_up
        else (
            "the values that their inputs had in the run that differed, or in the first where "
            "the whole model does not load."
        )
    )
    yield f"\nIn this directory:\n\n    {compare_command('', tolerance, captured.libraries)}\n"
    yield verdict(captured)


def compare_command(directory: str, tolerance: Tolerance, libraries: Sequence[str] = ()) -> str:
    """Return the command line that compares the two models."""
    at = f"{directory.rstrip('/')}/" if directory else ""
    words = ["gehost", "verify", f"{at}before.onnx", f"{at}after.onnx", "--feeds", f"{at}feeds.npz"]
    for option, value in zip(("--rtol", "--atol"), tolerance, strict=True):
        words += [] if value is None else [option, f"{value:g}"]
    for library in libraries:
        words += ["--ort-library", library]
    return shlex.join(words)


def verdict(captured: Captured) -> str:
    """Return the result of comparing the match alone."""
    if isinstance(captured.alone, str):
        return f"The match does not run alone: {one_line(captured.alone)}"
    return one_line(captured.alone.summary())


def answer(bisection: Bisection, model: str) -> str:
    """Name the cause of the difference in one line."""
    count = bisection.rewrites
    if bisection.wrong is None:
        return f"{model}: the numbers are right with all rewrites done"
    if bisection.before_rewrites:
        return (
            f"{model}: the numbers are wrong without any rewrite: {bisection.before_rewrites} "
            "changes them"
        )
    captured = bisection.captured
    if captured is None:
        return (
            f"{model}: the numbers are right with all rewrites done, and wrong after "
            f"{_listed(bisection.by_hand)}"
        )
    nodes = _nodes(captured.nodes)
    inside = f' in a body of "{captured.inside}"' if captured.inside else ""
    rewrite = (
        f"{captured.pass_name} ({captured.origin}) at {nodes}{inside}, which became "
        f"{_nodes(captured.made) or 'nothing'}"
    )
    if not captured.right_alone:
        also = (
            f"; in the same step {_listed(bisection.by_hand)} edited the graph directly"
            if bisection.by_hand
            else ""
        )
        return f"{model}: rewrite {captured.number} of {count} changes the numbers: {rewrite}{also}"
    alone = "alone, on generated inputs," if captured.made_up else "alone"
    right = f"{alone} the rewrite is right within the tolerance"
    if bisection.uncleaned is not None and bisection.uncleaned.found.equal:
        why = f"{right}, and so are the numbers without the clean-up"
    else:
        others = [
            *bisection.suspects,
            "later nodes on the way to the outputs, where a small difference may grow",
        ]
        why = f"{right}, so it may be {', or '.join(others)}"
    return (
        f"{model}: the numbers are wrong after rewrite {captured.number} of {count}: "
        f"{rewrite}; {why}"
    )


def account(bisection: Bisection, directory: str, tolerance: Tolerance) -> Iterator[str]:
    """Yield a search's runs and its reproducer's place, line by line."""
    for trial in bisection.trials:
        yield trial_line(trial)
    yield (
        f"{counted(bisection.model_runs, 'model run')} for {counted(bisection.rewrites, 'rewrite')}"
    )
    captured = bisection.captured
    if captured is not None:
        yield f"the match alone: {verdict(captured)}"
        yield f"it is in {directory}: {compare_command(directory, tolerance, captured.libraries)}"


def trial_line(trial: Trial) -> str:
    """Return one line on a model run."""
    extent = "all rewrites" if trial.limit is None else counted(trial.limit, "rewrite")
    return one_line(f"{extent}{'' if trial.cleanup else ', no clean-up'}: {trial.found.summary()}")


def _nodes(nodes: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f'{op} "{label}"' for label, op in nodes)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
