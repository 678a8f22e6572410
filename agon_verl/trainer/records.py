"""The pairs of a step as JSON lines: problem, draft, the attempt as shown, challenge, verdicts and times."""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from agon_verl.config import AgonConfig
from agon_verl.game.tags import TagKeeper
from agon_verl.rollout.row_key import RowKey, challenge_keys
from agon_verl.rollout.wire import ADAPTER

Span = tuple[float, float]  # begin and end, as time.time()


@dataclass
class TrainingTimes:
    """When a step trained. Rows of dead groups have no time, nor has the optimizer of an adapter without live rows."""

    begin: float
    updates: dict[str, Span] = field(default_factory=dict)  # by row: of the call that computed its gradient
    optimizer: dict[str, Span] = field(default_factory=dict)  # by adapter
    sync: Span | None = None  # of the adapters to vLLM


def pair_records(
    batch: KVBatchMeta, reader: TagKeeper, game: AgonConfig, step: int, times: TrainingTimes
) -> list[dict[str, Any]]:
    challenges = challenge_keys(batch.keys)
    keys = [key for challenge in challenges for key in (str(RowKey.parse(challenge).draft), challenge)]
    data = tq.kv_batch_get(
        keys=keys,
        partition_id=batch.partition_id,
        select_fields=["prompts", "responses", "extra_fields", "reward_model", ADAPTER],
    )
    texts = {field: [reader.decode(ids) for ids in data[field].unbind()] for field in ("prompts", "responses")}
    extras, adapters, gold = list(data["extra_fields"]), list(data[ADAPTER]), list(data["reward_model"])
    return [
        {
            "uid": RowKey.parse(keys[b]).uid,
            "step": step,
            "drafter": adapters[a],
            "challenger": adapters[b],
            "problem": texts["prompts"][a],
            "ground_truth": gold[b]["ground_truth"],
            "draft": texts["responses"][a],
            "attempt": extras[b]["attempt"],
            "challenge": texts["responses"][b],
            "pair": extras[b]["pair"],
            "draft_span": extras[b]["draft_span"],
            "challenge_span": extras[b]["span"],
            "draft_update_span": times.updates.get(keys[a]),
            "challenge_update_span": times.updates.get(keys[b]),
            "optimizer_spans": times.optimizer,
            "sync_span": times.sync,
            "format_weight": game.format_weight,
            "reasoning_tags": list(game.reasoning_tags),
        }
        for a, b in zip(range(0, len(keys), 2), range(1, len(keys), 2), strict=True)
    ]


def write_jsonl(path: Path, records: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records))


def unfinished(writes: Sequence[Future]) -> list[Future]:
    """Those that still run. The error of one that failed is raised now, as verl does, not at the end of the run."""
    running = []
    for write in writes:
        if write.done():
            write.result()
        else:
            running.append(write)
    return running


def overlap(extras: Sequence[dict[str, Any]]) -> float:
    """The share of challenges that began before the step's last draft ended; a barrier between the stages gives 0."""
    last_draft = max(extra["draft_span"][1] for extra in extras)
    return sum(extra["span"][0] < last_draft for extra in extras) / len(extras)
