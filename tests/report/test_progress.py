import io

from labkit.report.progress import Progress, caption


def test_each_cell_gets_one_line_with_its_seconds() -> None:
    stream = io.StringIO()
    progress = Progress(2, stream)
    for source in ("# Warm up\nx = 1", "y = 2"):
        progress.begin(source)
        progress.end()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("  [ 1/2] Warm up ")
    assert first.endswith(" s")
    assert second.startswith("  [ 2/2] y = 2 ")


def test_a_cell_that_never_ended_is_said_to_be_lost() -> None:
    stream = io.StringIO()
    progress = Progress(2, stream)
    progress.begin("boom()")
    progress.abandon()
    assert stream.getvalue().rstrip().endswith("lost")
    assert progress.ended == 0


def test_without_a_stream_only_the_counts_are_kept() -> None:
    progress = Progress(1)
    progress.begin("x")
    progress.end()
    assert (progress.started, progress.ended) == (1, 1)


def test_long_and_empty_first_lines_make_a_short_caption() -> None:
    assert len(caption("x" * 200)) == 64
    assert caption("\n\n  ## Measure\nrun()") == "Measure"
    assert caption("") == ""
