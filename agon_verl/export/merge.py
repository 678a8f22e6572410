"""A full model from the base and one adapter.

A merge computes base + change in float32 and rounds once, to the base's own type. bfloat16 keeps 8 bits of a weight,
which a small change may not survive: the adapters are exactly what was trained, a merged model is close to it.
"""

import shutil
from pathlib import Path

from agon_verl.errors import CheckpointError


def merge(base: Path, adapter: Path, out: Path) -> None:
    """The base is read again for each adapter: subtracting a change from rounded weights does not restore them."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import GENERATION_CONFIG_NAME

    try:
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
        tokenizer = AutoTokenizer.from_pretrained(base)
    except (OSError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        raise CheckpointError(f"{base} cannot be loaded for --merged: {first_line}") from None
    pair = PeftModel.from_pretrained(model, str(adapter))  # keeps the adapter in float32, whatever the base's type
    if model.config.tie_word_embeddings and hasattr(model.get_output_embeddings(), "lora_A"):
        raise CheckpointError(
            f"adapter {adapter.name} changes the output layer, which is also the embedding, and a merge would change "
            "both: export without --merged"
        )
    merged = pair.merge_and_unload()  # not `safe_merge`, which rounds the change first and the sum a second time
    generation_config = base / GENERATION_CONFIG_NAME
    if generation_config.is_file():
        merged.generation_config = GenerationConfig()  # transformers reads some configs that it refuses to write
    merged.save_pretrained(out)
    if generation_config.is_file():
        shutil.copyfile(generation_config, out / generation_config.name)
    tokenizer.save_pretrained(out)
