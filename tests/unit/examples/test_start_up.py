"""benchmarks/start_up.py: a log with the times of its lines becomes parts."""

import pytest

from benchmarks.start_up import Line, Sample, StartUp, split, table, title_of

LOG = [
    Line(6.0, "ray init kwargs: {}"),
    Line(9.0, "2026 INFO worker.py -- Started a local Ray instance."),
    Line(30.0, "(TaskRunner) Using dataset class: RLHFDataset"),
    Line(31.0, "(TaskRunner) Using dataset class: RLHFDataset"),
    Line(35.0, "(TaskRunner) INFO: Total training steps: 3"),
    Line(70.0, "(WorkerDict) Before FSDP, memory allocated (GB): 0.00"),
    Line(80.0, "(TaskRunner) reward loop manager initialized"),
    Line(110.0, "(Server) ['serve',"),
    Line(130.0, "(Server) INFO [monitor.py] torch.compile took 41.52 s in total"),
    Line(150.0, "(Server) INFO Graph capturing finished in 9 secs, took 0.5 GiB"),
    Line(160.0, "(TaskRunner) LLMServerManager: []"),
    Line(175.0, "agon-verl: the self-check passed in 11.0 s: 0.004"),
    Line(180.0, "(TaskRunner) agent loop workers ready: 1"),
    Line(200.0, "(TaskRunner) step:0 - val-core/acc:0.1"),
]


def test_each_part_ends_where_the_next_begins() -> None:
    seen = split("before", LOG)
    assert [*seen.parts.values()] == [6, 3, 21, 5, 35, 10, 30, 50, 15, 5] and seen.total == 180
    assert seen.parts["vLLM"] == 50 and seen.vllm == {"torch.compile took": 41.52, "Graph capturing finished": 9}


def test_without_a_self_check_the_first_logged_step_ends_it() -> None:
    seen = split("before", [line for line in LOG if "self-check" not in line.text and "ready" not in line.text])
    assert seen.total == 200 and seen.parts["sync and self-check"] == 40


def test_processor_time_is_that_of_the_start_alone_and_keeps_ended_processes() -> None:
    samples = [
        Sample(0.0, {}, 1000.0),
        Sample(90.0, {1: ("main", 30.0), 2: ("ray::IDLE", 4.0)}, 1100.0),
        Sample(180.0, {1: ("main", 40.0), 3: ("ray::IDLE", 2.0)}, 1136.0),
        Sample(199.0, {1: ("main", 99.0)}, 1300.0),  # the first step
    ]
    seen = split("before", LOG, samples)
    assert seen.processors == {"main": 40.0, "ray::IDLE": 6.0} and seen.others == 0.5
    assert "| **processor time** | 46.0 |" in table([seen]) and "| of main | 40.0 |" in table([seen])


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("/venv/bin/python\0-m\0verl.trainer.main_ppo\0+recipe=agon", "verl.trainer.main_ppo"),
        ("/venv/bin/python3.11\0-u\0/ray/log_monitor.py\0--x", "log_monitor.py"),
        ("ray::AgonAgentLoopWorker.connect", "ray::AgonAgentLoopWorker"),
        ("/ray/gcs_server\0--port=1", "gcs_server"),
        ("", "kernel"),
    ],
)
def test_a_process_is_named_by_what_it_runs(command: str, title: str) -> None:
    assert title_of(command) == title


def test_a_run_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="logged no step"):
        split("before", LOG[:5])


def test_the_table_compares_labels() -> None:
    runs = [StartUp("before", 10.0, {"Ray": 4.0}, {}), StartUp("before", 14.0, {"Ray": 6.0}, {"init engine": 3.0})]
    text = table([*runs, StartUp("after", 7.0, {"Ray": 2.0}, {})])
    assert "| Ray | 5.0 (4.0–6.0) | 2.0 |" in text and "| **total** | 12.0 (10.0–14.0) | 7.0 |" in text
    assert "| vLLM: init engine | 3.0 |  |" in text
