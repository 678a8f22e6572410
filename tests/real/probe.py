"""A trainer for tests: Agon's, that also writes down what each stream's update did to every part of the state.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES); the trainer registers itself as
`agon_probe` once Agon's own is there. It changes nothing in the game but at step `PROBE_DEAD_STEP`, where it declares
the challenge stream's groups dead. It can also write all of the state to `PROBE_STATE` right before step 1, and kill
its own process inside the save of step `PROBE_DIE_STEP`, when everything is written and nothing is committed.
"""

import json
import os
import signal
from pathlib import Path

import wrapt


def _register(_: object) -> None:
    import torch
    import transfer_queue as tq
    from tensordict import NonTensorData, NonTensorStack, TensorDict
    from verl.trainer.ppo.v1 import register_trainer
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

    from agon_verl import checkpoint
    from agon_verl.batches import concat, select
    from agon_verl.game.roles import ADAPTERS
    from agon_verl.trainer import AgonTrainer, Stream
    from agon_verl.wire import ADAPTER

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
                carried = {"rng": BaseCheckpointManager.get_rng_state(), "carried": self.carried()}
                torch.save(carried, Path(folder, "trainer.pt"))  # first: asking a data loader draws a number
                torch.save(self.train_dataloader.state_dict(), Path(folder, "data.pt"))

        def _save_checkpoint(self):
            if self.global_steps == int(os.environ.get("PROBE_DIE_STEP", -1)):
                checkpoint._flush = lambda _: os.kill(os.getpid(), signal.SIGKILL)
            super()._save_checkpoint()

        def _streams(self, batch, who, metrics):
            draft, challenge = super()._streams(batch, who, metrics)
            if self.global_steps == int(os.environ.get("PROBE_DEAD_STEP", -1)):
                nothing = select(challenge.live, [])
                challenge = Stream("challenge", challenge.adapter, nothing, concat([challenge.live, challenge.dead]))
            return [draft, challenge]

        def _train_stream(self, stream, metrics):
            if "PROBE_LOG" not in os.environ:
                return super()._train_stream(stream, metrics)
            record = {"step": self.global_steps, "stream": stream.name, "adapter": stream.adapter}
            record["live"] = len(stream.live.keys)
            if stream.live.keys:
                other = next(adapter for adapter in ADAPTERS if adapter != stream.adapter)
                record["swapped"] = self._gap(stream, other)
            record["before"] = self.actor_rollout_wg.fingerprint()
            rows = super()._train_stream(stream, metrics)
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


wrapt.register_post_import_hook(_register, "agon_verl.trainer")
