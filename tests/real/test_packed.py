"""Packed rows against padded ones through the real engine, for several families, and what cannot be packed."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
)
from verl.utils import tensordict_utils as tu

from agon_verl.actor import packed_attention
from agon_verl.actor.engine import micro_batches
from agon_verl.actor.packed_attention import PACKED_SDPA, PackedRows, attention_for, require_packable
from agon_verl.errors import ConfigError
from tests.packed_against_padded import Difference, compare, engine_of, make_engine, make_rows, one_pass, one_rank
from tests.real.runs import ROOT
from tests.recipes import composed
from tests.tiny import make_model

LENGTHS = [5, 30, 17, 9, 64, 12]
SIZES = dict(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=512,
    max_position_embeddings=512,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_id=1,
    pad_token_id=0,
)
WINDOW = {**SIZES, "sliding_window": 8, "head_dim": 32, "layer_types": ["sliding_attention", "full_attention"]}
MODELS = {
    "qwen2": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=32)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**WINDOW)),
    "gemma4": lambda: Gemma4ForCausalLM(
        Gemma4TextConfig(**WINDOW, global_head_dim=64, hidden_size_per_layer_input=16, vocab_size_per_layer_input=512)
    ),
}


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("gloo")):
        yield


def saved(model: PreTrainedModel, folder: Path) -> Path:
    make_model(folder)  # for its tokenizer
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    return saved(MODELS["qwen3"](), tmp_path_factory.mktemp("qwen3"))


@pytest.mark.parametrize("family", MODELS)
def test_packed_rows_teach_what_padded_ones_teach(family: str, tmp_path: Path) -> None:
    """In float32, in several micro-batches, with gradient checkpointing; windows shorter than the rows."""
    torch.manual_seed(1)
    folder = saved(MODELS[family](), tmp_path / family)
    overrides = ["actor_rollout_ref.model.enable_gradient_checkpointing=true"]
    difference = compare(folder, LENGTHS, *overrides, recipe="agon_cpu", cap=100)
    assert difference.log_probs < 1e-5
    assert difference.entropy < 1e-5
    assert difference.gradients < 1e-5


def test_packed_rows_teach_the_same_in_half_precision(qwen3: Path) -> None:
    overrides = ["actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16"]
    difference = compare(qwen3, LENGTHS, *overrides, recipe="agon_cpu", cap=100)
    assert difference.log_probs < 0.01
    assert difference.entropy < 0.01
    assert difference.gradients < 0.02


def test_the_output_layer_is_computed_for_responses_only(qwen3: Path) -> None:
    """Whatever the temperature; the values elsewhere in a row are zero, and nobody reads them."""
    passes = []
    for packed in (True, False):
        engine, loss = make_engine(qwen3, "agon_cpu", "agon.init_noise=0.05", packed=packed)
        tokens: list[int] = []
        head = engine.module.get_base_model().lm_head
        head.register_forward_hook(lambda _, inputs, __, seen=tokens: seen.append(inputs[0].shape[:-1].numel()))
        data = make_rows(LENGTHS, 300, packed=packed, cap=1000, prompt=4)
        tu.assign_non_tensor(data, temperature=0.7)
        passes.append(one_pass(engine, loss, data))
        assert tokens == [sum(LENGTHS) - 4 * len(LENGTHS) if packed else max(LENGTHS) * len(LENGTHS)]
    difference = Difference.between(*passes)
    assert max(difference.log_probs, difference.entropy, difference.gradients) < 1e-5


def test_verls_fused_kernels_work_on_packed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They never hold the logits of a micro-batch; verl changes the model's class for them."""
    torch.manual_seed(1)
    sizes = {**SIZES, "sliding_window": 8}
    folder = saved(MistralForCausalLM(MistralConfig(**sizes)), tmp_path / "mistral")
    monkeypatch.setattr(MistralForCausalLM, "forward", MistralForCausalLM.forward)  # put back afterwards
    passes = []
    for fused in (False, True):
        overrides = ["agon.init_noise=0.05", f"actor_rollout_ref.model.use_fused_kernels={fused}"]
        engine, loss = make_engine(folder, "agon_cpu", *overrides, packed=True)
        passes.append(one_pass(engine, loss, make_rows(LENGTHS, 300, packed=True, cap=100)))
    difference = Difference.between(*passes)
    assert max(difference.log_probs, difference.entropy, difference.gradients) < 1e-5


def test_no_token_sees_another_row(qwen3: Path) -> None:
    """Another row in the same micro-batch may be anything."""
    engine, loss = make_engine(qwen3, "agon_cpu", "agon.init_noise=0.05", packed=True)
    before, after = (make_rows(LENGTHS, 300, packed=True, cap=1000) for _ in range(2))
    changed = 2
    row = after["input_ids"].unbind()[changed]
    row.copy_((row + 7) % 300)
    first, second = (one_pass(engine, loss, data) for data in (before, after))
    for index, (one, other) in enumerate(zip(first.log_probs, second.log_probs, strict=True)):
        # The last entry is about the next row's first token: verl drops it.
        assert torch.equal(one[:-1], other[:-1]) == (index != changed)


