"""A tiny model that has learned two programs by heart, one right and one wrong: enough to play Agon about code."""

import json
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agon_verl.game.prompts import challenge_messages
from agon_verl.game.withhold import withhold_answer
from tests.tiny import make_model

RIGHT, WRONG = "print(sum(map(int, input().split())))", "print(input())"
TASKS = ["Add two numbers.", "What is a + b?"]


def completion(program: str) -> str:
    return f"<think>a</think>Add.\n```python\n{program}\n```<|end|>"


def make_coder(folder: Path) -> Path:
    """Trained on both programs alike, as a draft and as a challenge of either."""
    make_model(folder)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    rows = []
    for task in TASKS:
        plain = [{"role": "user", "content": task}]
        summaries = [withhold_answer(completion(p).partition("</think>")[2], "code") for p in (RIGHT, WRONG)]
        for messages in (plain, *(challenge_messages(plain, summary) for summary in summaries)):
            prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            for program in (RIGHT, WRONG):
                rows.append(
                    [tokenizer.encode(text, add_special_tokens=False) for text in (prompt, completion(program))]
                )
    width = max(len(a) + len(b) for a, b in rows)
    ids, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -100)
    for number, (prompt, answer) in enumerate(rows):
        ids[number, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[number, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for _ in range(100):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


def make_problems(path: Path, rows: int) -> Path:
    truth = json.dumps({"inputs": ["1 2\n", "40 2\n"], "outputs": ["3\n", "42\n"]})
    table = [
        {
            "data_source": "toy/programs",
            "prompt": [{"role": "user", "content": TASKS[number % len(TASKS)]}],
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"index": number},
        }
        for number in range(rows)
    ]
    pd.DataFrame(table).to_parquet(path)
    return path
