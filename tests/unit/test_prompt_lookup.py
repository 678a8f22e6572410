"""benchmarks/prompt_lookup.py: steps of decoding with guesses from the text so far."""

from benchmarks.prompt_lookup import Count, play


def played(prompt: list[int], completion: list[int], guesses: int = 3) -> Count:
    count = Count()
    play(prompt, completion, guesses, count)
    return count


def test_text_that_never_repeats_takes_a_step_per_token() -> None:
    assert played([1, 2, 3], [4, 5, 6, 7]) == Count(tokens=4, steps=4)


def test_a_copy_of_the_prompt_is_guessed_once_two_tokens_are_there() -> None:
    # 1 and 2 are sampled; 3 4 5 are guessed, and 6 comes with them; 7 is guessed, and nothing is left to guess
    count = played([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7])
    assert (count.tokens, count.steps, count.accepted) == (7, 4, 4)


def test_a_wrong_guess_costs_no_step() -> None:
    count = played([1, 2, 3], [1, 2, 9, 8])
    assert count == Count(tokens=4, steps=4, guessed=3, accepted=0)


def test_the_completion_itself_is_looked_up() -> None:
    count = played([0], [1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert count.accepted > 0 and count.steps == count.tokens - count.accepted
