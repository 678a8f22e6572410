import pytest

from agon_verl.rollout import watchdog
from agon_verl.rollout.watchdog import Watchdog


def test_an_agent_loop_that_starts_during_the_end_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer's thread adds the agent loops while the watchdog's own may be killing the servers."""
    watched, killed = Watchdog({"server 0": "server 0", "server 1": "server 1"}, 600.0), []

    def kill(actor: str) -> None:
        killed.append(actor)
        watched.actors[f"agent loop {len(killed)}"] = "agent loop"

    monkeypatch.setattr(watchdog.ray, "kill", kill)
    watched.end_rollout()
    assert killed == ["server 1", "server 0"]
