"""When two mathematical answers are equal, for `reward_fns.math_answer`.

`tokens` (text to symbols), `units` (what surrounds a number), `shape` (a list, a set, a pair, an equation …),
`expression` (one formula as a tree), `value` (its value), `formula` (two formulas: form and value), `equal` (two
answers), `algebra` (math-verify, for the rest), `pool` and `pool_worker` (the processes it runs in).
"""
