"""``gehost verify``: compare the numbers of two models."""

from __future__ import annotations

import click

from gehost.cli.options import compare_options, importer_option, json_option
from gehost.cli.output import print_json, print_line, writing_output
from gehost.errors import NumbersDifferError, one_line


@click.command()
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@importer_option
@compare_options
@json_option
@click.option(
    "--engine",
    type=click.Choice(["onnxruntime", "reference"]),
    help="Engine for both models. Default: ONNX Runtime; the reference for types it lacks.",
)
def verify(
    a: str,
    b: str,
    settings: dict[str, str],
    rtol: float | None,
    atol: float | None,
    seed: int,
    feeds: str | None,
    ort_libraries: tuple[str, ...],
    engine: str | None,
    provider: str,
    *,
    special_values: bool,
    as_json: bool,
) -> None:
    """Compare the numbers of models A and B on the same inputs."""
    from gehost.cli.progress import Progress
    from gehost.host.containment import output_on_stderr
    from gehost.host.model_files import installed_importers
    from gehost.ir.model import Model
    from gehost.verify import Baseline, Runner, load_feeds

    inputs = None if feeds is None else [load_feeds(feeds)]
    with output_on_stderr():
        importers = installed_importers(settings)
        first, second = importers.original(a, settings), importers.original(b, settings)
    if isinstance(second, str):
        Model.load(second).close()  # an invalid model file is an error of its own, not a difference
    progress = Progress()
    with progress.showing(what=f"running {a}"):
        baseline = Baseline.of(
            Runner(first, libraries=ort_libraries, engine=engine, widens=True),
            inputs,
            seed=seed,
            rtol=rtol,
            atol=atol,
            special_values=special_values,
            engine=engine,
            provider=provider,
        )
    count = len(baseline.runs)
    with progress.showing(count, f"running {b}"):
        result = baseline.against(
            second, progress=lambda steps: progress.update(f"running {b}", steps)
        )
    if as_json:
        print_json(result.as_dict())
    if not result.equal:
        raise NumbersDifferError(result.summary())
    if not as_json:
        with writing_output():
            print_line(one_line(result.summary()))
