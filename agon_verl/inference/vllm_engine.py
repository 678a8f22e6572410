"""One vLLM engine for a base and its adapters: a chat in, a completion out, complete or as a stream.

Requests of all players share one batch; vLLM's scheduler and prefix cache do the rest. A caller that is cancelled takes
its request out of the engine.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from agon_verl.game.roles import BASE
from agon_verl.inference.chat import Chat, Messages, StreamDecoder
from agon_verl.inference.players import InferenceError, Players, Sampling
from agon_verl.pair.trained import vllm_rank

POLL_SECONDS = 1.0  # between two checks of an engine that has not answered yet
DIED = "the vLLM engine has died: its own error is above"


@dataclass(frozen=True, slots=True)
class Completion:
    """`text` keeps the reasoning tags and no other special token; `ids` end with the end of turn. `finish`: stop or
    length; `opened`: the chat template had opened the reasoning."""

    text: str
    ids: tuple[int, ...]
    prompt_tokens: int
    finish: str
    opened: bool


class Engine(Chat):
    """Starts vLLM, which takes a minute or two; `close` ends its process. `options` are vLLM's engine arguments.

    `others` are further pairs over the same base that `beside` will play on the same vLLM.
    """

    def __init__(self, players: Players, others: Sequence[Players] = (), **options: Any) -> None:
        super().__init__(players)
        from agon_verl.cpu.platform import ONE_PROCESS, cpu_only, vllm_environment

        on_cpu = cpu_only()
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        for name, value in vllm_environment().items() if on_cpu else ():
            os.environ.setdefault(name, value)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        every = [players, *others]
        longest = max(each.max_prompt + each.sampling.max_tokens for each in every)
        settings: dict[str, Any] = {
            "model": players.base,
            "max_model_len": longest,
            "enable_prefix_caching": True,
            "disable_log_stats": True,
        }
        if on_cpu:
            settings.update(dtype="float32", enforce_eager=True, worker_extension_cls="agon_verl.cpu.lora.LoraOnCpu")
            if options.get("tensor_parallel_size", 1) == options.get("pipeline_parallel_size", 1) == 1:
                settings.update(distributed_executor_backend=ONE_PROCESS)
            # A prompt in chunks makes vLLM reset the generator of a seeded request, and the CPU's has no offset.
            settings.update(enable_chunked_prefill=False, max_num_batched_tokens=max(4096, longest))
        if most := max(len(each.adapters) for each in every):  # vLLM exchanges adapters where there are more
            rank = vllm_rank(max(each.rank for each in every))
            settings.update(enable_lora=True, max_loras=most, max_lora_rank=rank)
        try:  # batches as large as those of vLLM's own server: 1,024 sequences on a large GPU, where an engine has 128
            arguments = AsyncEngineArgs(**{**settings, **options})
            self._llm = AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.OPENAI_API_SERVER)
        except (TypeError, ValueError, OSError) as error:
            raise InferenceError(f"vLLM does not start with these settings: {_first_line(error)}") from None
        self._numbers, self._adapter_numbers = count(), count(1)
        self._loras = self._requests(players)

    def _requests(self, players: Players) -> dict[str, Any]:
        """vLLM's prefix cache tells adapters apart by name: each adapter has a name of its own."""
        from vllm.lora.request import LoRARequest

        numbered = zip(players.adapters.items(), self._adapter_numbers, strict=False)
        return {name: LoRARequest(f"{name}-{number}", number, str(path)) for (name, path), number in numbered}

    def beside(self, players: Players) -> "Engine":
        """Another pair over the same base, on the same vLLM. To close one is to close both."""
        hashes = [each.base_hash for each in (self.players, players)]
        same = hashes[0] == hashes[1] if all(hashes) else self.players.base == players.base  # not downloaded: no hash
        if not same:
            raise InferenceError(f"{players.target} has another base than {self.players.target}: evaluate it by itself")
        engine = copy(self)
        Chat.__init__(engine, players)
        engine._loras = self._requests(players)
        return engine

    def close(self) -> None:
        self._llm.shutdown()

    @property
    def alive(self) -> bool:
        return not self._llm.errored

    @property
    def unfinished(self) -> int:
        """The number of requests inside vLLM."""
        return int(self._llm.output_processor.get_num_unfinished_requests())

    async def generate(self, messages: Messages, player: str = BASE, sampling: Sampling | None = None) -> Completion:
        async for part in self.stream(messages, player, sampling, pieces=False):
            if isinstance(part, Completion):
                return part
        raise InferenceError("vLLM ended a request without a completion")

    async def stream(
        self,
        messages: Messages,
        player: str = BASE,
        sampling: Sampling | None = None,
        enough: Callable[[], bool] = lambda: False,
        pieces: bool = True,
    ) -> AsyncGenerator[str | Completion, None]:
        """Pieces of text, then the completion. It ends early if `enough` returns true after a piece."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        if player != BASE and player not in self._loras:
            raise InferenceError(f"player {player!r} does not exist: use one of {', '.join(self.players.names)}")
        prompt = await asyncio.to_thread(self.prompt_ids, messages)
        if len(prompt) > self.players.max_prompt:
            raise InferenceError(f"the prompt has {len(prompt)} tokens, more than the limit {self.players.max_prompt}")
        parameters = SamplingParams(
            **asdict(sampling or self.players.sampling),
            detokenize=False,  # `self.reader` does it and keeps the tags
            output_kind=RequestOutputKind.DELTA if pieces else RequestOutputKind.FINAL_ONLY,
        )
        ids: list[int] = []
        decoder, finish = StreamDecoder(self.reader), ""
        requests = self._llm.generate(
            {"prompt_token_ids": prompt},
            parameters,
            request_id=f"{player}-{next(self._numbers)}",
            lora_request=self._loras.get(player),
        )
        try:
            async with aclosing(self._outputs(requests)) as outputs:  # closed early, the request leaves vLLM at once
                async for result in outputs:
                    (output,) = result.outputs
                    ids += output.token_ids
                    finish = output.finish_reason or finish
                    if pieces and (piece := decoder.new_text(ids, last=bool(finish))):
                        yield piece
                        if enough():
                            finish = "stop"
                            break
        except EngineDeadError:
            raise InferenceError(DIED) from None
        if finish not in ("stop", "length"):
            raise InferenceError(f"vLLM ended a request with the finish reason {finish!r}")
        text = self.reader.decode(ids)
        yield Completion(text, tuple(ids), len(prompt), finish, self.reader.opened_by(prompt))

    async def _outputs(self, requests: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """vLLM reports the death of its engine to requests that have had an output; the others would wait for ever."""
        async with aclosing(requests):
            first = asyncio.ensure_future(anext(requests))
            try:
                while not (await asyncio.wait({first}, timeout=POLL_SECONDS))[0]:
                    if not self.alive:
                        raise InferenceError(DIED)
                yield first.result()
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
            async for output in requests:
                yield output


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "validation error" not in line), type(error).__name__)
