"""The quickstart: a toy model learns addition with carries by draft and challenge, on a CPU, in minutes.

    bash examples/quickstart.sh [--steps 20] [--seed 0] [--rerun] [--out outputs/quickstart]

Builds the model and its problems (`toy/`), trains a pair of adapters with verl, prints held-out accuracy before and
after training, and writes the report page (docs/report.md).
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from agon_verl.game.prompts import CHALLENGE
from examples.runner import ROOT, Example, main
from examples.toy.build import build
from examples.toy.model import ToySettings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a toy model by draft and challenge, and show the result.")
    parser.add_argument("--steps", type=int, default=20, help="training steps (20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of adapters, problem order and sampling (0)")
    parser.add_argument("--rerun", action="store_true", help="train again even if this run is finished")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "quickstart", help="output folder")
    return parser.parse_args()


def example(steps: int, seed: int) -> Example:
    settings = ToySettings()
    code = [path.read_text() for path in sorted((Path(__file__).parent / "toy").glob("*.py"))]
    overrides = [
        "data.train_batch_size=8",
        "data.max_prompt_length=96",  # a challenge takes up to 60 tokens
        "data.max_response_length=72",  # a solution takes up to 60
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.max_model_len=168",
        "actor_rollout_ref.rollout.max_num_seqs=128",
        "actor_rollout_ref.actor.optim.lr=1e-3",  # twenty times the paper's: the model is a thousand times smaller
        f"agon.seed={seed}",
        f"data.seed={seed}",
        f"actor_rollout_ref.rollout.seed={seed}",
        f"trainer.test_freq={steps}",  # a validation takes as long as several steps
        f"trainer.save_freq={steps}",
    ]
    return Example(
        name="quickstart",
        title="A toy model learns to keep its carries",
        build=lambda folder: build(folder, settings),
        built_from="\n".join([str(asdict(settings)), CHALLENGE, *code]),
        overrides=overrides,
        steps=steps,
    )


if __name__ == "__main__":
    options = arguments()
    main(example(options.steps, options.seed), options.out, options.rerun)
