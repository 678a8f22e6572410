"""The trainer's side of a sync: sends the adapters to vLLM and never waits for a vLLM that has failed.

verl's sender waits for an answer to each bucket without end. An exception where vLLM takes the adapters closes that
connection without an answer, and a process that dies gives none. The trainer's process would wait for ever, and with it
everything that it has learned. So while it waits, the sender asks the server whether vLLM has failed, and it does not
wait for ever.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
import zmq
from verl.workers.rollout.vllm_rollout import vllm_rollout
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

from agon_verl.errors import AgonError
from agon_verl.rollout.watchdog import describe_error
from agon_verl.rollout.wire import socket_of_run

ASK_SECONDS = 2.0
LONGEST_WAIT = 600.0  # seconds; adapters take a few


class SyncFailed(AgonError, RuntimeError):
    """vLLM did not take the adapters; the message has its error."""


class _CheckedSocket:
    """A ZeroMQ socket; while it waits for its peer it calls `check`, which raises if no peer will come or answer."""

    def __init__(self, socket: Any, check: Callable[[], None]) -> None:
        self._socket, self._check = socket, check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def send_pyobj(self, message: object) -> None:
        self._wait(zmq.POLLOUT)
        self._socket.send_pyobj(message)

    def recv(self) -> bytes:
        self._wait(zmq.POLLIN)
        return self._socket.recv()

    def _wait(self, event: int) -> None:
        begun = time.monotonic()
        while not self._socket.poll(ASK_SECONDS * 1000, event):
            self._check()
            if time.monotonic() - begun > LONGEST_WAIT:
                raise TimeoutError(f"vLLM runs, but does not read what was sent: no answer in {LONGEST_WAIT:.0f} s")


class CheckedSender(BucketedWeightSender):
    """The only change: a wait for the receiver ends if `check` raises."""

    def __init__(self, *args: Any, check: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._check = check

    def _init_socket(self) -> None:
        super()._init_socket()
        self.socket: Any = _CheckedSocket(self.socket, self._check)


class MultiAdapterRollout(vllm_rollout.ServerAdapter):
    """verl's handle on vLLM in a training process. A failure is kept here until the process may raise it.

    All ranks meet at a barrier after the transfer (engine_workers.py:822). A rank that raised before would leave the
    others waiting there, and then nobody could save.
    """

    failure: Exception | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zmq_handle: str = socket_of_run(self.zmq_handle, ray.get_runtime_context().get_node_id())
        # A patch of the one name by which verl creates a sender (vllm_rollout.py:245), in this process alone.
        vllm_rollout.BucketedWeightSender = partial(CheckedSender, check=self._check_server)

    async def resume(self, tags: list[str]) -> None:
        await self._keep_failure(super().resume, tags)

    async def update_weights(self, *args: Any, **kwargs: Any) -> None:
        await self._keep_failure(super().update_weights, *args, **kwargs)

    async def _keep_failure(self, method: Callable, *args: Any, **kwargs: Any) -> None:
        """Nothing more is sent after a failure: it ends the run."""
        if self.failure is None:
            try:
                await method(*args, **kwargs)
            except Exception as error:
                self.failure = error

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise SyncFailed(f"vLLM did not take the adapters ({describe_error(self.failure)})") from self.failure

    def _check_server(self) -> None:
        """Every rank asks, also those whose server belongs to another rank."""
        server = ray.get_actor(f"{self._get_server_name_prefix()}server_{self.replica_rank}_0")
        ray.get(server.check.remote())
