"""Batches as verl's V1 trainer has them: keys and tags here, the rows themselves in TransferQueue."""

from collections.abc import Sequence

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta


def select(batch: KVBatchMeta, rows: Sequence[int]) -> KVBatchMeta:
    return KVBatchMeta(
        partition_id=batch.partition_id, keys=[batch.keys[i] for i in rows], tags=[batch.tags[i] for i in rows]
    )


def concat(batches: Sequence[KVBatchMeta]) -> KVBatchMeta:
    return KVBatchMeta(
        partition_id=batches[0].partition_id,
        keys=[key for batch in batches for key in batch.keys],
        tags=[tag for batch in batches for tag in batch.tags],
    )


def no_advantage(batch: KVBatchMeta) -> None:
    """Zeros where verl's metrics look for the advantages of every row."""
    if not batch.keys:
        return
    zeros = torch.nested.as_nested_tensor([torch.zeros(tag["response_len"]) for tag in batch.tags], layout=torch.jagged)
    fields = TensorDict({"advantages": zeros, "returns": zeros.clone()}, batch_size=len(batch.keys))
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
