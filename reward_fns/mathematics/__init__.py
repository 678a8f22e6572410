"""When two mathematical answers are the same: what `reward_fns.math_answer` asks.

`tokens` (text to symbols), `units` (what stands around a number), `shape` (a list, a set, a pair, an equation …),
`expression` (one formula as a tree), `value` (what it evaluates to), `form` (whether the work is done), `equal` (two
answers compared), `algebra` (math-verify, for what is left), `worker` and `pool` (the processes it runs in).
"""
