"""A toy reasoning model, made on the spot: word problems, worked solutions, tokenizer, pre-training."""
