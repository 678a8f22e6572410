"""A toy reasoning model built from scratch: word problems, worked solutions, tokenizer, pre-training."""
