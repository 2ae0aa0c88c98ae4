"""The `labkit` command line: check the machine, open the labs, run reports and benchmarks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from labkit import __version__
from labkit.errors import LabkitError, SettingError

__all__ = ["app"]


class _Commands(TyperGroup):
    """Turns an error of ours into one clear line and an exit code: 2 for what was asked, 1 for what went wrong."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LabkitError as error:
            if os.environ.get("LABKIT_DEBUG") == "1":
                raise
            _say_error(error)
            raise typer.Exit(2 if isinstance(error, SettingError) else 1) from error


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, help=__doc__)


def _say_error(error: LabkitError) -> None:
    console = Console(file=sys.stderr, soft_wrap=True, highlight=False)
    console.print(f"labkit: {error}", style="bold red", markup=False)


@app.command()
def doctor() -> None:
    """Check Python, packages, devices, browser, folders and ports; each failure comes with its remedy."""
    from labkit.report import doctor as ward

    findings = ward.examine()
    ward.render(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    ctx: typer.Context,
    port: Annotated[int | None, typer.Option(help="Port to serve on; default: 8888 or the next free one.")] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open JupyterLab on the notebooks; further arguments go to JupyterLab."""
    from labkit.report.notebooks import notebooks_folder
    from labkit.ui.jupyterlab import start

    raise typer.Exit(start(notebooks_folder(), port=port, browser=browser, extra_args=ctx.args))


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="A notebook's name, such as 90_report_batching, or its path.")],
    parameter: Annotated[list[str] | None, typer.Option("-p", metavar="KEY=VALUE", help="Set a parameter.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("reports"),
    cell_limit_s: Annotated[float, typer.Option(help="Seconds that one cell may take.")] = 300.0,
    limit_s: Annotated[float, typer.Option(help="Seconds that all cells together may take.")] = 1200.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it runs.")] = False,
) -> None:
    """Run a notebook as a report; the last line names the HTML file, which opens offline."""
    from labkit.report.kernel import Limits
    from labkit.report.parameters import assignments
    from labkit.report.run import run_report

    settings, limits = assignments(parameter or []), Limits(cell_limit_s, limit_s)
    result = run_report(name, settings, out=out, limits=limits, quiet=quiet, check=False)
    if result.error is not None:
        _say_error(result.error)
    elif result.row.verdict and not quiet:
        print(result.row.verdict)
    print(result.html)
    if result.error is not None:
        raise typer.Exit(1)


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which benchmark; none: list them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats: minutes, not tens of minutes.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows and checks as JSON.")] = None,
) -> None:
    """Run a benchmark and print its table; it fails only if it could not measure, not if a goal was missed."""
    import labkit.bench as benches

    if name is None:
        print("\n".join(benches.names()))
        return
    result = benches.run(name, quick=quick)
    result.print()
    if json is not None:
        result.write_json(json)


@app.command()
def results(
    name: Annotated[str | None, typer.Argument(help="Only those of this lab or report.")] = None,
    newest: Annotated[int, typer.Option(min=1, help="How many to show.")] = 30,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as CSV.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as Parquet.")] = None,
) -> None:
    """Show the newest rows of the results store, or export them all."""
    from labkit.measure import open_store
    from labkit.measure.table import print_rows

    store = open_store()
    for file, export in ((csv, store.export_csv), (parquet, store.export_parquet)):
        if file is not None:
            print(f"{export(file)} rows in {file}")
    if csv is None and parquet is None:
        print_rows(store.rows(name=name, newest=newest), store.path)


@app.command()
def fetch() -> None:
    """Get the model files that no package carries into the cache folder."""
    from labkit.models.fetch import fetch_all

    for path in fetch_all():
        print(path)


@app.command("build-student")
def build_student(
    source: Annotated[Path | None, typer.Argument(help="A notebook or a folder; default: notebooks/.")] = None,
    target: Annotated[Path, typer.Option("--to", help="Folder for the copies.")] = Path("student"),
) -> None:
    """Build the students' copies of the notebooks, without solutions and outputs."""
    from labkit.report.notebooks import notebooks_folder
    from labkit.teach import build_student as build

    for path in build(source or notebooks_folder(), target):
        print(path)


@app.command()
def version() -> None:
    """Print labkit's version."""
    print(__version__)
