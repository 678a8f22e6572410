"""What all commands share: the name they were started under, and how they end on an error."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

from agon_verl.errors import AgonError


def program_name(command: str) -> str:
    """`agon data` when started by the `agon` script, else the `python -m` form that was typed."""
    script = Path(sys.argv[0])
    if script.name != "__main__.py":
        return f"agon {command}".rstrip()
    separator = " " if script.parent.name == "agon_verl" else "."
    return f"python -m agon_verl{separator}{command}".rstrip(" .")


def command(main: Callable[[Sequence[str] | None], None]) -> Callable[..., int]:
    """`main` with an exit status: an error for the user is printed in one line, without a traceback."""

    @wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        try:
            main(arguments)
        except (AgonError, OSError) as error:
            print(f"agon-verl: {error}", file=sys.stderr)
            return 1
        return 0

    return run
