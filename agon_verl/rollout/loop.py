"""One session is one pair: the drafter's adapter solves the plain prompt, then the challenger's reads it and answers.

A session returns [draft, challenge], so verl stores them as `{uid}_{session}_0` and `…_1`: the last part of a key is
the stream (`row_key.py`). There is no barrier between the stages: each challenge starts as soon as its own draft ends,
and one vLLM batch contains drafts of one adapter and challenges of the other.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import asdict, replace
from typing import Any

import ray
import torch
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tensordict import NonTensorData, NonTensorStack
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils import tensordict_utils as tu
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder
from verl.workers.rollout.llm_server import LLMServerClient

from agon_verl.config import AgonConfig
from agon_verl.game import transcript
from agon_verl.game.attempt import NO_ATTEMPT, Attempt, attempt_of, nothing_to_read
from agon_verl.game.control_tokens import ControlTokens
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.rewards import Outcome, challenge_reward, standalone_reward
from agon_verl.game.roles import ADAPTERS, BASE, Roles
from agon_verl.game.tags import TagKeeper
from agon_verl.game.transcript import ENDED, OPENED
from agon_verl.game.withhold import withhold_answer
from agon_verl.health.copying import copied_share
from agon_verl.health.health import COPIED
from agon_verl.health.pair_statistics import Pair
from agon_verl.rollout.watchdog import describe_error
from agon_verl.rollout.wire import ADAPTER, PROBLEM, past_of
from reward_fns.mathematics.restated import comparison


class PairOutput(AgentLoopOutput):
    """One side of a pair. verl copies the last output's reward onto the earlier ones; here each side keeps its own."""

    own_score: float | None = None
    own_info: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        fields = super().as_dict()
        score, info = fields.pop("own_score", None), fields.pop("own_info", None)
        if score is not None:
            fields["rm_scores"] = torch.zeros_like(fields["response_mask"], dtype=torch.float32)
            fields["rm_scores"][-1] = score
            fields["extra_fields"]["reward_extra_info"] = info
        fields[ADAPTER] = fields["extra_fields"][ADAPTER]
        return fields


_adapter: ContextVar[str] = ContextVar("adapter")  # of the stage that a task plays; two may run concurrently
_publish: ContextVar[Callable[[PairOutput], Awaitable[None]] | None] = ContextVar("publish", default=None)


class _Client:
    """verl's server client, which adds the adapter of the stage to each request."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        return await self._client.generate(*args, adapter=_adapter.get(), **kwargs)


@register("agon")
class AgonAgentLoop(SingleTurnAgentLoop):
    """Draft, withhold, challenge; each stage is verl's single turn under one adapter."""

    continuous_token_builder: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.game = AgonConfig.read(self.config)
        if self.continuous_token_builder is None:  # in verl 0.9.0 it is optional, and a prompt is the plain template
            self.continuous_token_builder = ContinuousTokenBuilder(
                self.tokenizer, chat_template_kwargs=self.apply_chat_template_kwargs
            )
        self.server_manager: Any = _Client(self.server_manager)
        self._reader = TagKeeper(self.tokenizer, self.game.reasoning_tags)
        self._control = ControlTokens(self.tokenizer, self.game.reasoning_tags)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[PairOutput]:
        problem = list(kwargs["raw_prompt"])
        challenge_sampling = {**sampling_params, **kwargs["challenge_sampling"]}
        if kwargs["method"]["reads"] == "nothing":
            attempt = NO_ATTEMPT
            draft, challenge = await asyncio.gather(
                self._stage(kwargs["drafter"], problem, sampling_params, kwargs),
                self._stage(kwargs["challenger"], problem, challenge_sampling, kwargs),
            )
        else:
            draft = await self._stage(kwargs["drafter"], problem, sampling_params, kwargs)
            publish = _publish.get()
            published = asyncio.ensure_future(publish(draft)) if publish else None
            try:
                attempt = await self.loop.run_in_executor(None, self._attempt, problem, draft)
                messages = challenge_messages(problem, attempt.shown)
                challenge = await self._stage(kwargs["challenger"], messages, challenge_sampling, kwargs)
            finally:
                if published:  # nothing may be stored after the session has ended
                    await asyncio.wait([published])
            if published:
                published.result()
        challenge.extra_fields["attempt"] = asdict(attempt)
        challenge.extra_fields["copied"] = await self.loop.run_in_executor(
            None, self._copied, problem, attempt, challenge
        )
        challenge.extra_fields["draft_span"] = draft.extra_fields["span"]
        return [draft, challenge]

    async def _stage(
        self, adapter: str, messages: list[dict[str, Any]], sampling: dict[str, Any], kwargs: dict[str, Any]
    ) -> PairOutput:
        _adapter.set(adapter)
        started = time.time()
        output = await super().run(dict(sampling), **{**kwargs, "raw_prompt": messages})
        output.extra_fields["span"] = (started, time.time())
        # Extra fields reach the reward function in `extra_info`: it receives a completion, never its prompt.
        output.extra_fields[OPENED] = self._reader.opened_by(output.prompt_ids)
        output.extra_fields[ENDED] = self._ended(output.response_ids)
        return PairOutput(**dict(output))

    def _ended(self, response: list[int]) -> bool:
        """Whether the model ended its completion. verl reports one stop reason for this and for the token limit."""
        return len(response) < self.response_length or response[-1] == self.tokenizer.eos_token_id

    def _attempt(self, problem: list[dict[str, Any]], draft: PairOutput) -> Attempt:
        def excess(summary: str) -> int:
            messages = challenge_messages(problem, summary)
            return len(self.continuous_token_builder.build_initial_tokens(messages)) - self.prompt_length

        text, same = problem[-1]["content"], comparison(self.game.withhold)
        return attempt_of(self._read(draft), self.game.domain, self._control, self._count, excess, text, same)

    def _copied(self, problem: list[dict[str, Any]], attempt: Attempt, challenge: PairOutput) -> float:
        """The copied share of the summaries, both without their answer: reasoning may quote an attempt to refute it."""
        read = self._read(challenge)
        same = comparison(self.game.withhold)
        own = withhold_answer(read.summary or "", self.game.domain, read.answer, same, problem[-1]["content"])
        return copied_share(attempt.shown, own)

    def _read(self, output: PairOutput) -> transcript.Transcript:
        completion = self._reader.decode(output.response_ids)
        fields = output.extra_fields
        return transcript.read(completion, opened=fields[OPENED], ended=fields[ENDED], tags=self.game.reasoning_tags)

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))


