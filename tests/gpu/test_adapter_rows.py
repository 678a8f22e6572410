"""vLLM's record of which token uses which adapter, on a GPU that is busy. Takes seconds, and no model."""

from typing import Any

import pytest

ADAPTERS = [7, 4, 9]  # by slot
BATCHES = ([7] * 300, [9, 7, 4, 0] * 40, [0] * 5, [4], [0, 4], [9, 9, 0, 7, 4] * 400)


def test_the_record_is_vllms_own_and_does_not_wait() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    pytest.importorskip("vllm")
    from types import SimpleNamespace

    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_gpu import PunicaWrapperGPU

    from agon_verl.rollout.adapter_rows import SortsOnCpu

    slots = SimpleNamespace(max_loras=len(ADAPTERS), specialize_active_lora=False)
    ours, theirs = (kind(2048, 512, "cuda", lora_config=slots) for kind in (SortsOnCpu, PunicaWrapperGPU))

    def read(wrapper: Any, tokens: int) -> list[Any]:
        metas = wrapper.token_mapping_meta, wrapper.prompt_mapping_meta
        return [
            part.clone() for meta, count in zip(metas, (tokens, 1), strict=True) for part in meta.meta_args(count, True)
        ]

    def update(wrapper: Any, batch: list[int]) -> list[Any]:
        wrapper.update_metadata(
            LoRAMapping(tuple(batch), (batch[0],), is_prefill=True), ADAPTERS, len(ADAPTERS) + 1, 100
        )
        return read(wrapper, len(batch))

    update(ours, BATCHES[0])  # memory is allocated
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    busy = torch.cuda.Event()
    busy.record()
    records = [update(ours, batch) for batch in BATCHES]
    assert not busy.query(), "it waited until the GPU had finished"
    for batch, record in zip(BATCHES, records, strict=True):
        assert [part.tolist() for part in record] == [part.tolist() for part in update(theirs, batch)]
