"""A reward function that asks the run's reward model, whose address verl passes to it."""

from typing import Any

import aiohttp


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, *, reward_router_address: str, model: str, **_: Any
) -> dict[str, float]:
    body = {"model": model, "prompt": f"Is {solution_str} right?", "max_tokens": 4}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://{reward_router_address}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            (choice,) = (await answer.json())["choices"]
    return {"score": 1.0, "acc": float(len(choice["text"]) % 2), "format": 1.0}
