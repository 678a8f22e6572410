"""The README.md of an export: how to play the cascade, and how to load one adapter alone.

The cascade is played by this package, which applies the chat template, sampling, tags and withholding of the training.
"""

import json
import shlex
from string import Template

from agon_verl.game.roles import ADAPTERS
from agon_verl.pair.direction import DIRECTIONS, Cascade
from agon_verl.pair.trained import TrainedPair, vllm_rank


def vllm_command(base: str, rank: int, folder: str) -> str:
    modules = " ".join(shlex.quote(f"{adapter}={folder}/{adapter}") for adapter in ADAPTERS)
    return (
        f"vllm serve {shlex.quote(base)} --enable-lora --max-loras {len(ADAPTERS)} --max-lora-rank {vllm_rank(rank)} "
        f"--lora-modules {modules}"
    )


def peft_code(base: str, folder: str) -> str:
    return f"""\
model = AutoModelForCausalLM.from_pretrained({json.dumps(base)}, dtype="auto")
model = PeftModel.from_pretrained(model, {json.dumps(folder + "/A")}, adapter_name="A")
model.load_adapter({json.dumps(folder + "/B")}, adapter_name="B")  # then model.set_adapter("A") or ("B")"""


def reason(cascade: Cascade) -> str:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in (cascade.accuracy or {}).items())
    return f"{cascade.why} ({figures})" if figures else cascade.why


def card(pair: TrainedPair, rank: int) -> str:
    drafter, challenger = (pair.cascade.direction or DIRECTIONS[0]).split("_to_")
    choice, option, argument = f"{drafter} drafts and {challenger} answers: {reason(pair.cascade)}.", "", ""
    if pair.players == "one":
        choice = "Only A was trained, so A answers alone; B is as it was initialized."
    elif pair.cascade.direction is None:
        choice = f"The direction was not chosen, because {pair.cascade.why}; here {drafter} drafts."
        option, argument = f" --mode {DIRECTIONS[0]}", f', mode="{DIRECTIONS[0]}"'
    return _CARD.substitute(
        {"base": pair.base.path, "step": pair.step, "choice": choice, "option": option, "argument": argument},
        peft=peft_code(pair.base.path, "."),
        vllm=vllm_command(pair.base.path, rank, "."),
    )


_CARD = Template("""\
---
base_model: $base
library_name: peft
tags: [agon, lora]
---
# A pair of adapters trained by Agon

Two LoRA adapters, A and B, over `$base`, after $step training steps. They are used as a cascade: one adapter drafts,
the other reads the summary of the draft, without its final answer, and answers. $choice

## The cascade

With agon-verl installed, in this folder. Both ways use the chat template, the sampling, the length limits and the
prompts that the pair was trained with. They are in `pair.json`, whose `how` describes the cascade for other programs.

```bash
python -m agon_verl.serve .$option  # an OpenAI-compatible endpoint; the model "agon" is the cascade
```

```python
from agon_verl.inference import solve_all

if __name__ == "__main__":
    for solved in solve_all(".", ["What is 17 * 23?"]$argument):
        print(solved.final.text)
```

## One adapter alone

Plain PEFT and vLLM use the base's own chat template and sampling.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

$peft
```

```bash
$vllm
```
""")
