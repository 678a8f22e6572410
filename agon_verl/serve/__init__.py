"""`python -m agon_verl.serve TARGET`: a pair behind an OpenAI-compatible chat endpoint. See docs/serve.md."""
