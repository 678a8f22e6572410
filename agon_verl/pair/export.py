r"""`python -m agon_verl.export CHECKPOINT OUT`: a trained pair, for use without this package and without verl.

    OUT/
      A, B               PEFT folders, which PEFT and `vllm serve --lora-modules A=OUT/A B=OUT/B` load as they are
      pair.json          what the pair belongs to, and what its cascade takes: prompts, tags, direction
      README.md          how to load both and run the cascade
      merged/A, merged/B full models (--merged)

The cascade's direction is the one with the higher validation accuracy, unless `--direction` gives it. The base is
checked against the hash that the checkpoint holds: an adapter over other weights loads without a word and is wrong. A
base that is not on this machine cannot be checked, which the output says.

A merge computes base + change in float32 and rounds once, to the base's own type. In bfloat16 that leaves 8 bits of a
weight, which a small change may not survive: the adapters are what was trained, and the merged models are near to it.
"""

import argparse
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file

from agon_verl.config import AgonConfig
from agon_verl.errors import AgonError, CheckpointError, ConfigError
from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.base import base_folder, hash_of_base
from agon_verl.pair.checkpoint import ADAPTER_FILE, MANIFEST, Manifest, latest
from agon_verl.program import program_name

FORMAT = 1
DIRECTIONS = ("A_to_B", "B_to_A")
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what --max-lora-rank may be

_ACCURACY = re.compile(r"val-core/(?P<test>.+)/(?P<direction>A_to_B|B_to_A)/(?P<name>acc/mean@\d+)")
_ANSWERS = {
    "math": "<answer> blocks, boxes, what follows 'the answer is', 'Answer:' and the like, and '#### 72'",
    "code": "<answer> blocks, the last fenced program and its copies",
}


class ExportError(AgonError, RuntimeError):
    """One sentence: what is in the way, and what to do."""


@dataclass(frozen=True)
class Base:
    """The frozen model; `checked` tells whether its weights were found and have the hash of the checkpoint's."""

    path: str
    hash: str
    checked: bool


@dataclass(frozen=True)
class Cascade:
    """Who drafts and who answers, and why; `accuracy` is the validation's, a mean over its data sources."""

    direction: str | None
    why: str
    accuracy: Mapping[str, float] | None


@dataclass(frozen=True)
class Export:
    """The `pair.json` of an export. `how` says in words how the rest makes a cascade."""

    step: int
    base: Base
    lora: Mapping[str, Any]
    cascade: Cascade
    how: Sequence[str]
    prompts: Mapping[str, str]
    reasoning_tags: Sequence[str]
    generation: Mapping[str, Any]
    domain: str
    rewards: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: Mapping[str, float]
    verifier: Mapping[str, Any]
    players: str  # "one": B was never trained


