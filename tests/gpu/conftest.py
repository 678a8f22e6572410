"""The options of `pytest tests/gpu`, and the work that its tests look at. It is done side by side where it fits."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import jobs
from tests.gpu.jobs import FirstRuns, LaterJobs, Served, Setting
from tests.real.runs import Run, kill_marked

FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu", "tests/gpu: does agon-verl work on this machine?")
    group.addoption("--model", help="folder or hub name of an instruct model; required")
    group.addoption("--data", help="a table with the columns question and answer (default: sums in words)")
    group.addoption("--override", action="append", default=[], help="a setting for every run, as verl's command takes")
    group.addoption("--on-cpu", action="store_true", help="the same on a machine without a GPU, to develop these tests")


@dataclass
class Workers:
    """Runs jobs in threads, as many at a time as the GPU has memory for, and notes how long each took."""

    setting: Setting
    figures: list[str]
    pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(3 if jobs.fit_side_by_side(self.setting) else 1)

    def submit(self, name: str, job: Callable[..., Any], *arguments: Any) -> Future:
        def timed() -> Any:
            begun = time.monotonic()
            try:
                return job(self.setting, *arguments)
            finally:
                self.figures.append(f"{name}: {time.monotonic() - begun:.0f} s")

        return self.pool.submit(timed)


@pytest.fixture(scope="session")
def setting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Skips, with the reason, where there is no GPU or no model."""
    model, on_cpu = request.config.getoption("--model", None), request.config.getoption("--on-cpu", False)
    if not importlib.util.find_spec("verl"):
        pytest.skip("verl is not installed")
    import torch

    if not on_cpu and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    if not model:
        pytest.skip("no model: pytest tests/gpu --model PATH")
    if (weights := Path(model).expanduser()).is_dir():
        model = str(weights.resolve())  # the runs have working folders of their own
    folder = tmp_path_factory.mktemp("gpu")
    made = Setting(folder, model, bool(on_cpu), tuple(request.config.getoption("--override")))
    jobs.prepare(made, request.config.getoption("--data"))
    return made


@pytest.fixture(scope="session")
def workers(setting: Setting, request: pytest.FixtureRequest) -> Iterator[Workers]:
    made = Workers(setting, request.config.stash.setdefault(FIGURES, []))
    begun = time.monotonic()
    yield made
    kill_marked(setting.mark)  # of a session that was interrupted; otherwise there is nothing
    made.pool.shutdown(cancel_futures=True)
    made.figures.append(f"everything: {time.monotonic() - begun:.0f} s, {made.pool._max_workers} at a time")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("measured")
        for line in figures:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def first_runs(workers: Workers) -> FirstRuns:
    return FirstRuns(
        workers.submit("Agon, killed in step 3", jobs.killed),
        workers.submit("stock GRPO", jobs.stock),
        workers.submit("Agon with swapped slots", jobs.swapped),
        workers.submit("packed against padded", jobs.packed),
    )


@pytest.fixture(scope="session")
def killed(first_runs: FirstRuns) -> Run:
    return first_runs.killed.result()


@pytest.fixture(scope="session")
def stock(first_runs: FirstRuns) -> Run:
    return first_runs.stock.result()


@pytest.fixture(scope="session")
def swapped(first_runs: FirstRuns) -> Run:
    return first_runs.swapped.result()


@pytest.fixture(scope="session")
def packed(first_runs: FirstRuns) -> dict[str, float]:
    return first_runs.packed.result()


@pytest.fixture(scope="session")
def exported(setting: Setting, killed: Run) -> Path:
    return jobs.exported(setting)


@pytest.fixture(scope="session")
def later_jobs(workers: Workers, exported: Path) -> LaterJobs:
    """All start from the checkpoint of step 2."""
    return LaterJobs(
        workers.submit("Agon, resumed", jobs.resumed),
        workers.submit("agon evaluate", jobs.evaluated, exported),
        workers.submit("agon serve", jobs.served, exported),
    )


@pytest.fixture(scope="session")
def resumed(later_jobs: LaterJobs) -> Run:
    return later_jobs.resumed.result()


@pytest.fixture(scope="session")
def evaluated(later_jobs: LaterJobs) -> dict[str, Any]:
    return later_jobs.evaluated.result()


@pytest.fixture(scope="session")
def served(later_jobs: LaterJobs) -> Served:
    return later_jobs.served.result()


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest, workers: Workers) -> list[str]:
    """Lines for the end of pytest's output."""
    return workers.figures
