"""When two mathematical answers are the same: what `reward_fns.math_answer` asks.

`tokens` (text to symbols), `units` (what stands around a number), `shape` and `shapes` (a list, a set, a pair, an
equation …), `expression` (one formula as a tree), `value` (what it evaluates to), `formula` (two of them compared: the
work done, the value), `equal` (two answers compared), `algebra` (math-verify, for what is left), `worker` and `pool`
(the processes it runs in).
"""
