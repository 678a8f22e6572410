"""The two-adapter engine in this process, one gloo rank: isolation bit for bit, and what counts in the loss."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from safetensors.torch import load_file, save_file
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch.distributed.fsdp import FSDPModule
from verl import DataProto
from verl.utils import tensordict_utils as tu
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.metric import reduce_metrics
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.utils.padding import response_from_nested

from agon_verl.actor import engine as engine_module
from agon_verl.actor import self_check
from agon_verl.actor.engine import MultiAdapterEngine, adapter_of, owner
from agon_verl.actor.self_check import MARKS, UNMARKED, Marks
from agon_verl.actor.tensors import adapter_distance, adapter_parameters, save
from agon_verl.errors import CheckpointError
from agon_verl.pair.checkpoint import ADAPTER_FILE, TRAINING_STATE
from agon_verl.rollout.wire import ADAPTER
from tests.packed_against_padded import engine_of
from tests.recipes import composed

PROMPT, RESPONSE = 6, 5


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = tmp_path_factory.mktemp("gloo") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    os.environ.setdefault("LOCAL_RANK", "0")
    yield
    torch.distributed.destroy_process_group()


def make_engine(tiny: Path, *overrides: str) -> tuple[MultiAdapterEngine, Any]:
    return engine_of(composed("+recipe=agon_cpu", f"actor_rollout_ref.model.path={tiny / 'model'}", *overrides))


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


def update(engine: MultiAdapterEngine, loss: Any, data: TensorDict) -> dict:
    with engine.train_mode():
        return engine.train_batch(data, loss_function=loss)


def snapshot(engine: MultiAdapterEngine) -> dict[str, torch.Tensor]:
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


def test_adapters_and_moments_are_float32_over_a_base_in_half_precision(tiny: Path, tmp_path: Path) -> None:
    """In bfloat16 half of the entries would never move at this rate."""
    half = [
        "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16",
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
        "actor_rollout_ref.actor.optim.lr=5e-5",
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0",
    ]

    def dtypes(engine: MultiAdapterEngine) -> dict[bool, set[torch.dtype]]:
        state = list(engine.named_state())
        return {adapts: {t.dtype for n, t in state if (owner(n, "AB") != "base") is adapts} for adapts in (True, False)}

    engine, loss = make_engine(tiny, *half)
    before = snapshot(engine)
    update(engine, loss, batch("B", rows=4, seed=0))  # after more of them, an entry may be back where it was
    assert dtypes(engine) == {True: {torch.float32}, False: {torch.bfloat16}}
    first_moments = [s["exp_avg"] for s in engine.optimizers["B"].state.values()]
    for (name, parameter), moment in zip(adapter_parameters(engine.module, "B").items(), first_moments, strict=True):
        moved = before[name] != _plain(parameter)
        assert moved[_plain(moment) != 0].all(), name

    engine.save_checkpoint(str(tmp_path))
    assert {t.dtype for t in load_file(tmp_path / "B" / ADAPTER_FILE).values()} == {torch.float32}
    restored, _ = make_engine(tiny, *half, "agon.seed=9")
    restored.load_checkpoint(str(tmp_path))
    assert dtypes(restored) == dtypes(engine)
    assert differing(snapshot(engine), snapshot(restored)) == set()


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-6), ("bf16", 1e-2)])
def test_one_rank_teaches_without_fsdp_what_it_teaches_with_it(
    tiny: Path, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is stored as FSDP2 would cast it for each pass, so a float32 checkpoint is rounded in the same place."""
    settings = [f"actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype={dtype}", "agon.init_noise=0.05"]
    changes = []
    for plain in (True, False):
        if not plain:
            monkeypatch.setattr(MultiAdapterEngine, "_build_fsdp_module", FSDPEngineWithLMHead._build_fsdp_module)
        engine, loss = make_engine(tiny, *settings)
        assert isinstance(engine.module, FSDPModule) is not plain
        stored = {t.dtype for name, t in engine.named_state() if owner(name, "AB") == "base"}
        assert stored == {torch.bfloat16 if plain and dtype == "bf16" else torch.float32}
        before = snapshot(engine)
        norm = update(engine, loss, batch("B", rows=4))["metrics"]["grad_norm"]
        gradient = [s["exp_avg"] for s in engine.optimizers["B"].state.values()]
        assert {owner(name, "AB") for name in differing(before, snapshot(engine))} == {"B", "adam.B"}
        changes.append((norm, torch.cat([_plain(each).flatten() for each in gradient])))
    (norm, ours), (other_norm, theirs) = changes
    assert norm == pytest.approx(other_norm, rel=tolerance)
    assert (ours - theirs).norm() < tolerance * theirs.norm()


