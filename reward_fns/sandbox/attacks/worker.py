"""A judge in a process of its own: reads completions as lines of JSON and answers with verdicts.

It has its own process so that all that it starts can be seen from outside (by parentage: orphans become its children),
what it costs can be measured, and a program that makes it fail ends only this one. The reward function is loaded by
name, as verl loads it.

    python -m reward_fns.sandbox.attacks.worker [BACKEND]
"""

import asyncio
import ctypes
import importlib
import json
import os
import sys

_SET_CHILD_SUBREAPER = 36


def inherit_orphans(enabled: bool = True) -> None:
    """Let orphaned descendants become children of this process instead of the machine's first process."""
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0):
        raise OSError("orphans cannot be inherited")


def main(backend: str) -> None:
    inherit_orphans()
    compute_score = importlib.import_module("reward_fns.unit_tests").compute_score
    loop = asyncio.new_event_loop()
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # whatever else is printed
        for line in sys.stdin:
            job = json.loads(line)
            try:
                scoring = compute_score("attack", job["completion"], job["truth"], backend=backend, slots=job["slots"])
                result = loop.run_until_complete(scoring)
                answer = {"verdict": result["verdict"], "accuracy": result["acc"]}
            except Exception as error:  # the suite reports it as a hole: no program may cause one
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["local"])
