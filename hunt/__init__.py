"""Random programs, kernels, derivatives, layers, files and histories, compared with answers computed without the code under test.

    make hunt MINUTES=10                        all kinds in turn; prints the seeds tried and the finds
    python -m hunt --minutes 1 kernels    one kind
    python -m hunt --seed 17 kernels      one seed of one kind, with its program
    make planted                          plants mistakes, and reports which of them the hunt finds (`hunt/planted.py`)

A **kind** is a module of this package with four functions:

    draw(seed)      a case: a value of dicts, lists, strings, numbers, bools and None (JSON), so that a file can store it
    check(case)     None where everything agrees, else one paragraph about the difference
    smaller(case)   simpler cases that may show the same difference, the simplest first (an iterator)
    program(case)   a Python program of a few lines that shows the difference with ngraph and NumPy alone

`check` depends on the case alone: a case in an old file gives the same program today. A find is reduced by
`smaller` as far as possible and written to `out/hunt`; once the cause is fixed, its `.json` is moved to `hunt/found`, where
`test_found.py` checks it in each run of the tests.
"""

KINDS = ("kernels", "programs", "derivatives", "layers", "files", "histories", "torch")
