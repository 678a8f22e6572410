"""Reward functions for verl's `reward.custom_reward_function`: one file a verifier."""

OPENED = "reasoning_opened"  # key of `extra_info`: the chat template has opened the reasoning block in the prompt
