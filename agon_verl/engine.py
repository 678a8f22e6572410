"""The two-adapter actor: one frozen base under FSDP2, PEFT adapters A and B, an optimizer and a schedule for each.

Every forward and backward pass runs under the adapter that generated its rows: rows carry its name (`ADAPTER`), and a
batch that mixes two is refused. Departures from stock verl, besides there being two of everything:

- The adapters' initial weights are seeded; verl's differ between two runs of one config.
- Gradients are dropped right after a step. verl clips the norm over all parameters, so the gradients one adapter leaves
  behind would shrink the next update of the other.
- A loss that averages over sequences counts the rows that carry loss, not the padding rows that fill a batch up.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from torch.distributed.tensor import DTensor, distribute_tensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import (
    load_fsdp_model_to_gpu,
    load_fsdp_optimizer,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)
from verl.utils.py_functional import convert_to_regular_types
from verl.workers.config.optimizer import build_optimizer
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agon_verl.game.roles import ADAPTERS
from agon_verl.optim import LINEAR, linear_decay
from agon_verl.wire import ADAPTER, MODEL_TYPE, SYNC_SEPARATOR


def adapter_of(data: TensorDict) -> str:
    """The one adapter that generated every row of `data`."""
    names = {data[ADAPTER]} if isinstance(data[ADAPTER], str) else set(data[ADAPTER])
    if len(names) != 1 or not names <= set(ADAPTERS):
        raise ValueError(f"a batch must hold the rows of one adapter of {ADAPTERS}, but this one has rows of {names}")
    return names.pop()


def adapter_parameters(module: torch.nn.Module, adapter: str) -> list[torch.nn.Parameter]:
    return [p for name, p in module.named_parameters() if "lora_" in name and f".{adapter}." in name]


@EngineRegistry.register(model_type=MODEL_TYPE, backend="fsdp2", device=["cuda", "npu", "cpu"])
class PairEngine(FSDPEngineWithLMHead):
    """verl's FSDP engine with two adapters, of which `activate` chooses the one in use."""

    def __init__(self, model_config: Any, *args: Any, **kwargs: Any) -> None:
        model_config.model_type = "language_model"  # what the parent builds; MODEL_TYPE only found this class
        super().__init__(model_config, *args, **kwargs)

    def _build_lora_module(self, module: Any) -> Any:
        """A as LoRA has it (its product is zero), B with Gaussian noise in place of the zeros."""
        module.enable_input_require_grads()
        dtype = next(module.parameters()).dtype
        settings = self.model_config.lora
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings["seed"])
            module = get_peft_model(module, self._lora_config(), adapter_name="A")
            module.add_adapter("B", self._lora_config())
            for name, parameter in module.named_parameters():
                if ".lora_B.B." in name:
                    torch.nn.init.normal_(parameter, std=settings["init_noise"])
        if any("lora_embedding_" in name for name, _ in module.named_parameters()):
            raise ValueError(
                f"actor_rollout_ref.model.target_modules={self.model_config.target_modules} puts LoRA on an embedding, "
                "which the pair does not train: leave it out"
            )
        for adapter in ADAPTERS:
            for parameter in adapter_parameters(module, adapter):
                parameter.data = parameter.data.to(dtype)
        return module

    def _lora_config(self) -> LoraConfig:
        model = self.model_config
        return LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=model.lora_rank,
            lora_alpha=model.lora_alpha,
            target_modules=convert_to_regular_types(model.target_modules),
            target_parameters=convert_to_regular_types(model.target_parameters),
            exclude_modules=convert_to_regular_types(model.exclude_modules),
            bias="none",
        )

    def _build_optimizer(self, module: torch.nn.Module) -> torch.optim.Optimizer:
        self.optimizers = {a: build_optimizer(adapter_parameters(module, a), self.optimizer_config) for a in ADAPTERS}
        return self.optimizers["A"]

    def _build_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        self.lr_schedulers = {a: self._schedule(optimizer) for a, optimizer in self.optimizers.items()}
        return self.lr_schedulers["A"]

    def _schedule(self, optimizer: torch.optim.Optimizer) -> Any:
        config = self.optimizer_config
        if config.lr_scheduler_type != LINEAR:
            return super()._build_lr_scheduler(optimizer)
        total = config.total_training_steps
        warmup = config.lr_warmup_steps if config.lr_warmup_steps > 0 else int(config.lr_warmup_steps_ratio * total)
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: linear_decay(step, warmup, total))

    def activate(self, adapter: str) -> None:
        self.module.set_adapter(adapter)
        self.optimizer = self.optimizers[adapter]
        self.lr_scheduler = self.lr_schedulers[adapter]

    def infer_batch(self, data: TensorDict, loss_function: Callable | None = None) -> Any:
        self.activate(adapter_of(data))
        return super().infer_batch(data, loss_function)

    def train_batch(self, data: TensorDict, loss_function: Callable) -> Any:
        self.activate(adapter_of(data))
        rows = torch.stack([mask.sum() > 0 for mask in data["loss_mask"].unbind()]).sum().to(get_device_id())
        torch.distributed.all_reduce(rows, group=self.get_data_parallel_group())
        tu.assign_non_tensor(data, global_batch_size=int(rows))
        return super().train_batch(data, loss_function)

    def optimizer_step(self) -> float:
        norm = super().optimizer_step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """The parent moves the active optimizer; the other one goes along."""
        super().to(device=device, model=model, optimizer=optimizer, grad=grad)
        if optimizer:
            for other in self.optimizers.values():
                if other is not self.optimizer and device == "cpu":
                    offload_fsdp_optimizer(other)
                elif other is not self.optimizer:
                    load_fsdp_optimizer(other, device)

    def adapter_tensors(self, adapter: str) -> dict[str, torch.Tensor]:
        """The adapter's whole tensors on the CPU, by PEFT's names; every rank must call this together."""
        state = get_peft_model_state_dict(self.module, adapter_name=adapter)
        return {n: (p.full_tensor() if isinstance(p, DTensor) else p).detach().cpu() for n, p in state.items()}

    def get_per_tensor_param(
        self, layered_summon: bool = False, base_sync_done: bool = False, **kwargs: Any
    ) -> tuple[Iterable[tuple[str, torch.Tensor]], dict[str, Any]]:
        """Both adapters for the rollout, names marked with their adapter. The base is loaded there from disk."""
        if not base_sync_done:
            raise RuntimeError("the frozen base is never synced: set actor_rollout_ref.rollout.load_format=safetensors")
        if not self._uses_fsdp2_cpu_offload_policy:
            load_fsdp_model_to_gpu(self.module)
        tensors = {f"{a}{SYNC_SEPARATOR}{n}": t for a in ADAPTERS for n, t in self.adapter_tensors(a).items()}
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)
        return iter(tensors.items()), self.module.peft_config["A"].to_dict()

    def save_checkpoint(
        self,
        local_path: str,
        hdfs_path: str | None = None,
        global_step: int = 0,
        max_ckpt_to_keep: int | None = None,
        **_: Any,
    ) -> None:
        """Two ordinary PEFT folders, and beside them each rank's part of the optimizers and the schedules."""
        folder = Path(local_path)
        folder.mkdir(parents=True, exist_ok=True)
        if self._is_offload_param:
            load_fsdp_model_to_gpu(self.module)
        for adapter in ADAPTERS:
            tensors = self.adapter_tensors(adapter)
            if self.rank == 0:
                self.module.peft_config[adapter].save_pretrained(str(folder / adapter))
                save_file(tensors, folder / adapter / "adapter_model.safetensors")
        state = {
            "optimizers": {a: o.state_dict() for a, o in self.optimizers.items()},
            "lr_schedulers": {a: s.state_dict() for a, s in self.lr_schedulers.items()},
        }
        torch.save(state, folder / _state_file(self.rank))
        torch.distributed.barrier()
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)

    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False, **_: Any
    ) -> None:
        folder = Path(local_path)
        parameters = dict(self.module.named_parameters())
        for adapter in ADAPTERS:
            for name, tensor in load_file(folder / adapter / "adapter_model.safetensors").items():
                target = parameters[name.removesuffix("weight") + f"{adapter}.weight"]
                if isinstance(target, DTensor):
                    tensor = distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements)
                target.data.copy_(tensor)
        state = torch.load(folder / _state_file(self.rank), weights_only=True)
        for adapter in ADAPTERS:
            self.optimizers[adapter].load_state_dict(state["optimizers"][adapter])
            self.lr_schedulers[adapter].load_state_dict(state["lr_schedulers"][adapter])
            if self._is_offload_optimizer:
                offload_fsdp_optimizer(self.optimizers[adapter])
        torch.distributed.barrier()

    def named_state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Everything that defines the policies, by name: base, adapters, Adam moments. To check what changed."""
        for name, parameter in self.module.named_parameters():
            yield name, parameter.detach()
        for adapter, optimizer in self.optimizers.items():
            for index, state in enumerate(optimizer.state.values()):
                for key, value in state.items():
                    yield f"adam.{adapter}.{index}.{key}", torch.as_tensor(value).detach()


def _state_file(rank: int) -> str:
    return f"training_state_{rank}_of_{torch.distributed.get_world_size()}.pt"