def test_a_checkpoint_of_adapters_in_half_precision_loads(tiny: Path, tmp_path: Path) -> None:
    """As earlier versions saved it with `model_dtype=bf16`."""
    engine = trained(tiny)
    engine.save_checkpoint(str(tmp_path))
    for adapter in "AB":
        file = tmp_path / adapter / ADAPTER_FILE
        save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file)
    state = torch.load(tmp_path / TRAINING_STATE, weights_only=True)
    for moments in state["moments"].values():
        for entry in moments.values():
            entry.update({key: entry[key].bfloat16() for key in ("exp_avg", "exp_avg_sq")})
    save(state, tmp_path / TRAINING_STATE)
    restored, loss = make_engine(tiny, "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16")
    restored.load_checkpoint(str(tmp_path))
    assert {t.dtype for n, t in restored.named_state() if owner(n, "AB") != "base"} == {torch.float32}
    update(restored, loss, batch("A", rows=4))


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


def log_probs(engine: MultiAdapterEngine, data: TensorDict) -> torch.Tensor:
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


def test_micro_batches_are_cut_evenly_and_teach_the_same(tiny: Path) -> None:
    """Six rows with a size of four are three and three, which verl would refuse; all at once is the plain way."""
    trained = []
    for size in (6, 4):
        engine, loss = make_engine(tiny)
        data = batch("B", rows=6, seed=4)
        tu.assign_non_tensor(data, micro_batch_size_per_gpu=size)
        update(engine, loss, data)
        trained.append(snapshot(engine))
    plain, cut = trained
    for name, tensor in plain.items():
        torch.testing.assert_close(_plain(cut[name]), _plain(tensor), atol=1e-7, rtol=1e-5)


def test_an_update_in_parts_teaches_what_one_batch_teaches(tiny: Path) -> None:
    """The parts have different lengths, and those of the other adapter come between them."""
    whole, parts = (make_engine(tiny, "agon.init_noise=0.3", "actor_rollout_ref.actor.optim.lr=0.01") for _ in range(2))
    engine, loss = whole
    norms, rates, before = {}, {}, snapshot(engine)
    for adapter, seed in (("A", 1), ("B", 2)):
        norms[adapter] = update(engine, loss, masked(batch(adapter, rows=6, seed=seed)))["metrics"]["grad_norm"]
        rates[adapter] = engine.lr_scheduler_step()
    expected, (engine, loss) = snapshot(engine), parts
    rows = {adapter: masked(batch(adapter, rows=6, seed=seed)) for adapter, seed in (("A", 1), ("B", 2))}
    for part in (slice(0, 1), slice(1, 4), slice(4, 6)):
        for adapter in "BA":
            data = tu.index_select_tensor_dict(rows[adapter], list(range(6))[part])
            tu.assign_non_tensor(data, part=True)
            update(engine, loss, data)
            assert engine.steps == 0
    assert not differing(before, snapshot(engine))
    for adapter in "AB":
        norm, rate = engine.finish_update(adapter)
        assert norm == pytest.approx(norms[adapter], rel=1e-5) and rate == rates[adapter]
    assert all(parameter.grad is None for parameter in engine.module.parameters())
    after = snapshot(engine)
    assert differing(before, after) == differing(before, expected)
    for name, tensor in expected.items():
        # The first moment is a tenth of the gradient. Adam divides it by its size, so a tiny gradient's rounding shows.
        exact = name.endswith(".exp_avg")
        torch.testing.assert_close(
            _plain(after[name]), _plain(tensor), atol=1e-7 if exact else 1e-4, rtol=1e-5 if exact else 1e-4
        )