def test_padded_micro_batches_are_limited_with_their_padding(qwen3: Path) -> None:
    cap = 80
    parts, indices = micro_batches(make_rows(LENGTHS, 300, packed=False, cap=cap))
    sizes = [len(part) * int(part["input_ids"].offsets().diff().max()) for part in parts]
    assert indices == [[4], [1, 2], [5, 3, 0]]
    assert sizes == [64, 60, 36] and max(sizes) <= cap

    engine, loss = make_engine(qwen3, "agon_cpu", "agon.init_noise=0.05", packed=False)
    cut, at_once = (one_pass(engine, loss, make_rows(LENGTHS, 300, packed=False, cap=cap)) for cap in (cap, 1000))
    difference = Difference.between(cut, at_once)  # rows are back in their order
    assert max(difference.log_probs, difference.entropy, difference.gradients) < 1e-5


def test_micro_batches_of_a_fixed_size_stay_verls(qwen3: Path) -> None:
    data = make_rows(LENGTHS, 300, packed=False, cap=80)
    tu.assign_non_tensor(data, use_dynamic_bsz=False, micro_batch_size_per_gpu=3)
    parts, indices = micro_batches(data)
    assert [len(part) for part in parts] == [3, 3] and indices is None


RANK = """
import sys, torch.distributed
from agon_verl.actor.engine import micro_batches
from tests.packed_against_padded import make_rows

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
lengths = [[60, 50, 40, 30], [20, 10, 10, 10]][rank]
parts, indices = micro_batches(make_rows(lengths, 300, packed=False, cap=80), torch.distributed.group.WORLD)
print("PARTS", indices)
"""


def test_all_ranks_have_as_many_micro_batches(tmp_path: Path) -> None:
    """A rank that stopped earlier would leave the others waiting in a collective call."""
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [next(line for line in output.splitlines() if line.startswith("PARTS")) for output in outputs] == [
        "PARTS [[0], [1], [2, 3]]",
        "PARTS [[0], [1], [2, 3]]",
    ]


def test_padded_rows_are_refused_by_the_packed_attention(qwen3: Path) -> None:
    engine, loss = make_engine(qwen3, "agon_cpu", packed=True)
    with pytest.raises(ConfigError, match="use_remove_padding=true"):
        one_pass(engine, loss, make_rows(LENGTHS, 300, packed=False, cap=1000))


@pytest.mark.parametrize("config", [Qwen3NextConfig, Qwen3_5TextConfig])
def test_layers_with_a_state_cannot_be_packed(config: type) -> None:
    with pytest.raises(ConfigError, match="cannot be packed, because it has linear_attention; use false"):
        require_packable(config())
    with pytest.raises(ConfigError, match="a recurrent state; use false"):
        require_packable(Qwen3Config(), recurrent=True)


def install(folder: Path, distribution: str) -> str:
    """What `pip` leaves of a package whose import name is flash_attn."""
    (folder / "flash_attn").mkdir(parents=True)
    metadata = folder / f"{distribution.replace('-', '_')}-2.8.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.8.3\n")
    return str(folder)


def test_the_attention_is_chosen_where_the_config_leaves_it_open(
    qwen3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl would take FlashAttention, which this machine does not have."""
    config = composed(
        "+recipe=agon_cpu",
        f"actor_rollout_ref.model.path={qwen3}",
        "~actor_rollout_ref.model.override_config.attn_implementation",
        "actor_rollout_ref.model.use_remove_padding=true",
    )
    engine, loss = engine_of(config)
    assert engine.module.config._attn_implementation == PACKED_SDPA
    assert one_pass(engine, loss, make_rows(LENGTHS, 300, packed=True, cap=1000)).gradients

    assert attention_for({}, packed=False) == "sdpa"
    assert attention_for({"attn_implementation": "eager"}, packed=True) == "eager"
    monkeypatch.syspath_prepend(install(tmp_path, "flash-attn"))
    assert attention_for({}, packed=True) == attention_for({}, packed=False) == "flash_attention_2"


def test_another_package_of_the_same_import_name_is_not_taken_for_flash_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, "flash-attn-4"))
    assert find_spec("flash_attn") is not None
    assert attention_for({}, packed=True) == PACKED_SDPA


@pytest.mark.parametrize(("size", "fuses"), [(64, True), (256, True), (60, False), (264, False)])
def test_the_fused_kernel_gets_heads_of_the_sizes_that_it_has(
    size: int, fuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDPA pads heads that are not a multiple of 8; the kernel for packed rows refuses them."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with FakeTensorMode():
        head = torch.empty(1, 2, 8, size, dtype=torch.bfloat16, device="cuda")
    assert packed_attention._fuses(head, head) == fuses


def test_a_model_with_a_soft_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' own SDPA would leave the cap out without a word."""
    model = Gemma2ForCausalLM(Gemma2Config(**SIZES, attn_logit_softcapping=50.0, attn_implementation=PACKED_SDPA))
    monkeypatch.setattr(packed_attention, "rows_in_use", PackedRows.of([2, 2], "cpu"))
    with pytest.raises(ConfigError, match="soft cap"):
        model(input_ids=torch.ones(1, 4, dtype=torch.int64))
