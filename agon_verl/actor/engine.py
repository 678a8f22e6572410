"""An actor with several adapters: a frozen base, named PEFT adapters, one optimizer and schedule each.

`actor_rollout_ref.model.lora.adapters` lists the names. Every forward and backward pass runs under the adapter that
generated its rows: each row has a field with its name (`ADAPTER`), and a batch that mixes two is refused. Departures
from stock verl, besides the number of adapters:

- The adapters' initial weights are seeded; verl's differ between two runs of one config.
- Gradients are dropped right after a step, and those of other adapters are set aside during it. verl clips the norm
  over all parameters, so they would shrink the update.
- Adapters and their moments are float32 whatever `fsdp_config.model_dtype` is. bfloat16 would round every update, and
  lose one of 5e-5 on entries of at least 1/64, where half a step is larger: 39 % of a fresh `lora_A` with 1,536 inputs,
  none with 4,096. verl casts adapters to the base's dtype; FSDP2 only wants one dtype among the parameters that train.
  The forward pass computes in `mixed_precision.param_dtype` in either case.
- A loss that averages over sequences counts the rows that carry loss, not the padding rows.
- Log-probabilities and entropies are computed for all tokens at once, in float32 (`log_probs.py`). Where rows are
  packed, the output layer is computed for the tokens of responses only; elsewhere in a row both are zero.
- With a single update per rollout, the old log-probs are the update's own (`on_policy.py`).
- An update can come in parts (`PART`), as its rows are sampled; the optimizer steps once, in `finish_update`.
- LoRA layers are computed in one step of autograd (`lora_linear.py`). One rank uses no FSDP2.
- Rows can be packed without FlashAttention (`packed_attention.py`); where they are padded, a dynamic micro-batch is
  limited by its tokens with the padding. verl counts the tokens without, and pads afterwards.
"""

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager
from verl.utils.device import get_device_id, get_torch_device
from verl.utils.fsdp_utils import (
    load_fsdp_model_to_gpu,
    load_fsdp_optimizer,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)
from verl.utils.py_functional import convert_to_regular_types
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import prepare_micro_batches

from agon_verl.actor import packed_attention
from agon_verl.actor.log_probs import token_entropy, token_log_probs
from agon_verl.actor.lora_linear import LoraLinear
from agon_verl.actor.minibatches import cut_into, even_parts, padded_parts
from agon_verl.actor.on_policy import ONLY_UPDATE, on_policy, summed
from agon_verl.actor.optim import LINEAR, linear_decay
from agon_verl.actor.packed_attention import PACKED_SDPA, PackedRows, attention_for, require_packable
from agon_verl.actor.tensors import adapter_distance, adapter_parameters, gather, load, misfits, save, shard_like
from agon_verl.config import Opponent
from agon_verl.errors import CheckpointError, ConfigError
from agon_verl.pair.checkpoint import ADAPTER_FILE, TRAINING_STATE
from agon_verl.rollout.wire import ADAPTER, MODEL_TYPE, lora_ids, past_of, sync_name

KEPT = "kept"  # positions in a packed row whose logits are computed
NEED_ALL_LOGITS = ("use_fused_kernels", "calculate_sum_pi_squared", "distillation_use_topk", "distillation_only")
PART = "part"  # the trainer sets it on rows whose update is not complete


def adapter_of(data: TensorDict, adapters: Sequence[str]) -> str:
    """The one adapter that generated every row of `data`."""
    names = {data[ADAPTER]} if isinstance(data[ADAPTER], str) else set(data[ADAPTER])
    if len(names) != 1 or not names <= set(adapters):
        raise ValueError(f"a batch must contain rows of one adapter of {adapters}, but this one has rows of {names}")
    return names.pop()


def response_positions(micro_batch: TensorDict) -> torch.Tensor:
    """The positions of a packed micro-batch at which the tokens of its responses are predicted: one before each."""
    ends, lengths = micro_batch["input_ids"].offsets()[1:], micro_batch["response_mask"].offsets().diff()
    first = ends - 1 - lengths.cumsum(0)  # so that the positions of a row follow from those of all responses
    return first.repeat_interleave(lengths) + torch.arange(int(lengths.sum()), device=ends.device)


