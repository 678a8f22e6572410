"""The model of a step keeps the limits that no number of GPUs can pass.

docs/large_runs.md compares its constants with measurements.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agon_verl.trainer.memory import GIB, DecoderShape
from benchmarks.step_model import (
    CARDS,
    SHAPES,
    Engine,
    PairLengths,
    Setting,
    Step,
    Trainer,
    comparison,
    gather_seconds,
    generate,
    read_run,
    reduce_seconds,
    shape_of,
    step_of,
    sync_seconds,
    table,
    token_flops,
    update_seconds,
)
from examples.gpu_settings import cached_token
from tests.unit.trainer.test_memory import QWEN3_06B

PAPER = Setting()
PAIRS = PAPER.lengths(0)


def alone(pair: PairLengths, setting: Setting) -> float:
    """A pair on a replica of its own, token by token."""
    engine, card, shape = setting.engine, setting.card, setting.shape
    bandwidth = engine.bandwidth * card.bandwidth
    per_token = token_flops(shape, 0) / (engine.prefill * card.flops)
    seconds = 0.0
    for prompt, length in ((pair.draft_prompt, pair.draft), (pair.challenge_prompt, pair.challenge)):
        seconds += prompt * per_token
        for token in range(1, length + 1):
            memory = 2 * shape.parameters + cached_token(setting.shape) * (prompt + token)
            seconds += engine.fixed + memory / bandwidth + per_token
            seconds += engine.sampler * shape.vocabulary / bandwidth
    return seconds


def test_a_pair_by_itself_takes_as_long_as_its_tokens_one_by_one() -> None:
    pair = PairLengths(100, 700, 300, 400)
    assert generate([pair], PAPER).seconds == pytest.approx(alone(pair, PAPER))


@pytest.mark.parametrize("gpus", [1, 8, 64, 256, 512])
def test_no_number_of_gpus_is_faster_than_the_longest_pair(gpus: int) -> None:
    longest = max(PAIRS, key=lambda pair: pair.draft + pair.challenge)
    step = step_of(PAIRS, replace(PAPER, gpus=gpus))
    assert step.generation.seconds >= 0.999 * generate([longest], PAPER).seconds
    assert step.plain >= step.streamed >= step.generation.seconds >= step.generation.drafts


def test_more_gpus_than_pairs_change_nothing() -> None:
    two, four = (step_of(PAIRS, replace(PAPER, gpus=gpus)) for gpus in (256, 512))
    assert two.generation == four.generation
    assert four.update[0] >= two.update[0]  # the same rows, and more ranks to talk to


def test_eight_times_the_gpus_are_at_most_eight_times_as_fast() -> None:
    one, eight = (step_of(PAIRS, replace(PAPER, gpus=gpus, cache=60 * GIB)).plain for gpus in (1, 8))
    assert eight < one <= 8 * eight


def test_reading_the_cache_grows_with_the_square_of_the_length() -> None:
    def cache_reads(length: int) -> float:
        reads = generate([PairLengths(1, length, 1, 1)], PAPER).reads
        return reads - (length + 1) * 2 * PAPER.shape.parameters / (PAPER.engine.bandwidth * PAPER.card.bandwidth)

    assert cache_reads(8000) / cache_reads(4000) == pytest.approx(4, rel=0.01)


def test_sequences_that_do_not_fit_into_the_cache_wait() -> None:
    roomy = generate(PAIRS, replace(PAPER, cache=400 * GIB))
    tight = generate(PAIRS, replace(PAPER, cache=20 * GIB))
    assert roomy.preempted == 0 < tight.preempted
    assert tight.seconds > roomy.seconds and tight.fixed > roomy.fixed


def test_a_cache_of_one_row_plays_one_after_the_other() -> None:
    pairs = [PairLengths(10, 500, 20, 500)] * 6
    setting = replace(PAPER, cap=500, problem=10, summary=10, max_num_seqs=1)
    assert generate(pairs, setting).fixed == pytest.approx(6 * 1000 * setting.engine.fixed)
    small = replace(setting, max_num_seqs=256, cache=525 * cached_token(setting.shape))
    result = generate(pairs, small)
    assert result.fixed <= 6 * 1000 * setting.engine.fixed and result.seconds >= generate(pairs, setting).reads


def test_a_challenge_starts_when_its_own_draft_ends() -> None:
    short, long = PairLengths(10, 100, 20, 900), PairLengths(10, 1000, 20, 100)
    both = generate([short, long], PAPER)
    assert both.fixed == pytest.approx(1100 * PAPER.engine.fixed)  # and not 1,000 drafts' steps and then 900
    assert both.first_draft < both.drafts < both.seconds


def test_tensor_parallelism_reads_less_and_waits_more() -> None:
    one, two = (generate(PAIRS[:16], replace(PAPER, tp=tp)) for tp in (1, 2))
    assert two.reads == pytest.approx(one.reads / 2)
    assert two.fixed > one.fixed


def test_an_update_is_never_faster_than_its_longest_row() -> None:
    rows = [15_000, *[100] * 63]
    many = update_seconds(rows, replace(PAPER, gpus=64))
    assert many > update_seconds([15_000], PAPER) - update_seconds([1], PAPER)
    two, eight = (update_seconds([5000] * 64, replace(PAPER, gpus=gpus)) for gpus in (2, 8))
    assert eight < two < 4 * eight
    assert update_seconds([], PAPER) == 0


def test_checkpointing_costs_less_than_half_more_and_a_larger_micro_batch_saves() -> None:
    rows = [5000] * 256
    seconds = {
        (checkpointing, size): update_seconds(
            rows, replace(PAPER, trainer=Trainer(micro_batch=size, checkpointing=checkpointing))
        )
        for checkpointing in (False, True)
        for size in (16_384, 32_768)
    }
    assert 1 < seconds[True, 32_768] / seconds[False, 32_768] < 1.5
    assert seconds[True, 32_768] < seconds[True, 16_384]


def test_what_goes_over_the_network() -> None:
    one, eight, sixty_four = (replace(PAPER, gpus=gpus) for gpus in (1, 8, 64))
    assert gather_seconds(one) == reduce_seconds(one) == 0
    assert sync_seconds(one) < sync_seconds(eight) < sync_seconds(sixty_four)
    inside_nodes = replace(sixty_four, trainer=Trainer(shards=8))
    assert gather_seconds(inside_nodes) == gather_seconds(eight) < gather_seconds(sixty_four)


def test_rows_of_a_batch_that_grows_with_the_gpus_meet_in_one_process() -> None:
    small, large = (replace(PAPER, gpus=gpus, problems=4 * gpus) for gpus in (1, 64))
    steps = [step_of(setting.lengths(0), setting) for setting in (small, large)]
    assert steps[1].rows == pytest.approx(64 * steps[0].rows)
    assert steps[1].update[0] == pytest.approx(steps[0].update[0], rel=0.3)


def test_the_largest_part_is_named() -> None:
    generation = step_of(PAIRS[:1], PAPER).generation
    step = Step(generation, update=(1000.0, 0.0), rows=0, controller=0, sync=0, tokens=1)
    assert step.limit == "update"
    assert replace(step, update=(0.0, 0.0)).limit == "fixed time per token"
    assert replace(step, update=(0.0, 0.0), controller=generation.seconds + 500).limit == "rows in one process"


def test_lengths_are_geometric_and_cut_at_the_cap() -> None:
    setting = replace(PAPER, problems=500)
    drafts = [pair.draft for pair in setting.lengths(3)]
    assert 0.02 < drafts.count(setting.cap) / len(drafts) < 0.05  # exp(-15,360 / 4,500) = 3.3 %
    assert max(drafts) == setting.cap and min(drafts) >= 1
    assert 4100 < sum(drafts) / len(drafts) < 4600
    assert setting.lengths(3) == setting.lengths(3) != setting.lengths(4)


def test_dead_groups_are_not_trained_on() -> None:
    assert step_of(PAIRS, replace(PAPER, live=0.5)).update[0] < 0.7 * step_of(PAIRS, PAPER).update[0]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="tp=3 does not divide gpus=8"):
        replace(PAPER, tp=3)
    with pytest.raises(ValueError, match="less than one row of 16,060: raise --cache"):
        replace(PAPER, cache=GIB)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-0.6b", 0.6), ("qwen2.5-1.5b", 1.54), ("qwen3-1.7b", 1.72), ("qwen3-4b", 4.0), ("qwen3-8b", 8.2)],
)
def test_named_shapes_are_as_large_as_their_names(name: str, billions: float) -> None:
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_a_shape_comes_from_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_06B))
    assert shape_of(str(tmp_path)) == shape_of(str(tmp_path / "config.json")) == SHAPES["qwen3-0.6b"]
    with pytest.raises(SystemExit, match="neither a config.json nor one of qwen3-0.6b"):
        shape_of("qwen")
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3_06B, "num_experts": 8}))
    with pytest.raises(SystemExit, match="not a dense decoder"):
        shape_of(str(tmp_path))


def test_a_row_for_each_number_of_gpus() -> None:
    setting = replace(PAPER, problems=4, n=2, cap=600, mean=200)
    rows = table([replace(setting, gpus=gpus) for gpus in (1, 8)], draws=2).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["1", "8"]
    assert [row.split("|")[3].strip() for row in rows] == ["8", "1"]


def test_a_run_is_compared_with_the_model(tmp_path: Path) -> None:
    setting = replace(PAPER, card=CARDS["h200"], gpus=1, cap=600, engine=Engine(per_sequence=1e-5))
    (tmp_path / "pairs").mkdir()
    records = [
        {
            "uid": group,
            "pair": {
                "draft_prompt_tokens": 100,
                "draft": {"length": 300},
                "draft_reward": float(session if group == "live" else 0),
                "challenge_prompt_tokens": 200,
                "challenge": {"length": 400},
                "challenge_reward": 1.0,
            },
        }
        for group in ("live", "dead")
        for session in range(2)
    ]
    (tmp_path / "pairs" / "1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pairs = [PairLengths(100, 300, 200, 400)] * 4
    generation, update = generate(pairs, setting).seconds, update_seconds([400, 400], setting)
    metrics = {"timing_s/gen": generation / 1.1, "timing_s/update_actor": update}
    lines = [{"step": 0, "data": {}}, {"step": 1, "data": metrics}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(tmp_path)
    assert run.keys() == {1} and run[1].pairs == pairs and run[1].trained == ([400, 400], [])
    row = comparison(run, setting).splitlines()[2]
    assert "+10%" in row and "+0%" in row


def test_a_shape_without_tied_embeddings_computes_one_output_layer() -> None:
    tied = SHAPES["qwen3-0.6b"]
    untied = DecoderShape(**{**vars(tied), "tied": False})
    assert token_flops(tied, 100) == token_flops(untied, 100)
