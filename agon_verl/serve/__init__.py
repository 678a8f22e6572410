"""A pair behind an OpenAI-compatible chat endpoint: `python -m agon_verl.serve TARGET`. docs/serve.md describes it."""
