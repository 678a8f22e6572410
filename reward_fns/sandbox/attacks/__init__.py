"""The attacks on the judge of programs, and the honest programs that it must not fail, as data; suite.py runs them."""

from dataclasses import replace

from reward_fns.sandbox.attacks.between import BETWEEN
from reward_fns.sandbox.attacks.calling import CALLING
from reward_fns.sandbox.attacks.compiled import COMPILED
from reward_fns.sandbox.attacks.crashing import CRASHING
from reward_fns.sandbox.attacks.exhausting import DISK, FILLING, MEMORY
from reward_fns.sandbox.attacks.forging import FORGING
from reward_fns.sandbox.attacks.honest import PROGRAMS
from reward_fns.sandbox.attacks.honest_functions import FUNCTIONS
from reward_fns.sandbox.attacks.outstaying import SURVIVING, WAITING
from reward_fns.sandbox.attacks.programs import Attack, Honest
from reward_fns.sandbox.attacks.reaching import FILES, NAMESPACES, NETWORK, PRIVILEGE, PROCESSES
from reward_fns.sandbox.attacks.reading import READING
from reward_fns.sandbox.attacks.surfaces import SURFACES

__all__ = ["ATTACKS", "HONEST", "Attack", "Honest"]

_FAMILIES = {
    "forged verdicts": FORGING,
    "expected outputs": READING,
    "files of the host": FILES,
    "network": NETWORK,
    "privileges": PRIVILEGE,
    "namespaces": NAMESPACES,
    "other processes": PROCESSES,
    "kernel surface": SURFACES,
    "memory": MEMORY,
    "disk": DISK,
    "other resources": FILLING,
    "time": WAITING,
    "survivors": SURVIVING,
    "failures of the judge": CRASHING,
    "side by side": BETWEEN,
    "compiler": COMPILED,
    "calls of functions": CALLING,
}
ATTACKS = [replace(attack, family=family) for family, attacks in _FAMILIES.items() for attack in attacks]
HONEST = PROGRAMS + FUNCTIONS