# verl's class is a Ray actor already; its plain class is what can be subclassed.
class AgonAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):
    """Changes the reward: both sides are verified, then the challenge is compared with the draft.

    In a streamed step a draft is verified and stored when it ends, so that its group can be trained on early; it is
    stored again with its challenge.

    A worker starts before vLLM and the reward workers, and gets their handles later, with `connect`.
    """

    llm_client: LLMServerClient

    def __init__(self, config: Any) -> None:
        super().__init__(config, llm_client=LLMServerClient(config))
        self.game = AgonConfig.read(config)
        self._failures: list[str] = []

    async def connect(self, llm_client: LLMServerClient, reward_loop_worker_handles: list[ActorHandle] | None) -> None:
        if hasattr(self.llm_client, "tokenizer"):  # set by verl where traces contain text
            llm_client.tokenizer = self.tokenizer
        self.llm_client, self.reward_loop_worker_handles = llm_client, reward_loop_worker_handles

    async def ping(self) -> None:
        """For the watchdog: an answer means that the worker is alive."""

    async def take_failures(self) -> list[str]:
        """Why sessions failed since the last call, one sentence each."""
        failures, self._failures = self._failures, []
        return failures

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any) -> Any:
        if kwargs["streamed"]:
            row = {name: value for name, value in kwargs.items() if name not in ("agent_name", "trace")}
            _publish.set(lambda draft: self._agent_loop_postprocess([draft], False, **row))
        try:
            return await super()._run_agent_loop(sampling_params, trajectory, **kwargs)
        except Exception as error:  # verl logs it and counts the session as failed; the trainer reports the reason
            self._failures.append(describe_error(error))
            raise

    async def _verify(self, output: PairOutput, kwargs: dict[str, Any]) -> Outcome:
        try:
            await asyncio.wait_for(super()._compute_score([output], kwargs), self.game.reward_timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(
                f"a reward took longer than agon.reward_timeout={self.game.reward_timeout} seconds"
            ) from None
        return _outcome(output)

    async def _compute_score(self, outputs: list[PairOutput], kwargs: dict[str, Any]) -> None:
        game = replace(self.game, **kwargs["method"])
        draft, *challenges = outputs
        if draft.own_score is None:
            scores = await asyncio.gather(*(self._verify(output, kwargs) for output in outputs))
            _set_reward(draft, standalone_reward(scores[0], game.format_weight), {})
        else:
            scores = [_outcome(draft), *[await self._verify(output, kwargs) for output in challenges]]
        if not challenges:
            return
        (challenge,), (a, b) = challenges, scores
        draft_reward = standalone_reward(a, game.format_weight)
        reward = challenge_reward(
            game.reward, b, a, format_weight=game.format_weight, tiebreak_weight=game.tiebreak_weight
        )
        attempt = challenge.extra_fields["attempt"]
        _set_reward(
            challenge,
            reward,
            # On the last output of a session, where verl's validation looks for numbers to average.
            {
                "draft_acc": a.correct,
                "converted": b.correct * (1 - a.correct),
                "damaged": (1 - b.correct) * a.correct,
                "copied": float(challenge.extra_fields["copied"] >= COPIED),
                "leaked": float(attempt["leaked"]),
                "stated": float(attempt["stated"]),
                PROBLEM: _digest(kwargs["raw_prompt"]),
            },
        )
        pair = Pair(
            group=kwargs["uid"],
            draft=a,
            challenge=b,
            draft_reward=draft_reward,
            challenge_reward=reward,
            leaked=attempt["leaked"],
            stated=attempt["stated"],
            summary_cut=attempt["cut"],
            no_summary=nothing_to_read(attempt["shown"]),
            answer_only=bool(attempt["shown"]) and nothing_to_read(attempt["shown"]),
            draft_prompt_tokens=len(draft.prompt_ids),
            challenge_prompt_tokens=len(challenge.prompt_ids),
            opponent_tokens=attempt["tokens"],
            copied=challenge.extra_fields["copied"],
            same_answer=_same_answer(draft, challenge),
            guest=kwargs["drafter"] not in ADAPTERS,
            ended=draft.extra_fields[ENDED],
            reasoned=attempt["reasoned"],
        )
        challenge.extra_fields["pair"] = asdict(pair)


def _outcome(output: PairOutput) -> Outcome:
    info = output.extra_fields["reward_extra_info"]
    if "acc" not in info:
        raise KeyError("the reward function must return `acc`, the correctness c in [0, 1], beside `score`")
    return Outcome(correct=float(info["acc"]), format=float(info.get("format", 0.0)), length=len(output.response_ids))


def _same_answer(draft: PairOutput, challenge: PairOutput) -> bool | None:
    """Whether the verifier extracted the same answer from both; None if it returns none."""
    answers = [output.extra_fields["reward_extra_info"].get("pred") for output in (draft, challenge)]
    return answers[0] == answers[1] if all(answers) else None


def _digest(messages: Any) -> str:
    """Identifies a problem across the passes of a validation, whose order is shuffled."""
    return hashlib.sha256(repr(list(messages)).encode()).hexdigest()[:16]


def _set_reward(output: PairOutput, score: float, more: dict[str, Any]) -> None:
    info = {**output.extra_fields["reward_extra_info"], **more}
    output.reward_score = output.own_score = score
    output.own_info = output.extra_fields["reward_extra_info"] = info


def start_workers(config: Any) -> list[ActorHandle]:
    """The agent loop workers of this run. The first call starts them, without waiting until they are ready."""
    actor, job = ray.remote(AgonAgentLoopWorker), ray.get_runtime_context().get_job_id()
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    return [
        actor.options(
            name=f"agent_loop_worker_{number}_{job}",
            get_if_exists=True,
            scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True),
        ).remote(config)
        for number in range(config.actor_rollout_ref.rollout.agent.num_workers)
    ]


