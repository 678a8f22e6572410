"""Every shipped YAML composes with verl's own config, has the paper's values, and leaves every field open."""

import re
from pathlib import Path

import multiprocess
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoTokenizer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.model import get_hf_auto_model_class

import recipes
from agon_verl.actor.optim import LinearOptimizerConfig, linear_decay
from agon_verl.config import AgonConfig
from agon_verl.trainer.preflight import check_settings
from tests.recipes import composed
from tests.tiny import make_model

FOLDER = Path(recipes.__file__).parent
NAMES, BASES = (sorted(path.stem for path in (FOLDER / group).glob("*.yaml")) for group in ("recipe", "base"))
BASES.remove("qwen2.5")  # the part that its sizes share
THINKING = [base for base in BASES if not base.startswith("qwen2.5")]


@pytest.mark.parametrize("name", NAMES)
def test_recipe_composes_and_passes_the_checks(name: str) -> None:
    config = composed(f"+recipe={name}")
    assert config.trainer.v1.trainer_mode == "agon"
    check_settings(config)
    OmegaConf.resolve(config)
    differs = {"agon_code": {"domain": "code", "reward_timeout": 600}, "agon_cpu": {"streamed": False}}.get(name, {})
    assert AgonConfig.read(config) == AgonConfig(**differs)  # otherwise the dataclass's defaults are the recipes'


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", ["agon_math", "agon_code"])
def test_a_base_goes_with_any_recipe(name: str, base: str) -> None:
    config = composed(f"+recipe={name}", f"+base={base}")
    check_settings(config)
    assert config.actor_rollout_ref.model.path.split("/")[1].lower().startswith(base.split("_")[0][:5])
    assert config.data.apply_chat_template_kwargs.get("enable_thinking", False) == (base in THINKING)
    reward = config.reward.custom_reward_function
    assert reward.path == f"pkg://reward_fns.{'unit_tests' if name == 'agon_code' else 'math_answer'}"
    assert reward.reward_kwargs.reasoning_tags == config.agon.reasoning_tags
    assert reward.reward_kwargs.needs_summary is False


def test_the_cpu_recipe_is_the_papers_on_a_cpu() -> None:
    assert composed("+recipe=agon_cpu") == composed("+recipe=agon", "+machine=cpu")
    check_settings(composed("+recipe=agon_code", "+base=qwen3.5_2b", "+machine=cpu"))


def test_long_prompts_are_dropped_without_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process gets a copy of the tokenizer first, which takes seconds for one of 150,000 tokens."""
    config = composed("+recipe=agon", "data.max_prompt_length=16", f"+data.cache_dir={tmp_path}")
    rows = [{"prompt": [{"role": "user", "content": "1+1=?" * times}]} for times in (1, 50)]
    pd.DataFrame(rows).to_parquet(tmp_path / "train.parquet")
    monkeypatch.setattr(multiprocess, "Pool", None)
    tokenizer = AutoTokenizer.from_pretrained(make_model(tmp_path / "model"))
    assert len(RLHFDataset(str(tmp_path / "train.parquet"), tokenizer, config.data)) == 1


# The kinds of linear layers in a language model.
ATTENTION, MLP = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj", "up_proj", "down_proj"}
LINEAR_ATTENTION = {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"}
FAMILIES = {"qwen2.5": "qwen2", "qwen3": "qwen3", "qwen3.5": "qwen3_5", "gemma4": "gemma4"}


def test_qwen2_5_in_all_sizes() -> None:
    names = {f"qwen2.5_{kind}{size}" for kind in ("", "coder_") for size in ("0.5b", "1.5b", "3b", "7b")}
    assert {base for base in BASES if base.startswith("qwen2.5")} == names
    for base in sorted(names):
        config = composed("+recipe=agon_math", f"+base={base}")
        model = base.replace("qwen2.5", "Qwen2.5").replace("coder", "Coder").replace("_", "-").removesuffix("b")
        assert config.actor_rollout_ref.model.path == f"Qwen/{model}B-Instruct"
        assert config.data.max_prompt_length + config.data.max_response_length <= 32768
        assert config.actor_rollout_ref.actor.optim.lr_warmup_steps == 5
    local = composed("+recipe=agon", "+base=qwen2.5", "actor_rollout_ref.model.path=/models/qwen")
    assert local.actor_rollout_ref.model.path == "/models/qwen" and local.data.max_response_length == 4096


@pytest.mark.parametrize("base", THINKING + ["qwen2.5_1.5b"])
def test_adapters_sit_on_every_layer_of_the_language_model_and_nowhere_else(base: str) -> None:
    """By the architecture of the family in its library's default size: what differs between sizes is numbers."""
    family = FAMILIES[base.split("_")[0]]
    architecture = AutoConfig.for_model(family)
    text_only = family in ("qwen2", "qwen3")
    architecture.architectures = [f"{family.title()}ForCausalLM" if text_only else "ForConditionalGeneration"]
    if family == "gemma4":  # a part that is not configured is not built
        architecture.vision_config = architecture.sub_configs["vision_config"]()
        architecture.audio_config = architecture.sub_configs["audio_config"]()
    with torch.device("meta"):
        model = get_hf_auto_model_class(architecture).from_config(architecture)
    settings = composed("+recipe=agon", f"+base={base}").actor_rollout_ref.model
    targets = settings.target_modules
    lora = LoraConfig(
        r=settings.lora_rank,
        target_modules=targets if isinstance(targets, str) else list(targets),
        exclude_modules=settings.exclude_modules,
        task_type="CAUSAL_LM",
    )
    adapted = {name for name, module in get_peft_model(model, lora).named_modules() if hasattr(module, "lora_A")}
    layers = {re.sub(r".*\.(layers\.\d+)\..*", r"\1", name) for name in adapted}
    text = architecture.get_text_config()
    assert layers == {f"layers.{number}" for number in range(text.num_hidden_layers)}
    kinds = ATTENTION | MLP | (LINEAR_ATTENTION if family == "qwen3_5" else set())
    assert {name.rsplit(".", 1)[1] for name in adapted} == kinds
    assert not [name for name in adapted if not text_only and ".language_model." not in name]


