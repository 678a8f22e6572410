"""Reward functions for verl's `reward.custom_reward_function`: one file a verifier."""
