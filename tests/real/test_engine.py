"""The two-adapter engine in this process, one gloo rank: isolation bit for bit, and what counts in the loss."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from agon_verl.engine import PairEngine, adapter_of
from agon_verl.wire import ADAPTER
from tests.recipes import composed

PROMPT, RESPONSE = 6, 5


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("gloo") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    os.environ.setdefault("LOCAL_RANK", "0")
    yield
    torch.distributed.destroy_process_group()


def make_engine(tiny: Path, *overrides: str) -> tuple[PairEngine, Any]:
    config = composed("+recipe=agon_cpu", f"actor_rollout_ref.model.path={tiny / 'model'}", *overrides)
    config.actor_rollout_ref.actor.optim.total_training_steps = 10
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    engine = PairEngine(model, actor.engine, actor.optim, actor.checkpoint)
    engine.initialize()
    return engine, partial(ppo_loss, config=actor)


def batch(adapter: str, rows: int, padding: int = 0, seed: int = 0) -> TensorDict:
    """Random rows of one adapter with random advantages, then rows without loss, as verl fills batches up with."""
    generator = torch.Generator().manual_seed(seed)

    def nested(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    size = rows + padding
    mask = [torch.full((RESPONSE,), int(row < rows)) for row in range(size)]
    draws = [  # a row's draws do not depend on how many follow it
        (torch.randint(4, 300, (PROMPT + RESPONSE,), generator=generator), torch.randn(1, generator=generator))
        for _ in range(size)
    ]
    ids = [row for row, _ in draws]
    data = TensorDict(
        {
            "input_ids": nested(ids),
            "position_ids": nested([torch.arange(PROMPT + RESPONSE) for _ in range(size)]),
            "prompts": nested([row[:PROMPT] for row in ids]),
            "responses": nested([row[PROMPT:] for row in ids]),
            "response_mask": nested(mask),
            "loss_mask": nested([row.clone() for row in mask]),
            "old_log_probs": nested([torch.full((RESPONSE,), -6.0) for _ in range(size)]),
            "advantages": nested([advantage * m for (_, advantage), m in zip(draws, mask, strict=True)]),
            ADAPTER: NonTensorStack(*[NonTensorData(adapter) for _ in range(size)]),
        },
        batch_size=size,
    )
    tu.assign_non_tensor(
        data,
        temperature=1.0,
        use_remove_padding=False,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=size,
        calculate_entropy=False,
    )
    return data


def update(engine: PairEngine, loss: Any, data: TensorDict) -> dict:
    with engine.train_mode():
        return engine.train_batch(data, loss_function=loss)


def snapshot(engine: PairEngine) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in engine.named_state()}


def differing(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in after if name not in before or not torch.equal(_plain(before[name]), _plain(after[name]))}


def _plain(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def test_a_starts_as_lora_does_and_b_with_noise(tiny: Path) -> None:
    engine, _ = make_engine(tiny, "agon.init_noise=0.05")
    b_matrices = {n: _plain(p) for n, p in engine.module.named_parameters() if ".lora_B." in n}
    of_a = [tensor for name, tensor in b_matrices.items() if ".A." in name]
    of_b = torch.cat([tensor.flatten() for name, tensor in b_matrices.items() if ".B." in name])
    assert all(not tensor.any() for tensor in of_a)
    assert of_b.std().item() == pytest.approx(0.05, rel=0.05)
    assert abs(of_b.mean().item()) < 0.005


def test_initial_adapters_depend_on_the_seed_alone(tiny: Path) -> None:
    first, again = (snapshot(make_engine(tiny)[0]) for _ in range(2))
    other = snapshot(make_engine(tiny, "agon.seed=1")[0])
    assert differing(first, again) == set()
    assert {name for name in first if "lora_" in name and ".B." in name} <= differing(first, other)


@pytest.mark.parametrize(("adapter", "other"), [("A", "B"), ("B", "A")])
def test_an_update_of_one_adapter_leaves_all_else_bit_identical(tiny: Path, adapter: str, other: str) -> None:
    engine, loss = make_engine(tiny)
    for name in (other, adapter):  # so that both have Adam moments
        update(engine, loss, batch(name, rows=4, seed=1))
    before = snapshot(engine)
    update(engine, loss, batch(adapter, rows=4, seed=2))
    touched = differing(before, snapshot(engine))
    own = {n for n in before if ("lora_" in n and f".{adapter}." in n) or n.startswith(f"adam.{adapter}.")}
    assert touched == own


def test_gradients_of_one_adapter_do_not_reach_the_clipping_of_the_other(tiny: Path) -> None:
    """verl clips over all parameters: what A left behind must be gone when B is clipped."""
    alone, loss = make_engine(tiny)
    norm_alone = update(alone, loss, batch("B", rows=4, seed=3))["metrics"]["grad_norm"]
    after, loss = make_engine(tiny)
    update(after, loss, batch("A", rows=4, seed=4))
    assert all(p.grad is None for p in after.module.parameters())
    assert update(after, loss, batch("B", rows=4, seed=3))["metrics"]["grad_norm"] == norm_alone


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_rows_without_loss_have_no_share_in_the_update(tiny: Path, mode: str) -> None:
    """A batch filled up with padding rows has the gradient of the batch itself, whatever the loss averages over."""
    norms = []
    for padding in (0, 4):
        engine, loss = make_engine(tiny, f"actor_rollout_ref.actor.loss_agg_mode={mode}")
        norms.append(update(engine, loss, batch("A", rows=4, padding=padding, seed=5))["metrics"]["grad_norm"])
    assert norms[0] > 0
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def log_probs(engine: PairEngine, data: TensorDict) -> torch.Tensor:
    tu.assign_non_tensor(data, compute_loss=False)
    with engine.eval_mode():
        return engine.infer_batch(data)["model_output"]["log_probs"].values()


def test_log_probs_are_those_of_the_rows_own_adapter(tiny: Path) -> None:
    engine, _ = make_engine(tiny, "agon.init_noise=0.3")
    as_a, as_b = (log_probs(engine, batch(adapter, rows=3)) for adapter in "AB")
    with engine.disable_adapter():
        base = log_probs(engine, batch("B", rows=3))
    assert torch.equal(as_a, base)  # A's product is zero until its first update
    assert (as_a - as_b).abs().mean() > 0.01
    assert torch.equal(log_probs(engine, batch("A", rows=3)), as_a)  # and B left no trace


def test_a_batch_of_both_adapters_is_refused(tiny: Path) -> None:
    mixed = batch("A", rows=2)
    mixed[ADAPTER] = NonTensorStack(NonTensorData("A"), NonTensorData("B"))
    with pytest.raises(ValueError, match="rows of one adapter"):
        adapter_of(mixed)


def test_both_adapters_travel_in_one_transfer(tiny: Path) -> None:
    engine, _ = make_engine(tiny)
    tensors, config = engine.get_per_tensor_param(base_sync_done=True)
    names = [name for name, _ in tensors]
    assert {name.split(":")[0] for name in names} == {"A", "B"} and len(names) == 2 * 2 * 2 * 7
    assert config["r"] == 16


def test_a_checkpoint_restores_adapters_moments_and_schedules(tiny: Path, tmp_path: Path) -> None:
    engine, loss = make_engine(tiny)
    for seed, adapter in enumerate("ABA"):
        update(engine, loss, batch(adapter, rows=4, seed=seed))
        engine.lr_scheduler_step()
    engine.save_checkpoint(str(tmp_path))
    restored, _ = make_engine(tiny, "agon.seed=9")
    restored.load_checkpoint(str(tmp_path))
    assert differing(snapshot(engine), snapshot(restored)) == set()
    assert [s.last_epoch for s in restored.lr_schedulers.values()] == [2, 1]
