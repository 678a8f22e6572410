"""Batches of verl's V1 trainer: keys and tags in this process, the rows themselves in TransferQueue."""

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta

from agon_verl.rollout.wire import ADAPTER

# The fields of a row that an update may read, if present; the others are for rewards, records and metrics.
UPDATE_FIELDS = (
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


def update_input(batch: KVBatchMeta, settings: dict[str, Any]) -> KVBatchMeta:
    """The rows with only the fields that an update reads, and with its settings."""
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=batch.keys,
        tags=batch.tags,
        fields=list(UPDATE_FIELDS),
        extra_info={**batch.extra_info, **settings},
    )


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
    """Write zero advantages: verl's metrics read those of every row."""
    if not batch.keys:
        return
    zeros = torch.nested.as_nested_tensor([torch.zeros(tag["response_len"]) for tag in batch.tags], layout=torch.jagged)
    fields = TensorDict({"advantages": zeros, "returns": zeros.clone()}, batch_size=len(batch.keys))
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def put_rewards(partition: str, keys: Sequence[str], extras: Sequence[dict[str, Any]]) -> None:
    """Replace the rewards of challenges, and the records that contain them."""
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
