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
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agon_verl.errors import CheckpointError
from agon_verl.export.card import card, peft_code, reason, vllm_command
from agon_verl.export.merge import merge
from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.base import find_base
from agon_verl.pair.checkpoint import ADAPTER_FILE, MANIFEST, Manifest, find_checkpoint
from agon_verl.pair.trained import TrainedPair


def export(
    checkpoint: Path, out: Path, merged: bool = False, direction: str | None = None, base: str | None = None
) -> str:
    """Write all of `out`, or nothing if it fails. Returns a summary for the user."""
    out = out.absolute()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise CheckpointError(f"{out} exists and is not an empty folder: choose another one, or remove it")
    folder = find_checkpoint(checkpoint)
    manifest = Manifest.read(folder)
    base_model, weights = find_base(manifest.base, manifest.base_hash, base, needed=merged)
    pair = replace(TrainedPair.from_manifest(manifest, direction), base=base_model)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.parent / f".{out.name}.{os.getpid()}"
    try:
        scratch.mkdir()
        rank = max(write_adapter(folder / "actor" / a, scratch / a, base_model.path) for a in ADAPTERS)
        pair.write(scratch)
        (scratch / "README.md").write_text(card(pair, rank))
        if merged and weights is not None:
            for adapter in ADAPTERS:
                merge(weights, scratch / adapter, scratch / "merged" / adapter)
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _summary(pair, folder, out, merged, rank)


def write_adapter(source: Path, target: Path, base: str, half: bool = False) -> int:
    """Copy one adapter, with `half` in bfloat16, and set its config to inference over `base`. Returns its rank."""
    try:
        config = json.loads((source / "adapter_config.json").read_text())
        tensors = load_file(source / ADAPTER_FILE)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{source} is not a complete adapter: use another checkpoint ({error})") from None
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{source} has NaN or infinity in {name}: use an earlier checkpoint")
    target.mkdir()
    config.update(base_model_name_or_path=base, inference_mode=True)
    (target / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if half:
        save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, target / ADAPTER_FILE)
    else:
        shutil.copyfile(source / ADAPTER_FILE, target / ADAPTER_FILE)
    return int(config["r"])


def _summary(pair: TrainedPair, checkpoint: Path, out: Path, merged: bool, rank: int) -> str:
    base = pair.base
    contents = [*ADAPTERS, *(f"merged/{adapter}" for adapter in ADAPTERS if merged), MANIFEST, "README.md"]
    state = "has the checkpoint's hash" if base.checked else "is not on this machine, so its weights were not checked"
    return f"""\
wrote {out}: {", ".join(contents)}
  from     {checkpoint}
  base     {base.path} {state}
  cascade  {pair.cascade.direction or "not chosen"}: {reason(pair.cascade)}

PEFT:
{peft_code(base.path, str(out))}

vLLM:
{vllm_command(base.path, rank, str(out))}"""
