"""Reward functions for verl's `reward.custom_reward_function`: one module per verifier."""