class AgonAgentLoopManager(AgentLoopManagerTQ):
    """Sends every session its drafter and challenger; the trainer sets `roles` and `streamed` before a batch."""

    roles: Roles
    streamed = False  # whether drafts are stored when they end

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.game = AgonConfig.read(self.config)

    async def _init_agent_loop_workers(self) -> None:
        self.agent_loop_workers = start_workers(self.config)
        handles = self.llm_client, self.reward_loop_worker_handles
        await asyncio.gather(*(worker.connect.remote(*handles) for worker in self.agent_loop_workers))

    def generate_sequences(self, prompts: Any) -> None:
        validating = "validate" in prompts and prompts["validate"]
        guests = set() if validating else self._guests(len(prompts), prompts["global_steps"])
        guest = BASE if self.game.opponent.source == BASE else past_of(self.roles.drafter)
        drafters = [guest if row in guests else self.roles.drafter for row in range(len(prompts))]
        prompts["drafter"] = NonTensorStack(*map(NonTensorData, drafters))
        tu.assign_non_tensor_data(prompts, "challenger", self.roles.challenger)
        method = {**self.game.method, "reads": "summary", "rival": "own"} if validating else self.game.method
        tu.assign_non_tensor_data(prompts, "method", method)
        tu.assign_non_tensor_data(prompts, "streamed", self.streamed and not validating)
        tu.assign_non_tensor_data(
            prompts, "challenge_sampling", {} if validating else dict(self.game.challenge_sampling)
        )
        super().generate_sequences(prompts)

    def _guests(self, problems: int, step: int) -> set[int]:
        """The problems whose challengers read drafts of another opponent; a resumed run chooses the same ones."""
        chance = random.Random(f"{self.game.seed}/{step}")
        return set(chance.sample(range(problems), round(self.game.opponent.share * problems)))

    def take_failures(self) -> list[str]:
        """Why sessions failed since the last call, from all workers."""
        per_worker = ray.get([worker.take_failures.remote() for worker in self.agent_loop_workers], timeout=60)
        return [failure for failures in per_worker for failure in failures]
