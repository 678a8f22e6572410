"""The alarm rules: which metric, beyond which limit, means that a pair goes wrong, and what to try then.

The limits are our judgement, set so that a healthy run that learns fast raises no alarm; `docs/health.md` lists what
was measured. A share over the few cases of one step is noise (damage over two right drafts is 0, 0.5 or 1), so such a
metric is averaged over steps (`averages`) before it is compared. A metric that is already an average, or is computed
from the weights, is compared as it is.

Two choices: same answers are followed after wrong drafts (`wrong_answer_kept`), not where both sides are wrong
(`same_wrong_answer`), which is near 1 for every problem that has one likely mistake. And there is a rule for `gain`
beside the one for `damage`, because a damage of 0.9 is normal for a model that is seldom right, while 0.4 is bad for
one that is mostly right.

verl skips an update whose gradient is not finite. A single one costs a step and no more (`gradient`); the run is only
worth stopping when they continue (`gradient_stuck`).
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm with its default limit. A `*` in `metric` is any adapter; each adapter's metric is followed separately.

    `side` is a key of `alarms.BEYOND`. `limit` is None where the side needs none. One update beyond `extreme` is enough
    for what is wrong from the start.
    """

    name: str
    metric: str
    side: str
    limit: float | None
    meaning: str
    remedy: str
    averaged: bool = True
    at_once: bool = False
    extreme: float | None = None

    def covers(self, metric: str) -> bool:
        return re.fullmatch(self.metric.replace("*", "[^/]+"), metric) is not None


