"""`agon COMMAND …`, the same as `python -m agon_verl.COMMAND …`.

A command is imported only when it is chosen: `agon report` must work without vLLM, and `agon --help` must not wait for
torch.
"""

import argparse
import importlib
from collections.abc import Sequence

import agon_verl
from agon_verl.program import program_name

COMMANDS = {
    "data": "prepare training and held-out problems as verl parquet files",
    "export": "turn a checkpoint into two PEFT adapters for use without this package",
    "evaluate": "measure a pair, its adapters and the base on held-out problems",
    "matrix": "train and evaluate several methods over several seeds",
    "report": "show runs or a matrix as one HTML page",
    "serve": "serve a pair behind an OpenAI-compatible chat endpoint",
}


def main(arguments: Sequence[str] | None = None) -> int:
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog=program_name(""),
        description="Train with: python -m verl.trainer.main_ppo +recipe=agon …",
        epilog="\n".join(["commands:", *(f"  {name:{width}}  {what}" for name, what in COMMANDS.items())])
        + f"\n\n{program_name('COMMAND')} --help lists the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agon-verl {agon_verl.__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="its own arguments")
    options = parser.parse_args(arguments)
    command = importlib.import_module(f"agon_verl.{options.command}.__main__")
    status: int = command.main(options.arguments)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
