"""The name under which a command was started, for its usage and help texts."""

import sys
from pathlib import Path


def program_name(command: str) -> str:
    """`agon data` when started by the `agon` script, else the `python -m` form that was typed."""
    script = Path(sys.argv[0])
    if script.name != "__main__.py":
        return f"agon {command}".rstrip()
    separator = " " if script.parent.name == "agon_verl" else "."
    return f"python -m agon_verl{separator}{command}".rstrip(" .")
