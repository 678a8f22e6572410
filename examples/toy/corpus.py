"""The pre-training corpus of the toy model: worked solutions for both roles, and drills of single-column sums."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from agon_verl.game.prompts import challenge_messages
from agon_verl.game.withhold import withhold_answer
from examples.toy.problems import DIGITS, stream
from examples.toy.traces import SlipRates, Solution, solve

CHALLENGES = 0.5  # share of the solutions that answer a challenge prompt
NO_ATTEMPT = 0.03  # share of the challenge prompts without an attempt
FACTS = 8  # per drill


@dataclass(frozen=True)
class Text:
    """One solved prompt, or a drill, which has no messages."""

    messages: Sequence[dict[str, str]]
    completion: str


@dataclass(frozen=True)
class Row:
    """Token ids, and which of them the model learns to predict."""

    ids: list[int]
    learn: list[bool]


def solutions(
    rng: random.Random, count: int, rates: SlipRates, held_out: Collection, digits: Sequence[int] = DIGITS
) -> Iterator[Text]:
    """Solved problems, none of them held out; half are drafts, half are challenges to such a draft."""
    problems = stream(rng, held_out, digits)
    for _ in range(count):
        problem = next(problems)
        messages = [{"role": "user", "content": problem.text}]
        attempt: Solution | None = None
        if rng.random() < CHALLENGES:
            attempt = solve(problem, rng, rates) if rng.random() >= NO_ATTEMPT else None
            messages = challenge_messages(messages, withhold_answer(attempt.summary, "math") if attempt else None)
        yield Text(messages, solve(problem, rng, rates, attempt).completion)


def drills(rng: random.Random, count: int) -> Iterator[Text]:
    """Lines of single-column sums. They have four times as many sums per token, which halves the training time."""
    for _ in range(count):
        yield Text((), " ".join(_fact(rng) for _ in range(FACTS)))


def _fact(rng: random.Random) -> str:
    x, y, noted = rng.randrange(10), rng.randrange(10), rng.random() < 0.5
    if rng.random() < 0.5:
        return f"{x}+{y}" + "+1" * noted + f"={x + y + noted}."
    x += 10 * (x < y + noted)
    return f"{x}-{y}" + "-1" * noted + f"={x - y - noted}."


def encode(texts: Sequence[Text], tokenizer: PreTrainedTokenizerFast) -> list[Row]:
    """The loss covers the completion of a solution and its end token, but only the results of a drill."""
    prompts = [
        tokenizer.apply_chat_template(text.messages, add_generation_prompt=True, tokenize=False)
        if text.messages
        else ""
        for text in texts
    ]
    heads = tokenizer(prompts)["input_ids"]
    tails = tokenizer([text.completion for text in texts])["input_ids"]
    equals, digits = (tokenizer.convert_tokens_to_ids(list(tokens)) for tokens in ("=", "0123456789"))
    rows = []
    for text, head, tail in zip(texts, heads, tails, strict=True):
        if text.messages:
            rows.append(Row([*head, *tail, tokenizer.eos_token_id], [False] * len(head) + [True] * (len(tail) + 1)))
        else:
            rows.append(Row(tail, _results(tail, equals[0], set(digits))))
    return rows


def _results(ids: Sequence[int], equals: int, digits: Collection[int]) -> list[bool]:
    learn, inside = [], False
    for token in ids:
        learn.append(inside)
        inside = token == equals or (inside and token in digits)
    return learn