def export(
    checkpoint: Path, out: Path, merged: bool = False, direction: str | None = None, base: str | None = None
) -> str:
    """Write `out`, whole or not at all, and return what to tell the user."""
    out = out.absolute()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ExportError(f"{out} exists and is not an empty folder: give another one, or remove it")
    folder = find(checkpoint)
    manifest = Manifest.read(folder)
    found, weights = find_base(manifest.base, manifest.base_hash, base, needed=merged)
    record = describe(manifest, found, direction)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.parent / f".{out.name}.{os.getpid()}"
    try:
        scratch.mkdir()
        rank = max(_write_adapter(folder / "actor" / a, scratch / a, found.path) for a in ADAPTERS)
        (scratch / MANIFEST).write_text(json.dumps({"format": FORMAT, **asdict(record)}, indent=1) + "\n")
        (scratch / "README.md").write_text(_card(record, rank))
        if merged and weights is not None:
            for adapter in ADAPTERS:
                _merge(weights, scratch / adapter, scratch / "merged" / adapter)
        scratch.rename(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _report(record, folder, out, merged, rank)


def find(path: Path) -> Path:
    """A checkpoint, given itself or the run's folder that holds it."""
    if not path.is_dir():
        raise ExportError(f"{path} is not a folder: give a folder global_step_<n>, or the run's that holds them")
    if (path / MANIFEST).is_file() or path.name.startswith("global_step_"):
        return path
    newest = latest(path)
    if newest is None:
        raise ExportError(f"{path} holds no checkpoint of a pair: give a folder global_step_<n>")
    return newest


def find_base(path: str, base_hash: str, given: str | None, needed: bool) -> tuple[Base, Path | None]:
    """The base and the folder of its weights; without the latter where it is not on this machine and need not be."""
    asked = given or path
    try:
        folder = base_folder(asked)
        have = hash_of_base(folder)
    except (OSError, ValueError, CheckpointError):  # huggingface_hub's own errors are among these
        if given is None and not needed:
            return Base(asked, base_hash, checked=False), None
        raise ExportError(f"{asked} holds no weights that can be read: give the base's folder with --base") from None
    if have != base_hash:
        raise ExportError(
            f"{asked} is not the base that the pair was trained on: its weights' hash is {have[:12]}, the checkpoint's "
            f"{base_hash[:12]}; give the right folder with --base"
        )
    local = Path(asked).expanduser()
    return Base(str(local.absolute()) if local.is_dir() else asked, have, checked=True), folder


def choose(metrics: Mapping[str, float], given: str | None) -> Cascade:
    """The direction of the cascade. Data sources weigh the same, and count where both directions were measured."""
    measured: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in metrics.items():
        if match := _ACCURACY.fullmatch(name):
            measured.setdefault((match["test"], match["name"]), {})[match["direction"]] = value
    both = [values for values in measured.values() if len(values) == len(DIRECTIONS)]
    accuracy = {d: sum(values[d] for values in both) / len(both) for d in DIRECTIONS} if both else None
    if given is not None:
        return Cascade(given, "given", accuracy)
    if accuracy is None:
        return Cascade(None, "the checkpoint holds no validation accuracy of both directions", None)
    a, b = (accuracy[d] for d in DIRECTIONS)
    why = "the higher validation accuracy" if a != b else "the first, for the validation accuracies are equal"
    return Cascade(DIRECTIONS[0] if a >= b else DIRECTIONS[1], why, accuracy)


def finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    """JSON has no NaN, and what it could not hold of a run's metrics is a string there."""
    return {name: v for name, v in metrics.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def describe(manifest: Manifest, base: Base, direction: str | None) -> Export:
    metrics = finite(manifest.metrics)
    game = AgonConfig.read(OmegaConf.create({"agon": dict(manifest.game)}))
    opening, closing = game.reasoning_tags
    return Export(
        step=manifest.step,
        base=base,
        lora=manifest.lora,
        cascade=choose(metrics, direction),
        how=[
            "The drafter answers the problem's own messages, the last of which is the user's.",
            f"Its summary is what follows the last {closing}, up to the next {opening} if there is one. Without any "
            f"{closing} it is the whole completion, or nothing if the reasoning was opened, by the completion or by "
            "the chat template at the end of the prompt.",
            f"In the summary prompts.withheld takes the place of the final answer: {_ANSWERS[game.domain]}. "
            "agon_verl/game/withhold.py is the exact rule, in plain Python.",
            "The challenger answers the same messages with prompts.challenge as the last, {problem} being its text and "
            "{attempt} the summary, stripped, with </attempt> written as </ attempt>, or prompts.no_summary if blank.",
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
    """Copy one adapter, marked for inference over `base`. Returns its rank."""
    try:
        config = json.loads((source / "adapter_config.json").read_text())
        tensors = load_file(source / ADAPTER_FILE)
    except (OSError, ValueError, SafetensorError) as error:
        raise ExportError(f"{source} is not a whole adapter: take another checkpoint ({error})") from None
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ExportError(f"{source} has numbers in {name} that are not finite: take an earlier checkpoint")
    target.mkdir()
    config.update(base_model_name_or_path=base, inference_mode=True)
    (target / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    shutil.copyfile(source / ADAPTER_FILE, target / ADAPTER_FILE)
    return int(config["r"])


def _merge(base: Path, adapter: Path, target: Path) -> None:
    """A full model. The base is read anew for each: taking a change out of rounded weights does not give them back."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import GENERATION_CONFIG_NAME

    try:
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
        tokenizer = AutoTokenizer.from_pretrained(base)
    except (OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise ExportError(f"{base} cannot be loaded to be merged: {first}") from None
    pair = PeftModel.from_pretrained(model, str(adapter))  # holds the adapter in float32, whatever the base's type
    if model.config.tie_word_embeddings and hasattr(model.get_output_embeddings(), "lora_A"):
        raise ExportError(f"{adapter.name} changes an output layer that is also the embedding: export without --merged")
    merged = pair.merge_and_unload()  # not `safe_merge`, which rounds the change first and its sum a second time
    own = base / GENERATION_CONFIG_NAME
    if own.is_file():
        merged.generation_config = GenerationConfig()  # the base's may be one that transformers reads but won't write
    merged.save_pretrained(target)
    if own.is_file():
        shutil.copyfile(own, target / own.name)
    tokenizer.save_pretrained(target)


def _serve(base: str, rank: int, folder: str) -> str:
    room = next(allowed for allowed in VLLM_RANKS if allowed >= rank)
    modules = " ".join(shlex.quote(f"{adapter}={folder}/{adapter}") for adapter in ADAPTERS)
    return (
        f"vllm serve {shlex.quote(base)} --enable-lora --max-loras {len(ADAPTERS)} --max-lora-rank {room} "
        f"--lora-modules {modules}"
    )


def _peft(base: str, folder: str) -> str:
    return f"""\
model = AutoModelForCausalLM.from_pretrained({json.dumps(base)}, dtype="auto")
model = PeftModel.from_pretrained(model, {json.dumps(folder + "/A")}, adapter_name="A")
model.load_adapter({json.dumps(folder + "/B")}, adapter_name="B")  # then model.set_adapter("A") or ("B")"""


def _reason(cascade: Cascade) -> str:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in (cascade.accuracy or {}).items())
    return f"{cascade.why} ({figures})" if figures else cascade.why


def _report(record: Export, checkpoint: Path, out: Path, merged: bool, rank: int) -> str:
    base = record.base
    contents = [*ADAPTERS, *(f"merged/{adapter}" for adapter in ADAPTERS if merged), MANIFEST, "README.md"]
    state = "has the checkpoint's hash" if base.checked else "was not found here, so its weights were not checked"
    return f"""\
wrote {out}: {", ".join(contents)}
  from     {checkpoint}
  base     {base.path} {state}
  cascade  {record.cascade.direction or "not chosen"}: {_reason(record.cascade)}

PEFT:
{_peft(base.path, str(out))}

vLLM:
{_serve(base.path, rank, str(out))}"""


def _card(record: Export, rank: int) -> str:
    drafter, challenger = (record.cascade.direction or DIRECTIONS[0]).split("_to_")
    return _CARD.substitute(
        base=record.base.path,
        step=record.step,
        peft=_peft(record.base.path, "."),
        serve=_serve(record.base.path, rank, "."),
        drafter=drafter,
        challenger=challenger,
        reason=_reason(record.cascade),
    )


_CARD = Template("""\
---
base_model: $base
library_name: peft
tags: [agon, lora]
---
# A pair of adapters trained by Agon

Two LoRA adapters, A and B, over `$base`, after $step steps. They are used as a cascade: one drafts, the other reads the
draft's summary, its answer withheld, and gives the answer. `pair.json` has what they were trained with.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

$peft
```

Both served at once, and over that the cascade. $drafter drafts and $challenger answers: $reason.

```bash
$serve
```

```python
import json

from agon_verl.game.withhold import withhold_answer  # plain Python: copy it, boxes.py and fences.py, or write your own
from openai import OpenAI

pair = json.load(open("pair.json"))
client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def chat(adapter, messages):
    return client.chat.completions.create(model=adapter, messages=messages).choices[0].message.content


def attempt(draft, opened):
    opening, closing = pair["reasoning_tags"]
    if closing not in draft and (opened or opening in draft):
        return ""
    summary = draft.strip().rpartition(closing)[2].partition(opening)[0]
    return withhold_answer(summary, pair["domain"]).replace("</attempt>", "</ attempt>")


def challenge(messages, draft, opened=False):  # True if the chat template ends the prompt with the opening tag
    head, tail = pair["prompts"]["challenge"].split("{attempt}")
    shown = attempt(draft, opened).strip() or pair["prompts"]["no_summary"]
    content = head.replace("{problem}", messages[-1]["content"]) + shown + tail
    return [*messages[:-1], {"role": "user", "content": content}]


def cascade(messages, drafter="$drafter", challenger="$challenger"):
    return chat(challenger, challenge(messages, chat(drafter, messages)))


print(cascade([{"role": "user", "content": "What is 17 * 23?"}]))
```
""")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=program_name("export"), description="A trained pair, ready for use.")
    parser.add_argument("checkpoint", type=Path, help="a folder global_step_<n>, or the run's, whose newest is taken")
    parser.add_argument("out", type=Path, help="the folder to write; must not exist, or be empty")
    parser.add_argument("--merged", action="store_true", help="write a full model of each adapter too")
    parser.add_argument("--direction", choices=DIRECTIONS, help="who drafts for whom; else as validation tells")
    parser.add_argument("--base", help="where the base model lies, if not where the run found it")
    try:
        print(export(**vars(parser.parse_args(arguments))))
    except (ExportError, CheckpointError, ConfigError, OSError) as error:
        print(f"agon-verl: {error}", file=sys.stderr)
        return 1
    return 0
