"""Tests that call a function: the judge sends arguments, a driver in the sandbox returns values, the judge compares.

    assertions.py    asserts, or inputs and outputs, to calls with an expectation each; nothing is executed
    driver.py        runs in the sandbox, in the program's own process
    values.py        reads what came back, which the program can forge, and compares it

The program shares a process with the driver and can do to it what it likes: print results of its own, replace `json`,
read every argument, exit. None of that helps, because the expected values never enter the sandbox and a forged result
is a returned value like any other. What comes back is data (JSON with tags): there is no object of the program's in
the judge, so no `__eq__`, no `__hash__` and no class of the program's takes part in a comparison.
"""
