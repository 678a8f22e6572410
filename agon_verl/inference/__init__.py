"""A trained pair in use: who plays (players.py), one vLLM engine (engine.py), the cascade over it (cascade.py)."""

from agon_verl.inference.cascade import Solved, solve
from agon_verl.inference.engine import Completion, Engine
from agon_verl.inference.offline import solve_all
from agon_verl.inference.players import InferenceError, Players, Sampling, find_players

__all__ = [
    "Completion",
    "Engine",
    "InferenceError",
    "Players",
    "Sampling",
    "Solved",
    "find_players",
    "solve",
    "solve_all",
]
