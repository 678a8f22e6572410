"""The game of the paper as plain functions of text and numbers: nothing here imports a training framework.

In the order of one step: `roles` (who drafts), `tags` (a completion as text), `transcript` (its parts), `withhold` (the
summary without its answer, by the rules of `domains`), `attempt` (cut to fit), `prompts` (the challenger's prompt),
`rewards` and `advantages`.
"""