RULES = (
    AlarmRule(
        "dead_groups",
        "health/dead_groups",
        "above",
        0.8,
        "Hardly any group has rewards that differ, so most of what is generated trains nothing.",
        "Use problems of medium difficulty, or raise actor_rollout_ref.rollout.n or its temperature.",
    ),
    AlarmRule(
        "live_all_wrong",
        "health/live_all_wrong",
        "above",
        0.3,
        "In many groups that train no answer is right: they teach form, which short solutions may have more often.",
        "Set agon.live_groups=correctness, use easier problems, or raise actor_rollout_ref.rollout.n.",
    ),
    AlarmRule(
        "error_correlation",
        "health/error_correlation",
        "above",
        0.9,
        "The challenger fails wherever the draft does: the two have become one policy, or it follows what it reads.",
        "Go back to a checkpoint, lower the learning rate, or let snapshots write some drafts (agon.opponent.share).",
    ),
    AlarmRule(
        "wrong_answer_kept",
        "health/wrong_answer_kept",
        "above",
        0.75,
        "After a wrong draft the challenge mostly ends with the same wrong answer, although that was not shown.",
        "Read some pairs (trainer.rollout_data_dir); raise agon.challenge_sampling.temperature or agon.opponent.share.",
    ),
    AlarmRule(
        "copy_of_wrong",
        "health/copy_of_wrong",
        "above",
        0.75,
        "Challenges repeat wrong drafts nearly word for word instead of solving the problem.",
        "Use agon.reward=adv, which pays for correcting a draft, and raise agon.challenge_sampling.temperature.",
    ),
    AlarmRule(
        "damage",
        "pair/damage",
        "above",
        0.9,
        "Challenges are wrong after nearly every right draft: reading the draft makes the solution worse.",
        "Check that attempts arrive uncut (pair/summary_cut, pair/no_summary), and that agon.reward is not margin.",
    ),
    AlarmRule(
        "gain",
        "health/gain",
        "below",
        -0.2,
        "Challenges are right much less often than the drafts they read: the second stage costs accuracy.",
        "Check that data.max_response_length does not cut challenges off, and try agon.reward=coop for a while.",
    ),
    AlarmRule(
        "leak",
        "health/leak",
        "above",
        0.8,
        "Attempts still contain the answer that should be withheld, so the challenger can copy it.",
        "Set agon.withhold=value, or read some attempts (trainer.rollout_data_dir) and extend agon_verl/game/domains.",
    ),
    AlarmRule(
        "no_summary",
        "pair/no_summary",
        "above",
        0.5,
        "Most drafts have no summary, so their challengers read nothing.",
        "Raise data.max_response_length if they are cut off (pair/no_summary_cut_off); set "
        "reward.custom_reward_function.reward_kwargs.needs_summary=true if they are answers alone "
        "(pair/no_summary_answer_only); else ask for the tags in the prompt (agon data … --reasoning-tags), or set "
        "agon.reasoning_tags to those that the model writes.",
        extreme=0.9,
    ),
    AlarmRule(
        "no_reasoning",
        "pair/no_reasoning",
        "above",
        0.5,
        "Most drafts have no private reasoning, so their challengers read complete solutions.",
        "Ask for the tags in the prompt (agon data … --reasoning-tags), or set agon.reasoning_tags to those that the "
        "model writes.",
        extreme=0.9,
    ),
    AlarmRule(
        "distance",
        "health/distance",
        "below",
        0.2,
        "The adapters' weights have become similar: they are about to be one policy.",
        "Go back to a checkpoint, or start again with another agon.seed or different learning rates (agon.lr).",
        averaged=False,
    ),
    AlarmRule(
        "strength_gap",
        "health/strength_gap",
        "further from 0 than",
        0.3,
        "One adapter drafts far better than the other: the stronger has no rival, the weaker cannot judge drafts.",
        "Check that both learn (A/actor/grad_norm, B/…), then raise the weaker one's learning rate (agon.lr).",
        averaged=False,
    ),
    AlarmRule(
        "entropy_collapse",
        "health/*/entropy_trend",
        "below",
        0.2,
        "The adapter's entropy fell to a fifth of its start: its samples are nearly equal, and groups lose variance.",
        "Raise the rollout temperature or actor_rollout_ref.actor.entropy_coeff, or lower the learning rate.",
        averaged=False,
    ),
    AlarmRule(
        "entropy_explosion",
        "health/*/entropy_trend",
        "above",
        3.0,
        "The adapter's entropy tripled: it drifts into noise.",
        "Lower the learning rate or entropy_coeff, and check that rollout and training agree (A/rollout_corr/…).",
        averaged=False,
    ),
    AlarmRule(
        "length_collapse",
        "health/*/length_trend",
        "below",
        0.3,
        "The adapter's solutions shrank to less than a third: it stops reasoning.",
        "Set agon.tiebreak_weight=0 and check whether the verifier accepts answers without a solution.",
        averaged=False,
    ),
    AlarmRule(
        "length_explosion",
        "health/*/length_trend",
        "above",
        3.0,
        "The adapter's solutions tripled in length: it rambles, repeats itself, or really reasons longer.",
        "Read some (trainer.rollout_data_dir); if it is no gain, lower agon.lr or set agon.tiebreak_weight=0.5.",
        averaged=False,
    ),
    AlarmRule(
        "gap",
        "*/training/rollout_probs_diff_mean",
        "above",
        0.03,
        "The trainer gives what vLLM samples other probabilities: vLLM may serve another policy than it trains.",
        "Restart with agon.self_check=true, and compare dtype and attention of rollout and training.",
    ),
    AlarmRule(
        "gap_growth",
        "health/*/gap_trend",
        "above",
        3.0,
        "Rollout and training drift apart: vLLM may serve an adapter that is no longer updated.",
        "Resume from a checkpoint, which syncs all adapters again, and read vLLM's log for a failed sync.",
        averaged=False,
    ),
    AlarmRule(
        "failed",
        "pair/failed_share",
        "above",
        0.05,
        "Pairs are lost to errors, and those that remain may be the easy ones.",
        "Read the errors in the log: most often it is the reward function or what it calls.",
    ),
    AlarmRule(
        "gradient",
        "*/actor/grad_norm",
        "not finite",
        None,
        "The update was skipped.",
        "Ignore a single one; if it happens again, lower the learning rate and look for overlong or empty completions.",
        averaged=False,
        at_once=True,
    ),
    AlarmRule(
        "gradient_stuck",
        "*/actor/grad_norm",
        "not finite",
        None,
        "Update after update is skipped: the adapter no longer learns, and its weights may be broken.",
        "Resume from an earlier checkpoint with a lower learning rate.",
        averaged=False,
    ),
)
NAMES = tuple(rule.name for rule in RULES)
