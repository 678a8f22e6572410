"""Every method of the paper on the real stack, two steps each: who plays, what is learned from, what it costs."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import recipes
from agon_verl.config import METHOD
from agon_verl.game.advantages import group_advantages
from tests.real.pair_run import LAST_STEP, LIVE_BY, METHODS, PLAYED, STEPS, settings
from tests.real.runs import PROMPTS, N, Run, read_jsonl


@pytest.fixture(scope="module")
def steps(pair: Run) -> list[tuple[str, dict, dict, list[dict]]]:
    """For each step its method, its metrics, what it learned from, and its pairs."""
    batches = read_jsonl(pair.folder / "batches.jsonl")[STEPS:]
    pairs = [read_jsonl(pair.folder / "pairs" / f"{step}.jsonl") for step in range(STEPS + 1, LAST_STEP + 1)]
    return list(zip(PLAYED, pair.steps[STEPS:], batches, pairs, strict=True))


def test_there_is_a_recipe_for_every_method() -> None:
    assert set(METHODS) == {
        "grpo", "self_refine", "coop", "adv", "margin", "shared_hidden", "hidden", "fixed", "tiebreak"
    }  # fmt: skip
    for method in METHODS:  # and it sets nothing else
        own = OmegaConf.load(Path(recipes.__file__).parent / "method" / f"{method}.yaml")
        assert set(own) == {"agon", "trainer"} and set(own.agon) <= set(METHOD)


def test_every_method_generates_the_same_number_of_rollouts(steps) -> None:
    for method, metrics, batch, _ in steps:
        assert metrics["ledger/rollouts"] == 2 * N * PROMPTS == len(batch["scores"]), method
        assert metrics["ledger/problems"] == PROMPTS


def test_updates_begin_while_others_sample_and_count_every_live_row_once(steps) -> None:
    for method, metrics, batch, _ in steps:
        streamed = method not in ("grpo", "shared_hidden")  # of which one group, or one rival, needs all rows
        assert ("timing_s/early_update" in metrics) == streamed, method
        for adapter in "AB":
            live = [key for _, owner, keys, _ in batch["streams"] for key in keys if owner == adapter]
            trained = metrics.get(f"{adapter}/global_seqlen/mean", 0)
            assert trained == sum(batch["lengths"][key] for key in live), (method, adapter)
    assert any(metrics.get("timing_s/early_update", 0) > 0 for _, metrics, _, _ in steps)


def test_by_correctness_a_group_trains_if_right_and_wrong_are_in_it(steps) -> None:
    dropped = 0
    for number, (method, _, batch, pairs) in enumerate(steps):
        if LIVE_BY[number % 2] == "reward":
            continue
        sides = [("draft", "challenge")] if method == "grpo" else [("draft",), ("challenge",)]
        for (_, _, live, _), own in zip(batch["streams"], sides, strict=True):
            verdicts: dict[str, set[float]] = {}
            rewards: dict[str, set[float]] = {}
            for pair in pairs:
                verdicts.setdefault(pair["uid"], set()).update(pair["pair"][side]["correct"] for side in own)
                rewards.setdefault(pair["uid"], set()).update(pair["pair"][f"{side}_reward"] for side in own)
            mixed = {uid for uid, found in verdicts.items() if len(found) > 1 and len(rewards[uid]) > 1}
            assert {key.split("_")[0] for key in live} == mixed, method
            dropped += sum(len(found) > 1 for uid, found in rewards.items() if uid not in mixed)
    assert dropped > 0  # some groups would have trained by their rewards


def test_who_plays_and_who_learns(steps) -> None:
    for method, metrics, batch, pairs in steps:
        one = method in ("grpo", "self_refine")
        cast = (
            ["A", "A"]
            if one
            else ["B", "A"]
            if metrics["training/global_step"] % 2 and method != "fixed"
            else ["A", "B"]
        )
        assert batch["roles"] == cast, method
        assert {(pair["drafter"], pair["challenger"]) for pair in pairs} == {tuple(cast)}
        learned = {adapter for adapter in "AB" if f"{adapter}/actor/pg_loss" in metrics}
        assert learned <= set(cast)
        if any(live for _, _, live, _ in batch["streams"]):
            assert learned, method


def test_what_the_challenger_reads(steps) -> None:
    for method, metrics, _, pairs in steps:
        shown = [pair["attempt"]["shown"] for pair in pairs]
        if method in ("grpo", "hidden", "shared_hidden"):
            assert not any(shown) and metrics["ledger/opponent_prefilled"] == 0
            assert metrics["ledger/challenge_prefilled"] == metrics["ledger/draft_prefilled"]
        else:
            assert metrics["ledger/challenge_prefilled"] > metrics["ledger/draft_prefilled"]


def test_grpo_has_one_group_of_2n(steps) -> None:
    for method, _, batch, _ in steps:
        sizes = [len(live) + len(dead) for _, _, live, dead in batch["streams"]]
        assert sizes == ([2 * N * PROMPTS] if method == "grpo" else [N * PROMPTS] * 2), method


def test_the_rewards_are_those_of_the_method(steps) -> None:
    for method, _, batch, pairs in steps:
        game = settings(method)
        rivals: dict[str, dict] = {}
        for pair in pairs:
            a, b = (pair["pair"][side]["correct"] for side in ("draft", "challenge"))
            rival = rivals.setdefault(pair["uid"], pair["pair"])["draft"]["correct"] if method == "shared_hidden" else a
            form = pair["pair"]["challenge"]["format"] * game.format_weight
            bonus = {"coop": 0.0, "adv": b * (1 - rival), "margin": b - rival}[game.reward]
            if method == "tiebreak" and pair["pair"]["challenge"]["length"] < pair["pair"]["draft"]["length"]:
                bonus += 0.5 * a * b
            assert pair["pair"]["challenge_reward"] == pytest.approx(2 * b + bonus + form), method
        recorded = sorted(pair["pair"][f"{side}_reward"] for pair in pairs for side in ("draft", "challenge"))
        assert recorded == pytest.approx(sorted(batch["scores"].values())), method


def test_a_shared_hidden_rival_teaches_what_grpo_teaches(steps) -> None:
    """On the batches of the run: without the format term the advantages are those of correctness alone."""
    compared = 0
    for method, _, _, pairs in steps:
        if method != "shared_hidden":
            continue
        groups = [pair["uid"] for pair in pairs]
        weight = settings(method).format_weight  # with the term the two differ: docs/paper.md
        rewards = [p["pair"]["challenge_reward"] - weight * p["pair"]["challenge"]["format"] for p in pairs]
        alone = [2.0 * pair["pair"]["challenge"]["correct"] for pair in pairs]
        assert group_advantages(rewards, groups) == pytest.approx(group_advantages(alone, groups), abs=2e-6, rel=0)
        compared += len(set(groups))
    assert compared == 2 * PROMPTS
