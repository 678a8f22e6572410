"""A trainer for tests: Agon's, which also records what each stream's update did to every part of the state.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES); the trainer registers itself as
`agon_probe` when verl's are imported. Environment variables say what it does:

PROBE_LOG        a file for the state before and after each update, up to step PROBE_LOG_STEPS
PROBE_DEAD_STEP  the step at which the challenge stream's groups count as dead
PROBE_METHODS    a JSON list: the settings of the method that each step plays
PROBE_BATCHES    a file for the rows that each step learns from
PROBE_STATE      a folder for the complete state right before the first step
PROBE_DIE_STEP   the step at which it kills its own process inside the save, when everything is written and nothing is
                 committed
PROBE_KILL_STEP  the step at which it kills vLLM's engine in the middle of the update; the watchdog gets time to act
PROBE_SERVED     a file for completions at temperature 0 by the vLLM server under each adapter, with their log-probs,
                 right before the second step
PROBE_NO_SYNC    a file: once it exists, vLLM fails to take the adapters
"""

import json
import os
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path

import wrapt

from tests.real.runs import kill_marked

NOTICED = 40  # seconds in which the watchdog sees that vLLM has died and does what it does then


def _register(_: object) -> None:
    import ray
    import torch
    import transfer_queue as tq
    from tensordict import NonTensorData, NonTensorStack, TensorDict
    from verl.trainer.ppo.v1 import register_trainer
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

    from agon_verl.game.roles import ADAPTERS
    from agon_verl.pair import checkpoint
    from agon_verl.rollout.wire import ADAPTER
    from agon_verl.trainer.batches import concat, select
    from agon_verl.trainer.step import AgonTrainer, Stream

    def label(batch, adapter: str) -> None:
        names = NonTensorStack(*[NonTensorData(adapter) for _ in batch.keys])
        fields = TensorDict({ADAPTER: names}, batch_size=len(batch.keys))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    @register_trainer("agon_probe")
    class ProbeTrainer(AgonTrainer):
        def on_init_end(self):
            super().on_init_end()
            if folder := os.environ.get("PROBE_STATE"):
                self.actor_rollout_wg.save_checkpoint(folder)
                state = {"rng": BaseCheckpointManager.get_rng_state(), "carried": self.extra_state()}
                torch.save(state, Path(folder, "trainer.pt"))  # first: asking a data loader draws a number
                torch.save(self.train_dataloader.state_dict(), Path(folder, "data.pt"))

        def _save_checkpoint(self):
            if self.global_steps == int(os.environ.get("PROBE_DIE_STEP", -1)):
                checkpoint.sync_folder = lambda _: os.kill(os.getpid(), signal.SIGKILL)
            super()._save_checkpoint()

        def _split(self, batch, who, metrics):
            streams = super()._split(batch, who, metrics)
            if "PROBE_BATCHES" in os.environ:
                self._write_batch(batch, streams)
            if self.global_steps == int(os.environ.get("PROBE_DEAD_STEP", -1)):
                draft, challenge = streams
                nothing = select(challenge.live, [])
                challenge = Stream("challenge", challenge.adapter, nothing, concat([challenge.live, challenge.dead]))
                streams = [draft, challenge]
            return streams

        def _write_batch(self, batch, streams):
            """What this step plays and learns from, as the trainer has it."""
            data = tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["rm_scores", ADAPTER]
            )
            scores = {k: float(s.sum()) for k, s in zip(batch.keys, data["rm_scores"].unbind(), strict=True)}
            record = {
                "step": self.global_steps,
                "roles": self._roles(),
                "scores": scores,
                "adapters": dict(zip(batch.keys, data[ADAPTER], strict=True)),
                "lengths": {key: tag["seq_len"] for key, tag in zip(batch.keys, batch.tags, strict=True)},
                "streams": [[s.name, s.adapter, s.live.keys, s.dead.keys] for s in streams],
            }
            with Path(os.environ["PROBE_BATCHES"]).open("a") as log:
                log.write(json.dumps(record) + "\n")

        def _write_served(self, file: Path):
            prompts = [self.tokenizer.encode(f"What is {number}+7?") for number in range(8)]
            asked = [(adapter, prompt) for adapter in ADAPTERS for prompt in prompts]
            (server,) = self.llm_server_manager.server_handles
            sampling = {"temperature": 0.0, "max_tokens": 16, "logprobs": True}
            outputs = ray.get(
                [
                    server.generate.remote(
                        prompt_ids=prompt, sampling_params=dict(sampling), request_id=uuid.uuid4().hex, adapter=adapter
                    )
                    for adapter, prompt in asked
                ]
            )
            with file.open("w") as log:
                for (adapter, prompt), output in zip(asked, outputs, strict=True):
                    record = {"adapter": adapter, "prompt": prompt, "response": output.token_ids}
                    log.write(json.dumps({**record, "log_probs": output.log_probs}) + "\n")

        def on_step_begin(self):
            if self.global_steps == 2 and "PROBE_SERVED" in os.environ:
                self._write_served(Path(os.environ["PROBE_SERVED"]))
            if methods := json.loads(os.environ.get("PROBE_METHODS", "[]")):
                self.game = replace(self.game, **methods[self.global_steps - 1])
                self.agent_loop_manager.game = self.game
            super().on_step_begin()

        def _update_actor(self, batch, metrics, *more):
            rows = super()._update_actor(batch, metrics, *more)
            if self.global_steps == int(os.environ.get("PROBE_KILL_STEP", -1)):
                if kill_marked(f"RAY_TMPDIR={os.environ['RAY_TMPDIR']}", "VLLM::EngineCore"):
                    time.sleep(NOTICED)
            return rows

        def _train_adapter(self, streams, metrics):
            last = int(os.environ.get("PROBE_LOG_STEPS", self.global_steps))
            if "PROBE_LOG" not in os.environ or self.global_steps > last:
                return super()._train_adapter(streams, metrics)
            (stream,) = streams
            record = {"step": self.global_steps, "stream": stream.name, "adapter": stream.adapter}
            record["live"] = len(stream.live.keys)
            if stream.live.keys:
                other = next(adapter for adapter in ADAPTERS if adapter != stream.adapter)
                record["swapped"] = self._gap(stream, other)
            record["before"] = self.actor_rollout_wg.fingerprint()
            rows = super()._train_adapter(streams, metrics)
            record["after"] = self.actor_rollout_wg.fingerprint()
            with Path(os.environ["PROBE_LOG"]).open("a") as log:
                log.write(json.dumps(record) + "\n")
            return rows

        def _gap(self, stream, adapter: str) -> dict:
            """The gap between rollout and training as it would be if these rows came from `adapter`."""
            metrics: dict = {}
            label(stream.live, adapter)
            self._compute_old_log_prob(select(stream.live, range(len(stream.live.keys))), metrics=metrics)
            label(stream.live, stream.adapter)
            return {"rollout_probs_diff_mean": metrics["training/rollout_probs_diff_mean"]}


def _break_sync(verl: object) -> None:
    """Inside vLLM's worker, where each adapter that arrives becomes one of these requests."""
    request = verl.TensorLoRARequest  # type: ignore[attr-defined]

    def request_or_fail(**kwargs):
        if Path(os.environ["PROBE_NO_SYNC"]).exists():
            raise ConnectionError("no adapters today")
        return request(**kwargs)

    verl.TensorLoRARequest = request_or_fail  # type: ignore[attr-defined]


wrapt.register_post_import_hook(_register, "verl.trainer.ppo.v1")
if "PROBE_NO_SYNC" in os.environ:
    wrapt.register_post_import_hook(_break_sync, "verl.utils.vllm")