def micro_batches(data: TensorDict, dp_group: Any = None, **options: Any) -> tuple[list[TensorDict], Any]:
    """verl's `prepare_micro_batches`, but padding counts where rows are padded. All ranks have the same number."""
    padded = not tu.get_non_tensor_data(data, "use_remove_padding", default=True)
    if not padded or not tu.get_non_tensor_data(data, "use_dynamic_bsz", default=True):
        return prepare_micro_batches(data, dp_group=dp_group, **options)
    parts = padded_parts(data["input_ids"].offsets().diff().tolist(), data["max_token_len_per_gpu"])
    count = torch.tensor(len(parts), device=get_device_id())
    torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=dp_group)
    parts = cut_into(parts, int(count))
    return [tu.index_select_tensor_dict(data, part) for part in parts], parts


@EngineRegistry.register(model_type=MODEL_TYPE, backend="fsdp2", device=["cuda", "npu", "cpu"])
class MultiAdapterEngine(FSDPEngineWithLMHead):
    """verl's FSDP engine with several adapters; `activate` chooses the one in use."""

    def __init__(self, model_config: Any, *args: Any, **kwargs: Any) -> None:
        model_config.model_type = "language_model"  # what the parent builds; MODEL_TYPE only selected this class
        super().__init__(model_config, *args, **kwargs)
        self.adapters: tuple[str, ...] = tuple(model_config.lora["adapters"])
        # Three patches, in this process alone, which trains nothing else: verl imports the first two functions by name
        # (transformer_impl.py:65 and 82) and takes the third from `verl_F` (lines 181 and 1399).
        transformer_impl.logprobs_from_logits = token_log_probs
        transformer_impl.prepare_micro_batches = micro_batches
        transformer_impl.verl_F.entropy_from_logits = self.compute_entropy_from_logits = token_entropy
        self.steps = 0  # optimizer steps that were begun, of all adapters
        self.step_spans: dict[str, tuple[float, float]] = {}  # begin and end of each adapter's last one, as time.time()
        self._tokens: dict[str, int] = {}  # with loss, over all ranks, of each adapter's parts since its last step
        self.distance = 0.0  # between the first two adapters, as of the last sync
        self.past: dict[str, dict[str, torch.Tensor]] = {}  # an earlier snapshot of each adapter, for `agon.opponent`
        self._next_past: dict[str, dict[str, torch.Tensor]] = {}

    def initialize(self) -> None:
        super().initialize()
        with self.loaded():
            for adapter, path in self.model_config.lora["init"].items():
                if path is not None:
                    folder = Path(path).expanduser()
                    self.put_adapter(adapter, load_file(folder / ADAPTER_FILE), folder)
        if self._takes_snapshots:
            self.take_snapshot()

    @property
    def _takes_snapshots(self) -> bool:
        return Opponent(**self.model_config.lora["opponent"]).snapshots

    @property
    def _packs(self) -> bool:
        return self.model_config.hf_config._attn_implementation == PACKED_SDPA

    def _build_module(self) -> Any:
        """verl's own choice is FlashAttention, installed or not."""
        model = self.model_config
        model.hf_config._attn_implementation = attention_for(model.override_config, model.use_remove_padding)
        module = super()._build_module()
        if self._packs:
            require_packable(module.config, recurrent=getattr(module, "_is_stateful", False))
            if self.use_ulysses_sp:
                raise ConfigError(
                    f"actor.fsdp_config.ulysses_sequence_parallel_size={self.ulysses_sequence_parallel_size} needs "
                    f"FlashAttention: with attn_implementation={PACKED_SDPA} use 1"
                )
        return module

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        inputs, output_args = super().prepare_model_inputs(micro_batch)
        packed_attention.rows_in_use = PackedRows.in_batch(micro_batch, inputs, output_args) if self._packs else None
        if self._computes_responses_only(micro_batch, output_args):
            inputs["logits_to_keep"] = output_args[KEPT] = response_positions(micro_batch)
        return inputs, output_args

    def _computes_responses_only(self, micro_batch: TensorDict, output_args: dict[str, Any]) -> bool:
        """Not with padded rows, sequence parallelism or a filled-up row, and not for what needs all logits."""
        wants = {key: tu.get_non_tensor_data(micro_batch, key, default=False) for key in NEED_ALL_LOGITS}
        return (
            output_args.get("pad_size") == 0
            and not self.use_ulysses_sp
            and not any(wants.values())
            and "response_mask" in micro_batch.keys()
            and self._takes_positions
        )

    @cached_property
    def _takes_positions(self) -> bool:
        """Whether the model's forward function can compute logits for some positions only."""
        return "logits_to_keep" in inspect.signature(self.module.get_base_model().forward).parameters

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        kept = output_args.get(KEPT)
        if kept is None:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        logits = output.logits.squeeze(0)
        if not output_args.get("temperature_is_one", False):
            logits = logits / output_args["temperature_rmpad"][kept].to(logits.dtype).unsqueeze(-1)
        values = {"log_probs": token_log_probs(logits, output_args["input_ids_rmpad_rolled"][kept])}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", default=False):
            values["entropy"] = token_entropy(logits)
        offsets = micro_batch["input_ids"].offsets()
        rows = {name: value.new_zeros(int(offsets[-1])).index_copy(0, kept, value) for name, value in values.items()}
        return {name: torch.nested.nested_tensor_from_jagged(row, offsets) for name, row in rows.items()}

    def _build_lora_module(self, module: Any) -> Any:
        """The first adapter starts as LoRA does (its product is zero), the others with Gaussian noise for the zeros."""
        module.enable_input_require_grads()
        settings = self.model_config.lora
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings["seed"])
            first, *others = self.adapters
            module = get_peft_model(module, self._lora_config(), adapter_name=first)
            for adapter in others:
                module.add_adapter(adapter, self._lora_config())
            for name, parameter in module.named_parameters():
                if any(f".lora_B.{adapter}." in name for adapter in others):
                    torch.nn.init.normal_(parameter, std=settings["init_noise"])
        if any("lora_embedding_" in name for name, _ in module.named_parameters()):
            raise ValueError(
                f"actor_rollout_ref.model.target_modules={self.model_config.target_modules} puts LoRA on an embedding, "
                "which is not trained here: leave it out"
            )
        return module

    def _build_fsdp_module(self, module: Any) -> Any:
        """One rank shards nothing: its model stays as it is, with the base in the dtype in which it computes.

        FSDP2 would copy each weight into that dtype for every pass, forward and backward, and free it again.
        """
        settings = self.engine_config
        dtype = PrecisionType.to_dtype((settings.mixed_precision or {}).get("param_dtype", "bf16"))
        moves_parts = settings.offload_policy or settings.forward_only or self.model_config.enable_activation_offload
        if torch.distributed.get_world_size() > 1 or moves_parts or dtype == torch.float16:
            return super()._build_fsdp_module(module)
        self._autocast_dtype, self.scaler = dtype, None
        for name, parameter in module.named_parameters():
            if "lora_" not in name:
                parameter.data = parameter.data.to(dtype)
        return module.to(get_device_id())

    def _lora_config(self) -> LoraConfig:
        model = self.model_config
        config = LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=model.lora_rank,
            lora_alpha=model.lora_alpha,
            target_modules=convert_to_regular_types(model.target_modules),
            target_parameters=convert_to_regular_types(model.target_parameters),
            exclude_modules=convert_to_regular_types(model.exclude_modules),
            bias="none",
        )
        config._register_custom_module({torch.nn.Linear: LoraLinear})
        return config

    def _build_optimizer(self, module: torch.nn.Module) -> torch.optim.Optimizer:
        self.optimizers = {
            adapter: build_optimizer([*adapter_parameters(module, adapter).values()], self._optimizer_config(adapter))
            for adapter in self.adapters
        }
        return self.optimizers[self.adapters[0]]

    def _optimizer_config(self, adapter: str) -> Any:
        rate = self.model_config.lora["lr"][adapter]
        return self.optimizer_config if rate is None else dataclasses.replace(self.optimizer_config, lr=rate)

    def _build_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        self.lr_schedulers = {a: self._schedule(optimizer) for a, optimizer in self.optimizers.items()}
        return self.lr_schedulers[self.adapters[0]]

    def _schedule(self, optimizer: torch.optim.Optimizer) -> Any:
        config = self.optimizer_config
        if config.lr_scheduler_type != LINEAR:
            return super()._build_lr_scheduler(optimizer)
        total = config.total_training_steps
        warmup = config.lr_warmup_steps if config.lr_warmup_steps > 0 else int(config.lr_warmup_steps_ratio * total)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: linear_decay(step, warmup, total))

    def activate(self, adapter: str) -> None:
        self.active = adapter
        self.module.set_adapter(adapter)
        self.optimizer = self.optimizers[adapter]
        self.lr_scheduler = self.lr_schedulers[adapter]

    def infer_batch(self, data: TensorDict, loss_function: Callable | None = None) -> Any:
        self.activate(adapter_of(data, self.adapters))
        return super().infer_batch(data, loss_function)

    def train_batch(self, data: TensorDict, loss_function: Callable) -> Any:
        self.activate(adapter_of(data, self.adapters))
        rows = torch.stack([mask.sum() > 0 for mask in data["loss_mask"].unbind()]).sum().to(get_device_id())
        torch.distributed.all_reduce(rows, group=self.get_data_parallel_group())
        most = tu.get_non_tensor_data(data, "micro_batch_size_per_gpu", default=None) or len(data)
        _, micro = even_parts(len(data), most)
        tu.assign_non_tensor(data, global_batch_size=int(rows), micro_batch_size_per_gpu=micro)
        if tu.get_non_tensor_data(data, ONLY_UPDATE, default=False):
            loss_function = on_policy(loss_function)
        if tu.get_non_tensor_data(data, PART, default=False):
            return self._add_part(data, loss_function)
        return super().train_batch(data, loss_function)

    def _add_part(self, data: TensorDict, loss_function: Callable) -> Any:
        """Add the gradient of some rows to the active adapter's, and take no step.

        The loss is a mean over the tokens of all parts, whose number is known at the end: here it is a sum, which
        `finish_update` divides.
        """
        output = self.forward_backward_batch(data, summed(loss_function))
        tokens = data["batch_num_tokens"]
        self._tokens[self.active] = self._tokens.get(self.active, 0) + tokens
        output["loss"] = [loss / tokens for loss in output["loss"]]
        return output

    def finish_update(self, adapter: str) -> tuple[float, float]:
        """The optimizer's step over all parts. Returns the norm of the gradient, and the learning rate after it."""
        self.activate(adapter)
        tokens = self._tokens.pop(adapter)
        for parameter in adapter_parameters(self.module, adapter).values():
            if parameter.grad is not None:
                parameter.grad.div_(tokens)
        return self.optimizer_step(), self.lr_scheduler_step()

    def optimizer_zero_grad(self) -> None:
        """Nothing: `optimizer_step` drops the gradients that it used."""

    def optimizer_step(self) -> float:
        """Of the active adapter. verl clips the norm over all parameters, so the others' gradients are set aside."""
        self.steps += 1
        get_torch_device().synchronize()  # clipping would wait for the backward pass, whose time is not the step's
        begin = time.time()
        others = [other for other in self.adapters if other != self.active]
        aside = {p: p.grad for other in others for p in adapter_parameters(self.module, other).values()}
        for parameter in aside:
            parameter.grad = None
        norm = super().optimizer_step()
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, gradient in aside.items():
            parameter.grad = gradient
        self.step_spans[self.active] = (begin, time.time())
        return norm

    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """The parent moves the active optimizer; the others are moved with it."""
        super().to(device=device, model=model, optimizer=optimizer, grad=grad)
        if optimizer:
            for other in self.optimizers.values():
                if other is not self.optimizer and device == "cpu":
                    offload_fsdp_optimizer(other)
                elif other is not self.optimizer:
                    load_fsdp_optimizer(other, device)

    def adapter_tensors(self, adapter: str) -> dict[str, torch.Tensor]:
        """The adapter's full tensors on the CPU, by PEFT's names. A collective call: every rank must make it."""
        state = get_peft_model_state_dict(self.module, adapter_name=adapter)
        return {name: gather(tensor) for name, tensor in state.items()}

    def put_adapter(self, adapter: str, tensors: dict[str, torch.Tensor], origin: Path) -> None:
        """The inverse of `adapter_tensors`: copy full tensors into this rank's shard of the adapter."""
        targets = {name.replace(f".{adapter}.", "."): p for name, p in adapter_parameters(self.module, adapter).items()}
        if wrong := misfits(tensors, targets):
            raise CheckpointError(f"{origin} does not fit adapter {adapter} of this run: {wrong}")
        for name, target in targets.items():
            target.data.copy_(shard_like(tensors[name], target))

    def get_per_tensor_param(
        self, layered_summon: bool = False, base_sync_done: bool = False, **kwargs: Any
    ) -> tuple[Iterable[tuple[str, torch.Tensor]], dict[str, Any]]:
        """All adapters, for the rollout; each name has its adapter in it. vLLM loads the base from disk."""
        if not base_sync_done:
            raise RuntimeError("the frozen base is never synced: set actor_rollout_ref.rollout.load_format=safetensors")
        if not self._uses_fsdp2_cpu_offload_policy:
            load_fsdp_model_to_gpu(self.module)
        served = {adapter: self.adapter_tensors(adapter) for adapter in self.adapters}
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)
        if len(self.adapters) > 1:
            self.distance = adapter_distance(*(served[adapter] for adapter in self.adapters[:2]))
        served.update({past_of(adapter): tensors for adapter, tensors in self.past.items()})
        ids = lora_ids(self.adapters)
        tensors = {sync_name(a, ids[a], name): t for a, named in served.items() for name, t in named.items()}
        return iter(tensors.items()), self.module.peft_config[self.adapters[0]].to_dict()

    def take_snapshot(self) -> None:
        """The last snapshot becomes the opponent that is served; the present weights become the next snapshot."""
        with self.loaded():
            present = {adapter: self.adapter_tensors(adapter) for adapter in self.adapters}
        self.past, self._next_past = self._next_past or present, present

    def save_checkpoint(
        self,
        local_path: str,
        hdfs_path: str | None = None,
        global_step: int = 0,
        max_ckpt_to_keep: int | None = None,
        **_: Any,
    ) -> None:
        """An ordinary PEFT folder per adapter, and the training state; `pair/checkpoint.py` has the layout."""
        folder = Path(local_path)
        with self.loaded():
            adapters = {adapter: self.adapter_tensors(adapter) for adapter in self.adapters}
            state = {
                "moments": {adapter: self._moments(adapter) for adapter in self.adapters},
                "updates": {adapter: schedule.last_epoch for adapter, schedule in self.lr_schedulers.items()},
                "scaler": None if self.scaler is None else self.scaler.state_dict(),
                "past": self.past,
                "next_past": self._next_past,
            }
        failure = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save(BaseCheckpointManager.get_rng_state(), folder / _rng_file(self.rank))
            if self.rank == 0:
                for adapter, tensors in adapters.items():
                    self.module.peft_config[adapter].save_pretrained(str(folder / adapter))
                    save_file(tensors, folder / adapter / ADAPTER_FILE)
                save(state, folder / TRAINING_STATE)
        except (OSError, RuntimeError, SafetensorError) as error:
            failure = f"rank {self.rank}: {error}"
        self._all_or_none(failure)

    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False, **_: Any
    ) -> None:
        folder = Path(local_path)
        state = load(folder / TRAINING_STATE)
        with self.loaded():
            for adapter in self.adapters:
                self.put_adapter(adapter, load_file(folder / adapter / ADAPTER_FILE), folder / adapter)
                self._put_moments(adapter, state["moments"][adapter])
                self._put_schedule(adapter, state["updates"][adapter])
        if self.scaler is not None and state["scaler"] is not None:
            self.scaler.load_state_dict(state["scaler"])
        if self._takes_snapshots:  # snapshots may be switched on at resume: then they begin with the present weights
            self.past, self._next_past = state["past"], state["next_past"]
            if not self.past:
                self.take_snapshot()
        if len(list(folder.glob(_rng_file("*")))) == torch.distributed.get_world_size():
            BaseCheckpointManager.load_rng_state(load(folder / _rng_file(self.rank)))
        torch.distributed.barrier()

    def _moments(self, adapter: str) -> dict[str, dict[str, Any]]:
        """Full moments by parameter name, independent of the number of ranks."""
        state = self.optimizers[adapter].state
        named = adapter_parameters(self.module, adapter).items()
        return {name: {key: gather(value) for key, value in state[p].items()} for name, p in named if p in state}

    def _put_moments(self, adapter: str, moments: dict[str, dict[str, Any]]) -> None:
        """Load moments; the optimizer's settings stay those of this run's config."""
        optimizer = self.optimizers[adapter]
        named = enumerate(adapter_parameters(self.module, adapter).items())
        state = {
            index: {key: shard_like(value, parameter) for key, value in moments[name].items()}
            for index, (name, parameter) in named
            if name in moments
        }
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _put_schedule(self, adapter: str, updates: int) -> None:
        """Continue after `updates`, with the peak and the length from this run's config."""
        schedule = self.lr_schedulers[adapter]
        schedule.last_epoch, schedule._step_count = updates, updates + 1
        rates = [base * share(updates) for base, share in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
        for group, rate in zip(self.optimizers[adapter].param_groups, rates, strict=True):
            group["lr"] = rate
        schedule._last_lr = rates

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Everything on its device: collectives cannot read what verl has offloaded to CPU memory."""
        if self._is_offload_param:
            load_fsdp_model_to_gpu(self.module)
        if self._is_offload_optimizer:
            for optimizer in self.optimizers.values():
                load_fsdp_optimizer(optimizer, get_device_id())
        yield
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)
        if self._is_offload_optimizer:
            for optimizer in self.optimizers.values():
                offload_fsdp_optimizer(optimizer)

    def _all_or_none(self, failure: str | None) -> None:
        """A barrier at which one rank's failure is raised on all ranks: none waits for a rank that has stopped."""
        failures: list[str | None] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(failures, failure)
        if any(failures):
            raise CheckpointError("; ".join(filter(None, failures)))

    def named_state(self, base: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        """Everything that defines the policies, by name: base, adapters, Adam moments. For checks of what changed."""
        for name, parameter in self.module.named_parameters():
            if base or "lora_" in name:
                yield name, _local(parameter)
        for adapter, optimizer in self.optimizers.items():
            for index, state in enumerate(optimizer.state.values()):
                for key, value in state.items():
                    yield f"adam.{adapter}.{index}.{key}", _local(torch.as_tensor(value))


def owner(name: str, adapters: Sequence[str]) -> str:
    """What an entry of `named_state` belongs to: `base`, an adapter's weights (`A`) or its moments (`adam.A`)."""
    if name.startswith("adam."):
        return ".".join(name.split(".")[:2])
    return next((adapter for adapter in adapters if "lora_" in name and f".{adapter}." in name), "base")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _rng_file(rank: int | str) -> str:
    return f"rng_{rank}.pt"
