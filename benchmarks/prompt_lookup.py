"""How many tokens a step of decoding would give if the next ones were guessed from the text so far.

    python -m benchmarks.prompt_lookup --tokenizer MODEL OUT/agon/pairs/7.jsonl …

Reads the completions of pair records and plays vLLM's prompt lookup on them: where the last 4, 3 or 2 tokens occurred
before, in the prompt or in what was written, the tokens that followed are the guess. Guesses are right as far as they
are what the model sampled, which is how often rejection sampling accepts them. The prompt of a challenge is taken to be
the problem and the attempt it was shown. Counted are steps of one sequence, not their cost: a step also reads what was
guessed.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST, SHORTEST = 4, 2  # tokens that must occur before


@dataclass
class Count:
    tokens: int = 0
    steps: int = 0
    guessed: int = 0
    accepted: int = 0


def play(prompt: Sequence[int], completion: Sequence[int], guesses: int, count: Count) -> None:
    text, earliest = [*prompt], dict[tuple[int, ...], int]()

    def remember(end: int) -> None:
        for size in range(SHORTEST, min(LONGEST, end) + 1):
            earliest.setdefault(tuple(text[end - size : end]), end)

    for end in range(1, len(text)):
        remember(end)
    done = 0
    while done < len(completion):
        places = (earliest.get(tuple(text[-size:])) for size in range(LONGEST, SHORTEST - 1, -1))
        place = next((place for place in places if place is not None), len(text))
        guess = text[place : place + guesses]
        right = 0
        while right < len(guess) and completion[done + right : done + right + 1] == [guess[right]]:
            right += 1
        new = completion[done : done + right + 1]
        for token in new:
            remember(len(text))
            text.append(token)
        done += len(new)
        count.steps += 1
        count.guessed += len(guess)
        count.accepted += right
    count.tokens += len(completion)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="pair records of a run (trainer.rollout_data_dir)")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--guesses", type=int, nargs="+", default=[3, 5], help="tokens per guess at most")
    args = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    pairs = [json.loads(line) for path in args.records for line in path.read_text().splitlines()]
    print("| | longest guess | tokens | tokens per step | guessed per step | accepted |\n|---|---|---|---|---|---|")
    for stage in ("draft", "challenge"):
        for guesses in args.guesses:
            count = Count()
            for pair in pairs:
                shown = pair["attempt"]["shown"] or "" if stage == "challenge" else ""  # none: no summary
                prompt = tokenizer.encode(pair["problem"] + shown)
                play(prompt, tokenizer.encode(pair[stage] or ""), guesses, count)
            steps = max(1, count.steps)
            print(
                f"| {stage} | {guesses} | {count.tokens:,} | {count.tokens / steps:.2f} | {count.guessed / steps:.2f} "
                f"| {count.accepted / max(1, count.guessed):.0%} |"
            )


if __name__ == "__main__":
    main()
