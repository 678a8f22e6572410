r"""The update directions of the reward stacks coop, margin and adv: the challenger's gradients on the same real pairs.

    python benchmarks/reward_directions.py PAIRS TRAINED [--steps 36 38 40] [--live-groups correctness]

PAIRS is a run's `trainer.rollout_data_dir`, TRAINED its `global_step_<n>` or the adapters that `agon matrix` keeps. The
policy must be the same for all pairs: train with a negligible learning rate (1e-12) and `agon.rotation=fixed`, or take
steps of the end of a run in which the same adapter challenged, when the learning rate has decayed to little.
Of a run with `agon.live_groups=correctness` only the groups that train are looked at, under all stacks.

For every challenge the gradient of its log-probability by the challenger's adapter is computed once; a stack only
weighs these gradients by its advantages, so their dot products are enough. A GPU keeps them in bfloat16: 37 MB per
challenge for rank 16 and 1.5 B parameters. The cosine between the sums of two stacks estimates the cosine of their
expected updates. The cosine between two halves of the groups, under one stack, shows how much of an update is noise.

What a stack adds to coop is then measured by itself. The term of margin, -c(a), should have no direction: two halves
of the groups are uncorrelated. The bonus of adv should have one. It gives more weight to challenges that read a wrong
draft, so it turns the update to the extent that these have another gradient than challenges that read a right one.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from agon_verl.game.advantages import LiveBy, group_advantages, live_groups
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.rewards import STACKS, Outcome, challenge_reward
from agon_verl.pair.checkpoint import MANIFEST
from agon_verl.pair.trained import TrainedPair

RESAMPLES, HALVINGS = 1000, 200


def question(prompt: str, tokenizer: Any) -> str:
    """A record has the prompt as the model saw it, without special tokens; ChatML's roles are ordinary words."""
    chat = re.fullmatch(r"(?:system\n.*?\n)?user\n(.*)\nassistant\n.*?", prompt, re.DOTALL)
    for text in (prompt, *(chat.groups() if chat else ())):
        messages = [{"role": "user", "content": text}]
        ids = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        if tokenizer.decode(ids, skip_special_tokens=True).strip() == prompt.strip():
            return text
    raise SystemExit(f"the question cannot be told from the template in {prompt[:300]!r}")


def challenger_of(pairs: Sequence[dict], trained: Path) -> tuple[str, Path]:
    """The base, and the challenger's adapter: of a checkpoint, or of an export."""
    challengers = sorted({pair["challenger"] for pair in pairs})
    if len(challengers) > 1:
        raise SystemExit(f"{' and '.join(challengers)} challenge in these pairs: choose --steps in which one does")
    if export := TrainedPair.read(trained):
        return export.base.path, trained / challengers[0]
    return json.loads((trained / MANIFEST).read_text())["base"], trained / "actor" / challengers[0]


def dot_products(pairs: Sequence[dict], trained: Path) -> torch.Tensor:
    """Of each challenge with each: of the gradients of its mean log-probability by all of the challenger's weights."""
    path, adapter = challenger_of(pairs, trained)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    base = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device)
    model = PeftModel.from_pretrained(base, str(adapter), is_trainable=True)
    model.enable_input_require_grads()  # checkpoints of the frozen layers need it
    model.gradient_checkpointing_enable()
    model.train()  # checkpoints are made in this mode only; LoRA's dropout is 0
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    rows = torch.empty(len(pairs), sum(map(torch.numel, weights)), dtype=dtype, device=device)
    for row, pair in zip(rows, tqdm(pairs, unit="challenge", leave=False), strict=True):
        problem = [{"role": "user", "content": question(pair["problem"], tokenizer)}]
        messages = challenge_messages(problem, pair["attempt"]["shown"])
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer.encode(text, add_special_tokens=False)
        answer = tokenizer.encode(pair["challenge"], add_special_tokens=False)
        ids = torch.tensor([prompt + answer], device=device)
        logits = model(input_ids=ids, logits_to_keep=len(answer) + 1, use_cache=False).logits[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(answer, device=device))
        torch.cat([g.flatten() for g in torch.autograd.grad(-loss, weights)], out=row)
    return products(rows).cpu()


def that_train(pairs: Sequence[dict], by: LiveBy) -> list[dict]:
    """The challenges of the groups that train; by reward that depends on the stack, and nothing is left out."""
    if by == "reward":
        return list(pairs)
    right = [pair["pair"]["challenge"]["correct"] for pair in pairs]
    live = live_groups(right, [pair["uid"] for pair in pairs])
    return [pair for pair in pairs if pair["uid"] in live]


