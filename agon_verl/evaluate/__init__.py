"""`python -m agon_verl.evaluate`: how good a pair is, at what cost, and how sure that is (docs/evaluate.md)."""
