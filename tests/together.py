"""Functions that several threads run at once."""

import threading


def together(*functions):
    """Runs these on threads of their own, started at the same time. Raises what the first raised, and returns what they gave."""
    wrong, given, start = [], [None] * len(functions), threading.Barrier(len(functions))

    def guarded(k):
        try:
            start.wait()
            given[k] = functions[k]()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads), "threads wait for each other"
    if wrong:
        raise wrong[0]
    return given
