"""One GPU, one command: data, a pair trained on a model of your choice, held-out accuracy, and the report page.

    python -m examples.one_gpu --model Qwen/Qwen2.5-1.5B-Instruct
    python -m examples.one_gpu --model PATH --data math --response 2048 --steps 100
    python -m examples.one_gpu --model PATH --data train.jsonl --heldout-from test.jsonl agon.reward=coop

Run it in a clone, in the environment in which verl trains. The settings follow from the model's shape and the GPU's
memory (`gpu_settings.py`); `--dry-run` shows them and the command. Arguments with `=` go to verl and win.
"""

import argparse
import hashlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from agon_verl.data.__main__ import main as data_command
from agon_verl.trainer.memory import GIB, DecoderShape
from examples.gpu_settings import GpuSettings, TooSmall, Work, fit, prompt_length
from examples.runner import ROOT, Example, main

MATH = "nlile/hendrycks-MATH-benchmark"
REASONING = "<think>"  # in the chat template of a model that reasons by itself


def arguments(line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", required=True, help="folder or hub name of an instruct model")
    add("--data", default="gsm8k", help="gsm8k, math, or a table: a file or a name of the hub (gsm8k)")
    add("--from", dest="table", metavar="TABLE", help="where gsm8k or math is, if not on the hub")
    add("--heldout-from", metavar="TABLE", help="a table of its own for the held-out problems")
    add("--problem", default="question", help="the column with the problem, of a table (question)")
    add("--answer", default="answer", help="the column with the answer, of a table (answer)")
    add("--heldout", type=int, default=200, help="held-out problems for the two validations (200)")
    add("--steps", type=int, default=50, help="training steps (50)")
    add("--response", type=int, default=1024, help="tokens of a completion at most (1024)")
    add("--problems", type=int, default=16, help="problems per step (16)")
    add("--n", type=int, default=8, help="pairs per problem (8)")
    add("--seed", type=int, default=0, help="of adapters, problem order and sampling (0)")
    add("--memory", type=float, metavar="GIB", help="of the GPU (what PyTorch sees)")
    add("--out", type=Path, default=ROOT / "outputs" / "one_gpu", help="output folder")
    add("--rerun", action="store_true", help="train again even if this run is finished")
    add("--dry-run", action="store_true", help="print the settings and the commands, and end")
    add("overrides", nargs="*", help="further settings, as verl's command takes them")
    options = parser.parse_intermixed_args(line)
    if any(override.startswith("trainer.total_training_steps=") for override in options.overrides):
        parser.error("use --steps for the number of training steps")
    return options


def data_arguments(options: argparse.Namespace, asks_for_tags: bool) -> list[str]:
    """For `agon data`, without the folder to write to."""
    if options.data == "gsm8k":
        chosen = ["gsm8k", *(["--from", options.table] if options.table else [])]
    elif options.data == "math":
        table = options.table or MATH
        chosen = ["custom", "--from", table, "--problem", "problem", "--answer", "answer", "--name", "math"]
    else:
        chosen = ["custom", "--from", options.data, "--problem", options.problem, "--answer", options.answer]
    if options.heldout_from:
        chosen += ["--heldout-from", options.heldout_from]
    tags = ["--reasoning-tags"] if asks_for_tags else []
    return [*chosen, "--heldout", str(options.heldout), "--against", "none", *tags]


def content(table: str) -> str:
    """What determines a table: the bytes of a file, the name of anything else."""
    return hashlib.sha256(Path(table).read_bytes()).hexdigest() if Path(table).is_file() else table


def write_data(chosen: Sequence[str], folder: Path) -> None:
    if status := data_command([*chosen, "--out", str(folder)]):
        sys.exit(status)


def memory_of_gpu() -> float:
    import torch

    if not torch.cuda.is_available():
        sys.exit(
            "PyTorch sees no GPU. bash examples/quickstart.sh needs none; --dry-run --memory 80 shows a GPU's settings"
        )
    return float(torch.cuda.get_device_properties(0).total_memory)


def example(options: argparse.Namespace, settings: GpuSettings, work: Work, asks_for_tags: bool) -> Example:
    chosen = data_arguments(options, asks_for_tags)
    tables = filter(None, (options.data, options.table, options.heldout_from))
    return Example(
        name="one_gpu",
        title=f"{Path(options.model).name} on {Path(options.data).stem}",
        build=lambda folder: write_data(chosen, folder),
        built_from="\n".join([*chosen, *map(content, tables)]),
        overrides=[
            *settings.overrides(work),
            "actor_rollout_ref.actor.optim.lr=1e-4",  # twice the paper's: a short run
            f"agon.seed={options.seed}",
            f"data.seed={options.seed}",
            f"actor_rollout_ref.rollout.seed={options.seed}",
            "trainer.total_epochs=1000",  # the number of steps ends the run
            f"trainer.test_freq={options.steps}",
            f"trainer.save_freq={min(20, options.steps)}",
            *options.overrides,
        ],
        steps=options.steps,
        recipe="agon",
        model=options.model,
        heldout_file="heldout.parquet",
        start_up="06:00",
    )


def summary(options: argparse.Namespace, shape: DecoderShape, settings: GpuSettings, asks_for_tags: bool) -> str:
    vllm = "gives its memory back during updates" if settings.frees_cache else "keeps its memory"
    tags = "the prompt asks for <think> tags" if asks_for_tags else "the chat template has <think> tags of its own"
    kept = "gradient checkpointing" if settings.checkpointing else "all activations kept"
    return (
        f"{options.model}: {shape.parameters / 1e9:.2f} B parameters; {tags}\n"
        f"estimated: {settings.training:.0f} GiB for an update in micro-batches of {settings.tokens:,} tokens with "
        f"{kept}, {settings.total:.0f} GiB in all; vLLM {vllm}, {settings.share:.0%} of the GPU"
    )


def run(options: argparse.Namespace) -> None:
    from transformers import AutoConfig, AutoTokenizer

    memory = options.memory * GIB if options.memory else memory_of_gpu()
    if (folder := Path(options.model).expanduser()).is_dir():
        options.model = str(folder.resolve())
    shape = DecoderShape.of(AutoConfig.from_pretrained(options.model).to_dict())
    if shape is None:
        sys.exit(
            f"{options.model}: the memory of its architecture is not known here; use verl's command (docs/training.md)"
        )
    asks_for_tags = REASONING not in str(AutoTokenizer.from_pretrained(options.model).chat_template)
    work = Work(options.problems, options.n, prompt_length(options.response), options.response)
    try:
        settings = fit(shape, memory, work)
    except TooSmall as error:
        sys.exit(f"{options.model}: {error}")
    print(summary(options, shape, settings, asks_for_tags))
    made = example(options, settings, work, asks_for_tags)
    if not options.dry_run:
        return main(made, options.out, options.rerun)
    out = options.out.resolve()
    data = [sys.executable, "-m", "agon_verl.data", *data_arguments(options, asks_for_tags)]
    print(f"\n{shlex.join([*data, '--out', str(made.inputs(out))])}\n\n{shlex.join(made.command(out))}")


if __name__ == "__main__":
    run(arguments())
