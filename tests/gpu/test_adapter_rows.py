"""vLLM's record of which token uses which adapter, on a GPU that is busy. Takes seconds, and no model."""

import pytest

BATCHES = ([0] * 300, [2, 0, 1, -1] * 40, [-1] * 5, [1], [-1, 1], [2, 2, -1, 0, 1] * 100)


def test_the_record_is_vllms_own_and_does_not_wait() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    pytest.importorskip("vllm")
    from vllm.lora.ops.triton_ops.lora_kernel_metadata import LoRAKernelMeta

    from agon_verl.rollout.adapter_rows import record

    ours, theirs = (LoRAKernelMeta.make(3, 1024, "cuda") for _ in range(2))
    copies = []
    torch.cuda._sleep(1_000_000_000)  # half a second, so that every copy is still to come when its batch is replaced
    for slots in BATCHES:
        torch.cuda.set_sync_debug_mode("error")
        try:
            record(ours, slots)
            copies.append([part.clone() for part in ours.meta_args(len(slots), True)])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for slots, copy in zip(BATCHES, copies, strict=True):
        theirs.prepare_tensors(torch.tensor(slots, device="cuda"))
        assert [part.tolist() for part in copy] == [part.tolist() for part in theirs.meta_args(len(slots), True)]
