"""The rollout of a pair: one vLLM engine that serves both adapters, and the agent loop that drafts and challenges."""
