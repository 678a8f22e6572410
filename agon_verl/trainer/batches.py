"""Batches as verl's V1 trainer has them: keys and tags here, the rows themselves in TransferQueue."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from agon_verl.rollout.wire import ADAPTER

# What an update may need of a row, of what is there; its other fields are for rewards, records and metrics.
TRAINED_ON = (
    "input_ids",
    "position_ids",
    "prompts",
    "responses",
    "response_mask",
    "loss_mask",
    "advantages",
    "old_log_probs",
    "rollout_log_probs",
    "rollout_is_weights",
    "ref_log_prob",
    "multi_modal_inputs",
    "routed_experts",
    ADAPTER,
)


def to_train_on(batch: KVBatchMeta, settings: dict[str, Any]) -> KVBatchMeta:
    """The rows with the fields of an update alone, and with settings for it."""
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=batch.keys,
        tags=batch.tags,
        fields=list(TRAINED_ON),
        extra_info={**batch.extra_info, **settings},
    )


def even_parts(rows: int, most: int) -> tuple[int, int]:
    """The fewest parts of one size, `most` or less, that hold all rows: their number and that size."""
    parts = math.ceil(rows / most)
    return parts, math.ceil(rows / parts)


def dealt(rows: int, ranks: int, parts: int) -> list[int]:
    """Each rank's share of the rows, in as many parts, which follow each other, with every so-many-th row in each."""
    share = rows // ranks
    return [
        row
        for rank in range(ranks)
        for part in range(parts)
        for row in range(rank * share, (rank + 1) * share)[part::parts]
    ]


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


def put_rewards(partition: str, keys: Sequence[str], extras: Sequence[dict[str, Any]]) -> None:
    """Challenges' rewards, and the records that hold them, as they are after the whole group was looked at."""
    scores = []
    for extra in extras:
        score = torch.zeros(extra["pair"]["challenge"]["length"])
        score[-1] = extra["pair"]["challenge_reward"]
        scores.append(score)
    fields = TensorDict(
        {
            "rm_scores": torch.nested.as_nested_tensor(scores, layout=torch.jagged),
            "extra_fields": NonTensorStack(*map(NonTensorData, extras)),
        },
        batch_size=len(keys),
    )
    tq.kv_batch_put(keys=list(keys), partition_id=partition, fields=fields)
