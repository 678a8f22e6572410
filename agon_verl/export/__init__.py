"""`python -m agon_verl.export CHECKPOINT OUT`: a trained pair for use without verl, as PEFT folders."""