def test_the_last_optimizer_step_of_an_adapter_has_a_time_whichever_way_it_is_made(tiny: Path) -> None:
    engine, loss = make_engine(tiny)
    before = time.time()
    update(engine, loss, batch("B", rows=2, seed=1))
    part = batch("A", rows=2, seed=2)
    tu.assign_non_tensor(part, part=True)
    update(engine, loss, part)
    assert set(engine.step_spans) == {"B"}
    engine.finish_update("A")
    assert [*engine.step_spans] == ["B", "A"]
    times = [before, *engine.step_spans["B"], *engine.step_spans["A"], time.time()]
    assert times == sorted(times)


def masked(data: TensorDict) -> TensorDict:
    """Rows whose losses count different numbers of tokens."""
    for name in ("response_mask", "loss_mask"):
        for row, mask in enumerate(data[name].unbind()):
            mask[row % RESPONSE + 1 :] = 0
    return data


@pytest.mark.parametrize("coefficient", [0.0, 0.1])
def test_the_first_update_needs_no_pass_for_its_old_log_probs(tiny: Path, coefficient: float) -> None:
    """Against verl's way, the pass and then the update: weights, norm of the gradient, what the pass is read for."""

    def data() -> TensorDict:
        rows = batch("B", rows=5, padding=1, seed=3)
        rollout = torch.randn(6, RESPONSE, generator=torch.Generator().manual_seed(9)).abs().neg()
        rows["rollout_log_probs"] = torch.nested.as_nested_tensor([*rollout], layout=torch.jagged)
        tu.assign_non_tensor(
            rows, calculate_entropy=True, micro_batch_size_per_gpu=2, entropy_in_loss=bool(coefficient)
        )
        return rows

    def trained(rows: TensorDict) -> tuple[dict[str, torch.Tensor], dict]:
        metrics = reduce_metrics(dict(update(engine, loss, rows)["metrics"]))
        return snapshot(engine), metrics

    overrides = ["agon.init_noise=0.05", f"actor_rollout_ref.actor.entropy_coeff={coefficient}"]
    engine, loss = make_engine(tiny, *overrides)
    plain = data()
    with engine.eval_mode():
        passed = engine.infer_batch(plain.copy())["model_output"]
    plain["old_log_probs"] = response_from_nested(passed["log_probs"], plain["response_mask"])
    padded = DataProto(batch=plain.select("old_log_probs", "rollout_log_probs", "responses", "response_mask"))
    padded.batch = padded.batch.to_padded_tensor()
    gap = calculate_debug_metrics(padded)
    kl = (plain["rollout_log_probs"].values() - plain["old_log_probs"].values())[: 5 * RESPONSE].mean()
    weights, metrics = trained(plain)

    engine, loss = make_engine(tiny, *overrides)
    first = data()
    del first["old_log_probs"]
    tu.assign_non_tensor(first, only_update=True)
    same_weights, same_metrics = trained(first)

    for name, tensor in weights.items():
        torch.testing.assert_close(_plain(same_weights[name]), _plain(tensor), atol=1e-7, rtol=1e-5)
    for name in ("grad_norm", "actor/pg_loss", "actor/entropy_loss", "actor/ppo_kl"):
        assert same_metrics[name] == pytest.approx(metrics[name], rel=1e-4, abs=1e-6)
    for name in ("training/rollout_probs_diff_mean", "training/rollout_probs_diff_max"):
        assert same_metrics[name] == pytest.approx(gap[name], rel=1e-4)
    assert same_metrics["rollout_corr/kl"] == pytest.approx(float(kl), rel=1e-4)


def test_a_batch_of_both_adapters_is_refused(tiny: Path) -> None:
    mixed = batch("A", rows=2)
    mixed[ADAPTER] = NonTensorStack(NonTensorData("A"), NonTensorData("B"))
    with pytest.raises(ValueError, match="rows of one adapter"):
        adapter_of(mixed, ("A", "B"))


