"""The instructions of a table: their words of 64 bits, and the fields of the frame that runs it.

KERNEL  fn args items grain ways long back   runs a kernel over its work items, `grain` of them at a time, on at most `ways` threads;
                    long: whether it is long enough to be shared in small ranges; back: 0, or 1 and 2 alternately, with 2 from the end on
COPY    a           copies bytes: the words at a are destination, source, and number of bytes
HOST                ends the run, and the caller performs the host callback
MOVES   a b         b times three words at a: the word at the first becomes the word at the second, plus the third
COMPUTE a b c op    the word at a becomes that at b op that at c (OPERATIONS; of `at once` field `ways` is the third operand)
JUMP    a           goes to instruction a
UNLESS  a b         goes to instruction b where the byte that the word at a points to is 0
LOOP    a b c       increments the word at a, and goes to instruction c while it is below b
END                 ends the run
"""

from __future__ import annotations

import functools

END, KERNEL, HOST, MOVES, JUMP, UNLESS, LOOP, COMPUTE, COPY = range(9)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")  # read from memory; lengths have at most 63 bits
OPERATIONS = (*INTEGERS, "+", "-", "*", "//", "%", "min", "max", "at once")  # of `COMPUTE`
PIECES = 8  # ranges for each thread of a long kernel
NEAR = 64  # candidate sizes of ranges at most
DONE, HOST_CALLBACK, INTERRUPTED = range(3)  # how a run ends
WORDS = 8  # in an instruction
TIMES = 4  # words for each timed instruction: nanoseconds, number of runs, start and end of the last one

FIELDS: dict[str, int] = {name: 8 * k for k, name in enumerate("kind fn args items grain ways long back".split())}  # bytes
FIELDS |= {"a": 8, "b": 16, "c": 24, "op": 32}
FRAME = {
    name: k for k, name in enumerate("table pc scratch stride threads now release saved looked count times second nano quiet team".split())
}  # words


@functools.lru_cache(1 << 12)
def at_once(items: int, pieces: int, ways: int) -> int:
    """Returns the number of work items of a range, for about `pieces` ranges: among nearby sizes, the one with the most even load."""
    most = max(1, -(-items // pieces))
    sizes = range(most, max(most // PIECES, most - NEAR, 0), -1)

    def longest(size: int) -> int:
        """Returns the work items of the busiest thread, in hundredths of all."""
        each = -(-items // size // ways) * size
        return (200 * each + items) // (2 * max(items, 1))

    return min(sizes, key=longest)
