"""A sync between the trainer's sender and vLLM's side: a failure on either side ends both, with its reason."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from verl.workers.rollout.replica import RolloutMode
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.models.utils import WeightsMapper

from agon_verl.rollout import sync
from agon_verl.rollout.extension import MultiAdapterWorkerExtension
from agon_verl.rollout.server import MultiAdapterServer
from agon_verl.rollout.sync import CheckedSender
from agon_verl.rollout.wire import NODE, socket_of_run, sync_name

WAIT = 120  # seconds after which a sender counts as hung; the first import of vLLM takes a part of them
TENSORS = {
    sync_name("A", 1, f"layer{number}"): torch.full((1 << 18,), float(number)) for number in range(3)
}  # a bucket each


@pytest.fixture
def handle() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path may have no more than 107 characters
        yield f"ipc://{folder}/socket"


class Receiver(threading.Thread):
    """verl's receiver, which keeps the error that ends it."""

    def __init__(self, handle: str, take: Callable) -> None:
        super().__init__(daemon=True)
        self._handle, self._take = handle, take
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            BucketedWeightReceiver(self._handle, torch.device("cpu"), use_shm=True).receive_weights(self._take)
        except Exception as error:
            self.error = error

    def check(self) -> None:
        """As the server's: raises what the receiver raised."""
        if self.error is not None:
            raise self.error


def send(handle: str, check: Callable[[], None]) -> Exception | None:
    """Send all tensors; returns the error that ended it."""
    ended: list[Exception | None] = []

    def run() -> None:
        sender = CheckedSender(handle, bucket_size_mb=1, use_shm=True, check=check)
        try:
            asyncio.run(sender.async_send_weights(iter(TENSORS.items())))
            ended.append(None)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT)
    assert ended, f"the sender still waits after {WAIT} seconds"
    return ended[0]


@pytest.mark.parametrize("bucket", [0, 1, 2])
def test_a_receiver_that_raises_ends_the_sender(handle: str, bucket: int) -> None:
    """verl's own sender waits for ever."""
    seen: list[str] = []

    def take(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
        if len(seen) == bucket:
            raise MemoryError("no room for the adapters")
        seen.extend(name for name, _ in weights)

    receiver = Receiver(handle, take)
    receiver.start()
    error = send(handle, receiver.check)
    assert error is receiver.error is not None
    assert not Path(handle.removeprefix("ipc://")).exists()


def test_a_receiver_that_never_comes_ends_the_sender(handle: str) -> None:
    def check() -> None:
        raise RuntimeError("the engine has died")

    assert str(send(handle, check)) == "the engine has died"


def test_a_receiver_that_never_comes_to_a_healthy_engine_ends_the_sender(
    handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(sync, "LONGEST_WAIT", 0.1)
    assert "does not read what was sent" in str(send(handle, lambda: None))


def test_two_runs_on_one_machine_have_sockets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job of each local Ray has the same id, and so had their sockets: one run took the other's adapters."""
    monkeypatch.setenv("VERL_RAY_JOB_ID", "01000000")
    worker: Any = object.__new__(MultiAdapterWorkerExtension)
    worker.local_rank, worker.model_runner = 0, SimpleNamespace()
    handles = []
    for node in ("a" * 56, "b" * 56):
        monkeypatch.setenv(NODE, node)
        handles.append(worker._get_zmq_handle())
        assert handles[-1] == socket_of_run(vLLMColocateWorkerExtension._get_zmq_handle(worker), node)
        assert node[:16] in handles[-1] and len(handles[-1]) < 107
    assert handles[0] != handles[1]


class FullEngine:
    """vLLM's engine, which lives, but finds no memory when it wakes up."""

    errored = False

    async def wake_up(self, tags: list[str]) -> None:
        raise MemoryError("no room for the weights")


def test_a_failed_wake_up_ends_the_senders_of_the_other_ranks(handle: str) -> None:
    """Only rank 0 sees the error of its call; the others of a tensor-parallel replica ask the server while they wait.

    Rank 0 then starts no transfer, so nobody receives what they send.
    """
    server = object.__new__(MultiAdapterServer)
    server.node_rank, server.rollout_mode, server.engine = 0, RolloutMode.HYBRID, FullEngine()
    with pytest.raises(MemoryError, match="no room for the weights"):
        asyncio.run(server.wake_up(tags=["weights"]))
    with ThreadPoolExecutor() as server_thread:  # the sender's own has a loop already, as the server's process has
        error = send(handle, lambda: server_thread.submit(asyncio.run, server.check()).result())
    assert str(error) == "no room for the weights"


def test_a_slow_receiver_gets_everything(handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "ASK_SECONDS", 0.01)
    taken: dict[str, torch.Tensor] = {}
    checks: list[bool] = []
    asked_often = threading.Event()

    def check() -> None:
        checks.append(True)
        if len(checks) % 20 == 0:
            asked_often.set()

    def take(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
        asked_often.wait(WAIT)
        asked_often.clear()
        taken.update((name, tensor.clone()) for name, tensor in weights)

    Receiver(handle, take).start()
    assert send(handle, check) is None
    assert taken.keys() == TENSORS.keys() and all(torch.equal(taken[name], TENSORS[name]) for name in TENSORS)


class Worker(MultiAdapterWorkerExtension):
    """What vLLM's worker adds to the extension, as far as a sync needs it; it has no room for adapters."""

    _is_qat_model = _is_modelopt_qat = False
    device = torch.device("cpu")
    model_runner = SimpleNamespace(model=SimpleNamespace())

    def __new__(cls, handle: str) -> "Worker":
        return object.__new__(cls)  # verl's would let this process die with its parent

    def __init__(self, handle: str) -> None:
        self._handle = handle

    def _get_zmq_handle(self) -> str:
        return self._handle

    def remove_lora(self, lora_id: int) -> None: ...

    def add_lora(self, request: object) -> None:
        raise MemoryError("no room for the adapters")


def test_an_error_while_vllm_takes_the_adapters_reaches_the_caller(handle: str) -> None:
    """And not the error of the clean-up that follows it."""
    errors: list[Exception] = []

    def take() -> None:
        try:
            Worker(handle).update_weights_from_ipc(peft_config={"r": 1}, base_sync_done=True, use_shm=True)
        except MemoryError as error:
            errors.append(error)

    worker = threading.Thread(target=take, daemon=True)
    worker.start()
    assert send(handle, lambda: None) is None
    worker.join(WAIT)
    assert [str(error) for error in errors] == ["no room for the adapters"]


def test_vllm_reads_an_adapter_by_the_names_of_its_own_layers(handle: str) -> None:
    """The mapper that verl 0.9.0 uses as it finds it."""
    stacked = WeightsMapper(orig_to_new_prefix={"a.": "b."}, orig_to_new_stacked={".q_proj": (".qkv_proj", "q")})
    worker = Worker(handle)
    worker.model_runner = SimpleNamespace(model=SimpleNamespace(hf_to_vllm_mapper=stacked))
    for _ in range(2):  # syncs
        worker._put_adapters([], {})
        assert worker.model_runner.model.hf_to_vllm_mapper.apply_list(["a.q_proj"]) == ["b.q_proj"]