def test_both_adapters_travel_in_one_transfer(tiny: Path) -> None:
    engine, _ = make_engine(tiny)
    tensors, config = engine.get_per_tensor_param(base_sync_done=True)
    names = [name for name, _ in tensors]
    assert {name.split(":")[0] for name in names} == {"A", "B"} and len(names) == 2 * 2 * 2 * 7
    assert config["r"] == 16


def trained(tiny: Path, *overrides: str) -> MultiAdapterEngine:
    engine, loss = make_engine(tiny, *overrides)
    for seed, adapter in enumerate("ABA"):
        update(engine, loss, batch(adapter, rows=4, seed=seed))
        engine.lr_scheduler_step()
    return engine


def test_a_checkpoint_restores_adapters_moments_and_schedules(tiny: Path, tmp_path: Path) -> None:
    engine = trained(tiny)
    engine.save_checkpoint(str(tmp_path))
    restored, loss = make_engine(tiny, "agon.seed=9")
    restored.load_checkpoint(str(tmp_path))
    assert differing(snapshot(engine), snapshot(restored)) == set()
    assert [s.last_epoch for s in restored.lr_schedulers.values()] == [2, 1]
    groups = [[{**o.state_dict()["param_groups"][0]} for o in e.optimizers.values()] for e in (engine, restored)]
    assert groups[0] == groups[1]
    assert [s.get_last_lr() for s in engine.lr_schedulers.values()] == [
        s.get_last_lr() for s in restored.lr_schedulers.values()
    ]
    for each in (engine, restored):  # and they go on alike
        update(each, loss, batch("B", rows=4, seed=7))
    assert differing(snapshot(engine), snapshot(restored)) == set()


def test_a_resumed_run_takes_its_rates_from_its_own_config(tiny: Path, tmp_path: Path) -> None:
    """The remedy of several alarms is a lower learning rate, and a finished run may be made longer."""
    trained(tiny, "actor_rollout_ref.actor.optim.lr=0.5").save_checkpoint(str(tmp_path))
    slower, _ = make_engine(tiny, "actor_rollout_ref.actor.optim.lr=0.05", "agon.lr.B=0.001")
    slower.load_checkpoint(str(tmp_path))
    # Ten steps, one of warm-up: update 2 of A gets 8/9 of the peak, update 1 of B all of it.
    assert slower.optimizers["A"].param_groups[0]["lr"] == pytest.approx(0.05 * 8 / 9)
    assert slower.optimizers["B"].param_groups[0]["lr"] == pytest.approx(0.001)
    slower.activate("A")
    assert slower.lr_scheduler_step() == pytest.approx(0.05 * 7 / 9)


def test_snapshots_may_be_switched_on_and_off_on_resume(tiny: Path, tmp_path: Path) -> None:
    on, off = "agon.opponent.share=0.5", "agon.opponent.share=0.0"
    for before, after, served in ((off, on, {"A", "B", "A_past", "B_past"}), (on, off, {"A", "B"})):
        folder = tmp_path / after
        engine = trained(tiny, before)
        engine.save_checkpoint(str(folder))
        resumed, _ = make_engine(tiny, after)
        resumed.load_checkpoint(str(folder))
        synced = dict(resumed.get_per_tensor_param(base_sync_done=True)[0])
        assert {name.split(":")[0] for name in synced} == served
        if after == on:  # they begin with the adapters as they are
            assert all(torch.equal(synced[f"A_past:3:{n}"], t) for n, t in engine.adapter_tensors("A").items())


def test_a_checkpoint_without_any_update_loads(tiny: Path, tmp_path: Path) -> None:
    engine, _ = make_engine(tiny)
    engine.save_checkpoint(str(tmp_path))
    restored, _ = make_engine(tiny, "agon.seed=9")
    restored.load_checkpoint(str(tmp_path))
    assert differing(snapshot(engine), snapshot(restored)) == set()


