"""Playing a trained pair: the adapters and their settings (players.py), one vLLM engine, and the cascade over it."""

from agon_verl.inference.cascade import Solved, solve, solve_all
from agon_verl.inference.players import InferenceError, Players, Sampling, find_players
from agon_verl.inference.vllm_engine import Completion, Engine

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
