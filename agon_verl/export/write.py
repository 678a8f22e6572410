"""A trained pair, written for use without verl.

OUT/
  A, B               PEFT folders, which PEFT and `vllm serve --lora-modules A=OUT/A B=OUT/B` load directly
  pair.json          the base, and what the cascade needs: prompts, tags, sampling, direction
  README.md          how to play the cascade, and how to load one adapter alone
  merged/A, merged/B full models (--merged)
"""

import json
import os
import shutil
from pathlib import Path

from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file

from agon_verl.config import AgonConfig
from agon_verl.export import ExportError
from agon_verl.export.card import card, peft_code, reason, vllm_command
from agon_verl.export.merge import merge
from agon_verl.game.domains import DOMAINS
from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.base import Base, find_base
from agon_verl.pair.checkpoint import ADAPTER_FILE, MANIFEST, Manifest, find_checkpoint
from agon_verl.pair.direction import choose, finite
from agon_verl.pair.exported import ExportedPair


def export(
    checkpoint: Path, out: Path, merged: bool = False, direction: str | None = None, base: str | None = None
) -> str:
    """Write all of `out`, or nothing if it fails. Returns a summary for the user."""
    out = out.absolute()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ExportError(f"{out} exists and is not an empty folder: choose another one, or remove it")
    folder = find_checkpoint(checkpoint)
    manifest = Manifest.read(folder)
    base_model, weights = find_base(manifest.base, manifest.base_hash, base, needed=merged)
    record = describe(manifest, base_model, direction)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.parent / f".{out.name}.{os.getpid()}"
    try:
        scratch.mkdir()
        rank = max(_write_adapter(folder / "actor" / a, scratch / a, base_model.path) for a in ADAPTERS)
        record.write(scratch)
        (scratch / "README.md").write_text(card(record, rank))
        if merged and weights is not None:
            for adapter in ADAPTERS:
                merge(weights, scratch / adapter, scratch / "merged" / adapter)
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _summary(record, folder, out, merged, rank)


def describe(manifest: Manifest, base: Base, direction: str | None) -> ExportedPair:
    metrics = finite(manifest.metrics)
    game = AgonConfig.read(OmegaConf.create({"agon": dict(manifest.game)}))
    opening, closing = game.reasoning_tags
    return ExportedPair(
        step=manifest.step,
        base=base,
        lora=manifest.lora,
        cascade=choose(metrics, direction),
        how=[
            "The drafter answers the problem's own messages, the last of which is the user's.",
            f"The summary of its draft is the text after the last {closing}, up to the next {opening} if there is one. "
            f"Without any {closing} it is the complete draft, or nothing if the reasoning was opened, by the draft or "
            "by the chat template at the end of the prompt.",
            f"In the summary prompts.withheld replaces the final answer: {DOMAINS[game.domain].withheld_parts}. "
            "agon_verl/game/domains has the exact rule, in plain Python.",
            "The challenger answers the same messages, with prompts.challenge in place of the last one: {problem} is "
            "its text and {attempt} the summary, stripped, with </attempt> written as </ attempt>, or "
            "prompts.no_summary if the summary is blank.",
            "All messages go through the base's chat template, or generation.custom_chat_template, with "
            "generation.apply_chat_template_kwargs. Keep the reasoning tags when decoding: they may be special tokens.",
        ],
        prompts=manifest.prompts,
        generation=manifest.generation,
        reasoning_tags=game.reasoning_tags,
        domain=game.domain,
        rewards={
            "stack": game.reward,
            "format_weight": game.format_weight,
            "tiebreak_weight": game.tiebreak_weight,
        },
        versions=manifest.versions,
        metrics=metrics,
        verifier=manifest.verifier,
        players=game.players,
    )


def _write_adapter(source: Path, target: Path, base: str) -> int:
    """Copy one adapter and set its config to inference over `base`. Returns its rank."""
    try:
        config = json.loads((source / "adapter_config.json").read_text())
        tensors = load_file(source / ADAPTER_FILE)
    except (OSError, ValueError, SafetensorError) as error:
        raise ExportError(f"{source} is not a complete adapter: use another checkpoint ({error})") from None
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ExportError(f"{source} has NaN or infinity in {name}: use an earlier checkpoint")
    target.mkdir()
    config.update(base_model_name_or_path=base, inference_mode=True)
    (target / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    shutil.copyfile(source / ADAPTER_FILE, target / ADAPTER_FILE)
    return int(config["r"])


def _summary(record: ExportedPair, checkpoint: Path, out: Path, merged: bool, rank: int) -> str:
    base = record.base
    contents = [*ADAPTERS, *(f"merged/{adapter}" for adapter in ADAPTERS if merged), MANIFEST, "README.md"]
    state = "has the checkpoint's hash" if base.checked else "is not on this machine, so its weights were not checked"
    return f"""\
wrote {out}: {", ".join(contents)}
  from     {checkpoint}
  base     {base.path} {state}
  cascade  {record.cascade.direction or "not chosen"}: {reason(record.cascade)}

PEFT:
{peft_code(base.path, str(out))}

vLLM:
{vllm_command(base.path, rank, str(out))}"""
