"""What is watched: which metric, beyond which limit, means that a pair goes wrong, and what to try then.

The limits are our judgement, set so that a healthy run that learns fast stays silent; `docs/health.md` says what was
measured. A share over the few cases of one step is noise (damage over two right drafts is 0, a half or 1), so such a
metric is averaged over steps (`averages`) before it is compared. What is an average or a weight already is taken as it
comes.

Two choices: same answers are watched after wrong drafts (`wrong_answer_kept`), not after two wrong sides
(`same_wrong_answer`), which is near 1 wherever a problem has one likely mistake. And `gain` stands beside `damage`, for
a damage of 0.9 is to be expected of a model that is seldom right, while 0.4 is bad for one that mostly is.

verl skips an update whose gradient is not finite. A single one costs a step and no more (`gradient`); only when they
last (`gradient_stuck`) is the run worth stopping.
"""

from dataclasses import dataclass

from agon_verl.game.roles import ADAPTERS


@dataclass(frozen=True, slots=True)
class Watch:
    """One alarm as it is by default; each of its metrics is followed on its own. `side` is a key of `alarms.BEYOND`."""

    name: str
    metrics: tuple[str, ...]
    side: str
    limit: float | None
    means: str
    remedy: str
    averaged: bool = True
    at_once: bool = False


def _each(metric: str) -> tuple[str, ...]:
    return tuple(metric.format(adapter) for adapter in ADAPTERS)


WATCHES = (
    Watch(
        "dead_groups",
        ("health/dead_groups",),
        "above",
        0.8,
        "Hardly any group has rewards that differ, so most of what is generated teaches nothing.",
        "Take problems of middling difficulty, or raise actor_rollout_ref.rollout.n or its temperature.",
    ),
    Watch(
        "error_correlation",
        ("health/error_correlation",),
        "above",
        0.9,
        "The challenger fails wherever the draft does: the two have become one policy, or it follows what it reads.",
        "Go back to a checkpoint, lower the learning rate, or let snapshots draft now and then (agon.opponent.share).",
    ),
    Watch(
        "wrong_answer_kept",
        ("health/wrong_answer_kept",),
        "above",
        0.75,
        "After a wrong draft the challenge mostly ends on the very same wrong answer, though it was not shown.",
        "Read some pairs (trainer.rollout_data_dir); raise agon.challenge_sampling.temperature or agon.opponent.share.",
    ),
    Watch(
        "copy_of_wrong",
        ("health/copy_of_wrong",),
        "above",
        0.75,
        "Challenges repeat wrong drafts nearly word for word instead of solving the problem.",
        "Use agon.reward=adv, which pays for correcting a draft, and raise agon.challenge_sampling.temperature.",
    ),
    Watch(
        "damage",
        ("pair/damage",),
        "above",
        0.9,
        "Challenges come out wrong after nearly every right draft: reading spoils the solution.",
        "See that attempts arrive whole (pair/summary_cut, pair/no_summary), and that agon.reward is not margin.",
    ),
    Watch(
        "gain",
        ("health/gain",),
        "below",
        -0.2,
        "Challenges are right much less often than the drafts they read: the second stage costs accuracy.",
        "See that data.max_response_length does not cut challenges off, and try agon.reward=coop for a while.",
    ),
    Watch(
        "leak",
        ("health/leak",),
        "above",
        0.8,
        "Attempts still hold the answer that should be withheld, so the game is one of copying.",
        "Read some attempts (trainer.rollout_data_dir) and teach agon_verl/game/withhold.py how answers are put.",
    ),
    Watch(
        "distance",
        ("health/distance",),
        "below",
        0.2,
        "The adapters' weights have grown alike: they are about to be one policy.",
        "Go back to a checkpoint, or start again with another agon.seed or different rates (agon.lr).",
        averaged=False,
    ),
    Watch(
        "strength_gap",
        ("health/strength_gap",),
        "further from 0 than",
        0.3,
        "One adapter drafts far better than the other: the stronger has no rival, the weaker nothing it can judge.",
        "See that both learn (A/actor/grad_norm, B/…), then raise the weaker one's rate (agon.lr).",
        averaged=False,
    ),
    Watch(
        "entropy_collapse",
        _each("health/{}/entropy_trend"),
        "below",
        0.2,
        "The adapter's entropy fell to a fifth of its start: its samples are alike, and groups will die.",
        "Raise the rollout temperature or actor_rollout_ref.actor.entropy_coeff, or lower the learning rate.",
        averaged=False,
    ),
    Watch(
        "entropy_explosion",
        _each("health/{}/entropy_trend"),
        "above",
        3.0,
        "The adapter's entropy tripled: it drifts into noise.",
        "Lower the learning rate or entropy_coeff, and see that rollout and training agree (A/rollout_corr/…).",
        averaged=False,
    ),
    Watch(
        "length_collapse",
        _each("health/{}/length_trend"),
        "below",
        0.3,
        "The adapter's solutions shrank to less than a third: it stops reasoning.",
        "Set agon.tiebreak_weight=0 and see whether the verifier accepts bare guesses.",
        averaged=False,
    ),
    Watch(
        "length_explosion",
        _each("health/{}/length_trend"),
        "above",
        3.0,
        "The adapter's solutions tripled in length: it rambles, repeats itself, or really reasons longer.",
        "Read some (trainer.rollout_data_dir); if it is no gain, lower the rate or set agon.tiebreak_weight=0.5.",
        averaged=False,
    ),
    Watch(
        "failed",
        ("pair/failed_share",),
        "above",
        0.05,
        "Pairs are lost to errors, and those that remain may be the easy ones.",
        "Read what failed in the log: most often it is the reward function or what it calls.",
    ),
    Watch(
        "gradient",
        _each("{}/actor/grad_norm"),
        "not finite",
        None,
        "The update was skipped.",
        "Once is nothing; if it comes back, lower the learning rate and look for overlong or empty completions.",
        averaged=False,
        at_once=True,
    ),
    Watch(
        "gradient_stuck",
        _each("{}/actor/grad_norm"),
        "not finite",
        None,
        "Update after update is skipped: the adapter no longer learns, and its weights may be broken.",
        "Resume from an earlier checkpoint with a lower learning rate.",
        averaged=False,
    ),
)
NAMES = tuple(watch.name for watch in WATCHES)