def test_adapters_start_from_those_given(tiny: Path, tmp_path: Path) -> None:
    engine = trained(tiny)
    engine.save_checkpoint(str(tmp_path))
    swapped, _ = make_engine(tiny, f"agon.init.A={tmp_path / 'B'}", f"agon.init.B={tmp_path / 'A'}")
    assert all(torch.equal(t, swapped.adapter_tensors("B")[n]) for n, t in engine.adapter_tensors("A").items())
    assert all(torch.equal(t, swapped.adapter_tensors("A")[n]) for n, t in engine.adapter_tensors("B").items())
    one, _ = make_engine(tiny, f"agon.init.B={tmp_path / 'A'}")
    assert all(not t.any() for n, t in one.adapter_tensors("A").items() if "lora_B" in n)  # A is fresh


def test_an_adapter_of_other_modules_is_refused_with_their_names(tiny: Path, tmp_path: Path) -> None:
    engine, _ = make_engine(tiny)
    engine.save_checkpoint(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"it has .*down_proj.* not in the run's target_modules"):
        make_engine(tiny, f"agon.init.A={tmp_path / 'A'}", "actor_rollout_ref.model.target_modules=[q_proj]")
    with pytest.raises(CheckpointError, match=r"is \(16, 64\) there and \(8, 64\) here"):
        make_engine(tiny, f"agon.init.A={tmp_path / 'A'}", "actor_rollout_ref.model.lora_rank=8")


def test_each_adapter_may_have_its_own_rate(tiny: Path) -> None:
    engine, _ = make_engine(tiny, "agon.lr.B=0.25", "actor_rollout_ref.actor.optim.lr=0.5")
    rates = {adapter: optimizer.param_groups[0]["initial_lr"] for adapter, optimizer in engine.optimizers.items()}
    assert rates == {"A": 0.5, "B": 0.25}


def test_a_snapshot_is_read_when_the_next_one_is_taken(tiny: Path, tmp_path: Path) -> None:
    engine, loss = make_engine(tiny, "agon.opponent.share=0.5")
    states = [engine.adapter_tensors("A")]
    assert engine.past["A"].keys() == states[0].keys()
    for seed in range(2):
        update(engine, loss, batch("A", rows=4, seed=seed))
        engine.take_snapshot()
        states.append(engine.adapter_tensors("A"))
        assert all(torch.equal(engine.past["A"][name], t) for name, t in states[seed].items())
    served = {name.split(":")[0] for name, _ in engine.get_per_tensor_param(base_sync_done=True)[0]}
    assert served == {"A", "B", "A_past", "B_past"}
    engine.save_checkpoint(str(tmp_path))
    restored, _ = make_engine(tiny, "agon.opponent.share=0.5")
    restored.load_checkpoint(str(tmp_path))
    restored.take_snapshot()
    assert all(torch.equal(restored.past["A"][name], t) for name, t in states[2].items())


