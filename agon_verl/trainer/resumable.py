"""verl's trainer with a pair's checkpoints: committed in one rename, refused where they do not fit, resumed exactly.

The layout is in `pair/checkpoint.py`. Departures from stock verl: it writes the pointer in place, removes old
checkpoints while the new one is incomplete, and saves none of its own random state.

vLLM's sampler is not restored. A resumed run has the same state, roles and problems as an uninterrupted one, but its
completions are sampled anew.
"""

import logging
from pathlib import Path
from typing import Any

import ray
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

from agon_verl.actor.tensors import load, save
from agon_verl.errors import CheckpointError
from agon_verl.pair import checkpoint
from agon_verl.pair.checkpoint import (
    Manifest,
    check_fit,
    check_game,
    check_owner,
    game_settings,
    generation_settings,
    lora_settings,
    verifier_settings,
)
from agon_verl.rollout.watchdog import describe_error
from agon_verl.trainer.multi_adapter import MultiAdapterTrainer

logger = logging.getLogger(__name__)
# The metrics that a manifest keeps: how good the pair is, and how it plays.
MANIFEST_METRICS = ("val-", "health/", "pair/", "draft/", "challenge/")


class ResumableTrainer(MultiAdapterTrainer):
    """The only change is how state is saved and loaded."""

    saved_step = -1  # the last step that this process saved
    last_metrics: dict[str, float]  # by name, for the manifest

    def remember(self, metrics: dict[str, float]) -> None:
        """Keep metrics for the manifest. A validation follows the save of its step and is added to that manifest."""
        kept = {name: float(value) for name, value in metrics.items() if name.startswith(MANIFEST_METRICS)}
        self.last_metrics.update(kept)
        if self.saved_step == self.global_steps:
            try:
                self._manifest().write(self._folder(self.saved_step))
            except OSError as error:  # the checkpoint itself is complete
                logger.warning(
                    "agon-verl: the validation of step %d is not in its manifest: %s", self.saved_step, error
                )

    def _folder(self, step: int) -> Path:
        return Path(self.config.trainer.default_local_dir).absolute() / f"global_step_{step}"

    def extra_state(self) -> dict[str, Any]:
        """State of the trainer itself that continues from step to step."""
        return {"kl": self.kl_ctrl_in_reward.value} if self.config.algorithm.use_kl_in_reward else {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        if "kl" in state and self.config.algorithm.use_kl_in_reward:
            self.kl_ctrl_in_reward.value = state["kl"]

    @property
    def data_state(self) -> Any:
        """The position of the data loader at the end of the step to be saved."""
        return self.train_dataloader.state_dict()

    def _save_checkpoint(self) -> None:
        settings, step = self.config.trainer, self.global_steps
        root = self._folder(step).parent
        try:
            with checkpoint.committing(root, step) as folder:
                self.actor_rollout_wg.save_checkpoint(str(folder / "actor"))
                if len(list((folder / "actor").glob("rng_*.pt"))) != self.actor_rollout_wg.world_size:
                    raise CheckpointError("a node wrote its part to a folder of its own: use storage that all share")
                save(self.data_state, folder / "data.pt")
                rng, state = BaseCheckpointManager.get_rng_state(), self.extra_state()
                save({"rng": rng, "carried": state, "metrics": self.last_metrics}, folder / "trainer.pt")
                self._manifest().write(folder)
        except (OSError, RuntimeError, ray.exceptions.RayError) as error:
            before, cause = checkpoint.latest(root), getattr(error, "cause", None) or error
            fix = "make room or repair that storage, then"
            if isinstance(error, ray.exceptions.RayError) and not isinstance(cause, OSError | CheckpointError):
                cause = f"a training process failed ({describe_error(error)})"  # it died, or one that it waited for
                fix = "once the cause is removed,"
            raise CheckpointError(
                f"step {step} could not be saved to {root}: {cause}. "
                + (f"{before.name} is untouched: " if before else "There is no earlier checkpoint: ")
                + f"{fix} start the same command again"
            ) from error
        self.saved_step = step
        keep = 1 if settings.get("remove_previous_ckpt_in_save") else settings.get("max_actor_ckpt_to_keep")
        checkpoint.prune(root, newest=step, keep=keep)
        if hasattr(self, "checkpoint_callback"):  # verl 0.9.0 has none
            self.checkpoint_callback.on_save(
                trainer=self, global_step=step, checkpoint_dir=str(self._folder(step)), async_save=False
            )

    def _load_checkpoint(self) -> None:
        settings = self.config.trainer
        folder = checkpoint.to_resume(settings.resume_mode, settings.default_local_dir, settings.resume_from_path)
        self._base_hash = self.actor_rollout_wg.hash_of_base()[0]
        self.last_metrics = {}
        if folder is not None:
            check_fit(folder, self.config, self._base_hash)
            check_game(folder, self.config)
            self._check_content(folder)
        settings.resume_mode = "disable" if folder is None else "resume_path"
        settings.resume_from_path = None if folder is None else str(folder)
        super()._load_checkpoint()
        if folder is not None:
            state = load(folder / "trainer.pt")
            BaseCheckpointManager.load_rng_state(state["rng"])
            self.load_extra_state(state["carried"])
            self.last_metrics = state["metrics"]

    def _check_content(self, folder: Path) -> None:
        """Refuse a `data.pt` with which verl would run code: verl loads it without restrictions."""
        trust = self.config.agon.get("trust_checkpoint", False)
        check_owner(folder, trust)
        try:
            load(folder / "data.pt")
        except CheckpointError as error:
            if not trust:
                raise CheckpointError(
                    f"{error}. A data loader of your own? Then set agon.trust_checkpoint=true"
                ) from None

    def _manifest(self) -> Manifest:
        return Manifest(
            step=self.global_steps,
            base=self.config.actor_rollout_ref.model.path,
            base_hash=self._base_hash,
            lora=lora_settings(self.config),
            game=game_settings(self.config),
            versions=checkpoint.versions(),
            metrics=self.last_metrics,
            generation=generation_settings(self.config),
            verifier=verifier_settings(self.config),
        )
