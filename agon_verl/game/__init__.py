"""The game of the paper as plain functions of text and numbers: nothing here imports a training framework.

In the order of one step: `roles` (who drafts), `transcript` (what a completion says), `withhold` (what the opponent
may read of it), `prompts` (the challenger's prompt), `rewards`, `advantages`, `statistics` (what the pair did),
`health` (whether the pair still is one of two) and `alarms` (what is said when it is not).
"""