def test_the_distance_is_that_of_the_changes_to_the_base(tiny: Path) -> None:
    engine = trained(tiny)
    engine.get_per_tensor_param(base_sync_done=True)
    a, b = (engine.adapter_tensors(adapter) for adapter in "AB")

    def change(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        downs = [name for name in tensors if "lora_A" in name]
        return torch.cat([(tensors[n.replace("lora_A", "lora_B")] @ tensors[n]).flatten() for n in downs]).double()

    by_hand = (change(a) - change(b)).norm() / (change(a).norm() + change(b).norm())
    assert engine.distance == pytest.approx(by_hand.item(), rel=1e-5)
    assert 0 < engine.distance < 1
    assert adapter_distance(a, a) == pytest.approx(0, abs=1e-6)
    fresh = {name: torch.zeros_like(t) if "lora_B" in name else t for name, t in a.items()}
    assert adapter_distance(fresh, b) == pytest.approx(1)  # one has not changed anything yet
    assert adapter_distance(fresh, fresh) == 0


def test_the_self_check_passes_and_leaves_no_trace(tiny: Path) -> None:
    engine = trained(tiny)
    before, schedules = snapshot(engine), [s.state_dict() for s in engine.lr_schedulers.values()]
    loss = make_engine(tiny)[1]
    assert self_check.isolation(engine, lambda data: update(engine, loss, data), list(range(5, 40))) == []
    assert differing(before, snapshot(engine)) == set()
    assert [s.state_dict() for s in engine.lr_schedulers.values()] == schedules


def test_the_self_check_passes_where_the_rate_is_zero(tiny: Path) -> None:
    """As at the first step of a warm-up, or after the last step of a run."""
    engine, loss = make_engine(tiny, "actor_rollout_ref.actor.optim.lr=0")
    before = snapshot(engine)
    assert self_check.isolation(engine, lambda data: update(engine, loss, data), list(range(5, 40))) == []
    assert differing(before, snapshot(engine)) == set()
    assert [o.param_groups[0]["lr"] for o in engine.optimizers.values()] == [0, 0]


def test_the_self_check_names_an_update_that_reaches_the_other_adapter(tiny: Path) -> None:
    engine, loss = make_engine(tiny)

    def leaky(data: TensorDict) -> None:
        update(engine, loss, data)
        if adapter_of(data, ("A", "B")) == "A":
            adapter_parameters(engine.module, "B").popitem()[1].data.add_(1e-3)

    (violation,) = self_check.isolation(engine, leaky, list(range(5, 40)))
    assert violation == "an update of adapter A changed ['A', 'B', 'adam.A']"


@pytest.mark.parametrize("offloaded", ["param_offload", "optimizer_offload"])
def test_the_self_check_restores_while_everything_is_on_its_device(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, offloaded: str
) -> None:
    """An optimizer takes its moments to where its parameters are; with offloaded parameters that is the CPU."""
    engine, loss = make_engine(tiny, f"actor_rollout_ref.actor.fsdp_config.{offloaded}=true")
    update(engine, loss, batch("A", rows=4))
    on_device = {"param_offload": False, "optimizer_offload": False}
    for name, setting in (("fsdp_model_to_{}", "param_offload"), ("fsdp_optimizer", "optimizer_offload")):
        for verb, place, there in (("load", "gpu", True), ("offload", "cpu", False)):
            function = f"{verb}_{name.format(place)}"
            real = getattr(engine_module, function)

            def moved(*args: Any, real: Any = real, setting: str = setting, there: bool = there) -> None:
                on_device[setting] = there
                real(*args)

            monkeypatch.setattr(engine_module, function, moved)
    places = []
    for optimizer in engine.optimizers.values():
        optimizer.register_load_state_dict_pre_hook(lambda *_: places.append(on_device[offloaded]))
    before = snapshot(engine)
    with self_check.undone(engine):
        update(engine, loss, batch("A", rows=4, seed=1))
        assert differing(before, snapshot(engine)) and not on_device[offloaded]
    assert places == [True, True] and not on_device[offloaded]
    assert differing(before, snapshot(engine)) == set()


def test_marks_differ_and_are_undone(tiny: Path) -> None:
    engine = trained(tiny)
    before, marks = snapshot(engine), Marks(engine)
    under = {}
    for mark in (UNMARKED, MARKS[-2], MARKS[-1], MARKS[-2]):
        marks.put(mark)
        again = {adapter: log_probs(engine, batch(adapter, rows=3)) for adapter in "AB"}
        assert all(torch.equal(under[mark][a], again[a]) for a in again) if mark in under else True
        under[mark] = again
    assert (under[MARKS[-1]]["A"] - under[MARKS[-1]]["B"]).abs().mean() > 0.05
    assert (under[MARKS[-1]]["A"] - under[MARKS[-2]]["A"]).abs().mean() > 0.05
    marks.put(UNMARKED)
    assert differing(before, snapshot(engine)) == set()


def test_a_full_disk_is_called_that(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        save(torch.zeros(100_000), Path("/dev/full"))
    engine, _ = make_engine(tiny)
    (tmp_path / "rng_0.pt").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="rank 0: .*No space left on device"):
        engine.save_checkpoint(str(tmp_path))