def test_the_papers_setting() -> None:
    config = composed("+recipe=agon")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert rollout.n == 8
    assert config.actor_rollout_ref.model.lora_rank == 16
    assert (actor.optim.lr, actor.optim.lr_scheduler_type, actor.optim.lr_warmup_steps_ratio) == (5e-5, "linear", 0.1)
    assert config.trainer.total_epochs == 1
    assert config.agon.format_weight == 0.5
    assert config.data.max_response_length == 15 * 1024
    assert (rollout.val_kwargs.temperature, rollout.val_kwargs.top_p, rollout.val_kwargs.n) == (0.6, 0.95, 1)
    assert actor.ppo_mini_batch_size == config.data.train_batch_size


def test_what_the_paper_leaves_open_is_as_its_page_says() -> None:
    """The last row of the first table in docs/paper.md."""
    page = (FOLDER.parent / "docs" / "paper.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "weight decay 0.01" in line)
    settings = composed("+recipe=agon").actor_rollout_ref
    actor = settings.actor
    assert "mean over all tokens" in row and actor.loss_agg_mode == "token-mean"
    assert f"weight decay {actor.optim.weight_decay}, clipping at norm {actor.grad_clip}" in row
    assert f"temperature {settings.rollout.temperature}" in row
    assert "adapters on all linear layers" in row and settings.model.target_modules == "all-linear"


def test_any_verl_field_can_still_be_overridden() -> None:
    config = composed(
        "+recipe=agon_cpu", "actor_rollout_ref.rollout.n=4", "data.train_batch_size=2", "agon.reward=coop"
    )
    assert (config.actor_rollout_ref.rollout.n, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (4, 2)
    assert AgonConfig.read(config).reward == "coop"


def test_optimizer_config_is_verls_with_linear_decay() -> None:
    optim = omega_conf_to_dataclass(composed("+recipe=agon").actor_rollout_ref.actor).optim
    assert isinstance(optim, LinearOptimizerConfig)
    assert optim.lr_scheduler_type == "linear"


def test_linear_decay_by_hand() -> None:
    # 10 steps, 2 of warm-up: 1/2, 2/2, then 8/8 down to 1/8; 0 only after the last.
    rates = [linear_decay(step, warmup=2, total=10) for step in range(11)]
    assert rates == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0])


def test_linear_decay_without_warm_up_starts_at_the_peak() -> None:
    assert [linear_decay(step, warmup=0, total=2) for step in range(3)] == [1.0, 0.5, 0.0]