def products(rows: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(1 << 20, dim=1):
        total += part.float() @ part.float().T
    return total


def rewards(pairs: Sequence[dict]) -> dict[str, list[float]]:
    """The reward of every challenge under each stack, and what margin and adv add to coop."""
    sides = [(Outcome(**pair["pair"]["challenge"]), Outcome(**pair["pair"]["draft"])) for pair in pairs]
    paid = {stack: [challenge_reward(stack, b, a) for b, a in sides] for stack in STACKS}
    bonus = [adv - coop for adv, coop in zip(paid["adv"], paid["coop"], strict=True)]
    return {**paid, "-c(a)": [-a.correct for _, a in sides], "bonus": bonus}


def by_group(pairs: Sequence[dict], weight: torch.Tensor) -> torch.Tensor:
    """The weights of the challenges in each group's update: a row per group."""
    names = {uid: number for number, uid in enumerate(dict.fromkeys(pair["uid"] for pair in pairs))}
    groups = torch.tensor([names[pair["uid"]] for pair in pairs])
    weights = torch.zeros(len(names), len(pairs), dtype=torch.float64)
    weights[groups, torch.arange(len(pairs))] = weight.double()
    return weights


class Cosines:
    """Cosines of sums over groups, computed from the dot products of the groups, which are a small matrix."""

    def __init__(self, updates: dict[str, torch.Tensor], dots: torch.Tensor) -> None:
        self.dots = {(a, b): updates[a] @ dots @ updates[b].T for a in updates for b in updates}

    def live(self, name: str) -> int:
        """The number of groups with a gradient."""
        return int((self.dots[name, name].diagonal() > 0).sum())

    def __call__(self, a: str, one: torch.Tensor, b: str, two: torch.Tensor) -> float:
        """Between `a` summed with the weights `one`, and `b` with `two`."""
        norms = (one @ self.dots[a, a] @ one).sqrt() * (two @ self.dots[b, b] @ two).sqrt()
        return float(one @ self.dots[a, b] @ two / norms)


def main() -> None:
    parser = argparse.ArgumentParser(description="The update directions of the reward stacks on the same pairs.")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("trained", type=Path, help="a checkpoint, or a folder of exported adapters")
    parser.add_argument("--steps", type=int, nargs="+", help="of the pairs (default: all)")
    parser.add_argument("--live-groups", choices=get_args(LiveBy), default="reward", help="the run's agon.live_groups")
    options = parser.parse_args()
    files = [options.pairs / f"{step}.jsonl" for step in options.steps or ()] or sorted(options.pairs.glob("*.jsonl"))
    pairs = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    pairs = that_train(pairs, options.live_groups)
    if not pairs:
        raise SystemExit("no group in these pairs trains: choose other --steps")
    dots = dot_products(pairs, options.trained)
    uids = [pair["uid"] for pair in pairs]
    torch.manual_seed(0)
    for normalize in (False, True):
        updates = {
            name: by_group(pairs, torch.tensor(group_advantages(reward, uids, normalize=normalize)))
            for name, reward in rewards(pairs).items()
        }
        right = torch.tensor([pair["pair"]["draft"]["correct"] for pair in pairs])
        coop = torch.tensor(group_advantages(rewards(pairs)["coop"], uids, normalize=normalize))
        updates["after right"], updates["after wrong"] = (by_group(pairs, coop * w) for w in (right, 1 - right))
        count = len(updates["coop"])
        cosine = Cosines(updates, dots)
        print(f"\n{count} groups, advantages {'divided by' if normalize else 'without'} the standard deviation")
        print("groups with a gradient: " + ", ".join(f"{stack} {cosine.live(stack)}" for stack in updates))
        every = torch.ones(count, dtype=torch.float64)
        draws = torch.randint(count, (RESAMPLES, count))
        samples = torch.zeros(RESAMPLES, count, dtype=torch.float64)
        samples.scatter_add_(1, draws, torch.ones_like(draws, dtype=torch.float64))
        for a, b in (("coop", "margin"), ("coop", "adv"), ("margin", "adv"), ("coop", "bonus"), ("coop", "-c(a)")):
            spread = sorted(cosine(a, sample, b, sample) for sample in samples)
            low, high = spread[int(0.025 * RESAMPLES)], spread[int(0.975 * RESAMPLES)]
            print(f"  cos({a}, {b}) = {cosine(a, every, b, every):.4f}, 95 % of resamples {low:.4f} to {high:.4f}")
        halves = [(torch.randperm(count) < count // 2).double() for _ in range(HALVINGS)]
        for name in updates:
            _print_spread(f"two halves, {name}", [cosine(name, half, name, 1 - half) for half in halves])
        across = [cosine("after right", half, "after wrong", 1 - half) for half in halves]
        _print_spread("one half after right and the other after wrong", across)


def _print_spread(what: str, cosines: Sequence[float]) -> None:
    spread = sorted(cosines)
    low, high = spread[int(0.025 * len(spread))], spread[int(0.975 * len(spread))]
    print(f"  cos of {what}: {spread[len(spread) // 2]:.3f}, 95 % of halvings {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
