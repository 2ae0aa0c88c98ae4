"""Trace readers: small synthetic files in the public formats always, the public files when they are there."""

import json
from pathlib import Path

import numpy as np
import pytest

from labkit.errors import SettingError, TraceError
from labkit.workloads.traces import Trace, read_azure, read_mooncake, read_trace

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0000001,110,27
2023-11-16 18:17:03.0000000,4808,10

2023-11-16 18:20:03.5000000,74,8
"""


def public(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the public trace {name} is not on this machine")
    return path


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "trace.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode("utf-8"))
        return path

    return write


def ticking(ticks_ms: list[int], each: int) -> str:
    rows = [(tick, index) for tick in ticks_ms for index in range(each)]
    return "\n".join(
        json.dumps({"timestamp": tick, "input_length": index, "output_length": 5, "hash_ids": [tick, index]})
        for tick, index in rows
    )


def test_azure_rows_are_sorted_and_exact_to_100_ns(written):
    trace = read_azure(written(AZURE))
    assert trace.at_s.tolist() == [0.0, 1.0000001, 180.5]
    assert trace.input_tokens.tolist() == [4808, 110, 74]
    assert trace.output_tokens.tolist() == [10, 27, 8]
    assert trace.spread_s == 0.0


def test_windows_line_ends_a_byte_order_mark_and_another_column_order_are_read(written):
    text = "\ufeffGeneratedTokens,TIMESTAMP,ContextTokens\r\n8,2023-11-16 18:20:03Z,74\r\n"
    trace = read_trace(written(text))
    assert (trace.input_tokens[0], trace.output_tokens[0]) == (74, 8)


def test_empty_stretches_are_listed(written):
    assert read_azure(written(AZURE)).gaps(longer_than_s=60) == ((1.0000001, 180.5),)


def test_a_stretch_without_requests_is_refused_with_the_nearest_request(written):
    with pytest.raises(TraceError, match=r"no request in the stretch 60..120 s.*nearest one is at 1\.000 s"):
        read_azure(written(AZURE)).arrivals(start_s=60, duration_s=60)


def test_replay_cuts_the_stretch_and_scales_its_time():
    columns = np.arange(5)
    trace = Trace("t", np.array([0.0, 1.0, 2.0, 4.0, 8.0]), columns, columns)
    assert trace.arrivals(speed=2.0, start_s=1.0, duration_s=7.0).at_s == (0.0, 0.5, 1.5)
    assert trace.arrivals().at_s == (0.0, 1.0, 2.0, 4.0, 8.0)


def test_a_speed_of_zero_is_refused(written):
    with pytest.raises(SettingError, match="speed is 0"):
        read_azure(written(AZURE)).arrivals(speed=0)


def test_requests_of_one_tick_are_spread_inside_it_in_file_order(written):
    # Ticks jitter by some milliseconds and one is missing, as in the public trace.
    ticks = [0, 2998, 6001, 12000, 15000]
    trace = read_mooncake(written(ticking(ticks, each=40)), seed=4)
    assert trace.spread_s == pytest.approx(3.0, abs=0.01)
    assert [block[0] for block in trace.blocks] == [tick for tick in ticks for _ in range(40)]
    assert trace.input_tokens.tolist() == list(range(40)) * 5
    shift_s = 12.0 - np.floor(trace.at_s[120] * 100) / 100
    assert 0 <= shift_s + 0.01 < 3.0
    inside_s = trace.at_s[160:] - trace.at_s[160]
    assert 1.5 < inside_s[-1] < 3.0
    assert np.unique(trace.at_s).size == 200


def test_the_seed_decides_where_spread_arrivals_fall(written):
    path = written(ticking([0, 3000, 6000], each=10))
    one, same, other = (read_mooncake(path, seed=seed) for seed in (1, 1, 2))
    assert one.at_s.tolist() == same.at_s.tolist() != other.at_s.tolist()


def test_without_spreading_the_bursts_of_the_file_remain(written):
    trace = read_mooncake(written(ticking([0, 3000], each=10)), spread=False)
    assert trace.at_s.tolist() == [0.0] * 10 + [3.0] * 10
    assert trace.spread_s == 0.0


def test_fine_timestamps_are_left_alone(written):
    trace = read_mooncake(written(ticking([0, 40, 277, 471], each=1)))
    assert trace.at_s.tolist() == [0.0, 0.04, 0.277, 0.471]
    assert trace.spread_s == 0.0


def test_read_trace_tells_the_formats_apart(written):
    assert read_trace(written(AZURE, "a")).input_tokens[0] == 4808
    assert read_trace(written(ticking([0, 5], each=1), "b")).blocks == ((0, 0), (5, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            AZURE.replace("4808", "many"),
            r"line 3: ContextTokens is 'many'; it must be a whole number, 0 or more\. Corr",
        ),
        (AZURE.replace("4808", "-1"), "line 3: ContextTokens is '-1'"),
        (AZURE.replace("2023-11-16 18:17:03.0000000", "noon"), "line 3: TIMESTAMP is 'noon'; it must be a date"),
        (AZURE.replace("2023-11-16 18:17:03.0000000", ""), "line 3: TIMESTAMP is ''"),
        (AZURE.replace("4808,10", "4808"), "line 3: GeneratedTokens is ''"),
        (AZURE.replace("ContextTokens", "Context"), "line 1: the header .* lacks ContextTokens"),
        (AZURE.splitlines()[0], "holds no request"),
        ("", "holds no request"),
        ("hello\n", "line 1: 'hello' begins neither"),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1}\n{"timestamp"',
            "line 2: the line is '{\"timestamp\"'",
        ),
        ('{"input_length": 1, "output_length": 1}', "line 1: timestamp is None"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', "line 1: timestamp is nan"),
        ('{"timestamp": 0, "input_length": 1.5, "output_length": 1}', "line 1: input_length is 1.5"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 3}', "line 1: hash_ids is 3"),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_a_remedy(written, text, said):
    with pytest.raises(TraceError, match=said) as raised:
        read_trace(written(text))
    assert raised.value.remedy


def test_a_missing_or_binary_file_is_a_trace_error(tmp_path):
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08\xff")
    with pytest.raises(TraceError, match="not a text file"):
        read_trace(tmp_path / "packed")


def test_a_trace_cannot_be_changed_by_accident(written):
    with pytest.raises(ValueError, match="read-only"):
        read_azure(written(AZURE)).at_s[0] = 1.0


@pytest.mark.parametrize(
    ("name", "requests", "cv", "inputs", "outputs"),
    [("code", 8_819, 13.2, 2_048, 28), ("conv", 19_366, 1.09, 1_155, 211)],
)
def test_the_public_azure_traces_have_their_published_shape(name, requests, cv, inputs, outputs):
    trace = read_trace(public(f"azure2023/AzureLLMInferenceTrace_{name}.csv"))
    assert trace.at_s.size == requests
    assert trace.cv == pytest.approx(cv, rel=0.01)
    assert trace.input_tokens.mean() == pytest.approx(inputs, rel=0.01)
    assert trace.output_tokens.mean() == pytest.approx(outputs, rel=0.02)
    assert trace.spread_s == 0.0


def test_the_public_code_trace_falls_silent_for_217_seconds():
    trace = read_trace(public("azure2023/AzureLLMInferenceTrace_code.csv"))
    assert max(to_s - from_s for from_s, to_s in trace.gaps()) == pytest.approx(217.169, abs=0.001)


def test_the_public_mooncake_conversation_is_spread_over_its_three_second_ticks():
    path = public("mooncake/conversation_trace.jsonl")
    raw, spread = read_mooncake(path, spread=False), read_trace(path)
    assert (raw.at_s.size, np.unique(raw.at_s).size) == (12_031, 1_180)
    assert spread.spread_s == 3.0
    assert np.unique(spread.at_s).size > 12_000
    # One second in three held all requests before; afterwards they fall evenly.
    busiest = np.histogram(spread.at_s % 3.0, bins=3, range=(0, 3))[0].max()
    assert busiest < 0.36 * 12_031
    assert spread.input_tokens.mean() == pytest.approx(12_035, rel=0.001)


def test_the_public_mooncake_synthetic_trace_needs_no_spreading():
    trace = read_trace(public("mooncake/synthetic_trace.jsonl"))
    assert (trace.at_s.size, trace.spread_s) == (3_993, 0.0)
