"""Compiles in processes beside this one: it need not load LLVM, plans on while they compile, and outlives what LLVM does not.

`workers.compile(texts, target)` takes texts as they are made. One process compiles little work, up to one for each core much.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import itertools
import os
import selectors
import sys
import threading
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder

from ngraph.runtime.host import worker
from ngraph.targets import Cpu, allowed_cores

try:
    import fcntl
except ImportError:  # no Linux: nothing is compiled there
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

MUCH = 20_000  # characters of IR that wait, for which one more process compiles: 10 milliseconds of work; to fork a process takes 3
PIPE_BYTES = 1 << 20  # bytes that a pipe holds, the most that Linux gives to anyone: about a model's texts
IDLE_SECONDS = 5.0  # seconds after which processes that have nothing to do are ended
MAX_PROCESSES = 16  # processes; each takes up to 80 MB, half of which they share


def llvm_folder() -> str:
    """Returns the folder of the package llvmlite, found without importing it. Raises ImportError where there is none."""
    found = PathFinder.find_spec("llvmlite")
    if found is None or found.origin is None:
        raise ImportError("llvmlite is not installed", name="llvmlite")
    return os.path.dirname(found.origin)


class Failed(RuntimeError):
    """LLVM refused a text, or ended while it compiled it."""


class _Processes:
    """The process that loads LLVM, and those that it forks; pipes with requests and answers."""

    def __init__(self) -> None:
        if "python" not in os.path.basename(sys.executable or "").lower():
            raise OSError(f"{sys.executable or 'nothing'} is not Python that could be started")  # Python inside of another program
        folder = os.path.dirname(llvm_folder())
        subprocess = importlib.import_module("subprocess")  # slow to load, and not needed where all is found
        given, self.asked = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", worker.__file__, folder, str(given)]
            self.popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(given,), process_group=0
            )  # Ctrl-C is not for it: this process ends it
        except BaseException:  # Ctrl-C, too, must leave no pipe open
            os.close(self.asked)
            raise
        finally:
            os.close(given)
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.input, self.output = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        for pipe in (self.input, self.output):
            os.set_blocking(pipe, False)
            with contextlib.suppress(OSError, AttributeError):  # pipes of other systems are as large as they are
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.count, self.size = 1, 0  # processes that compile, and characters that they have not answered
        self.given: dict[int, int] = {}  # characters of each request that has no answer
        self.left, self.came = bytearray(), bytearray()  # what did not fit into the pipe, and the beginning of an answer

    def ask(self, number: int, text: str, target: Cpu) -> None:
        """Gives them a text."""
        parts = [s.encode() for s in (target.triple, target.cpu, target.features, text)]
        self.left += worker.REQUEST.pack(number, *map(len, parts)) + b"".join(parts)
        self.given[number] = len(text)
        self.size += len(text)
        self.write()

    def write(self) -> None:
        """Writes as much as fits into the pipe."""
        with contextlib.suppress(BlockingIOError):
            while self.left:
                try:
                    del self.left[: os.write(self.input, self.left)]
                except BrokenPipeError:
                    raise self.ended() from None

    def spread(self, most: int) -> None:
        """Has up to so many compile, by what waits."""
        most = min(most, 1 + self.size // MUCH, len(self.given))
        if most > self.count:
            self.count = most
            os.write(self.asked, bytes([most]))

    def ended(self) -> Exception:
        code = self.popen.wait()
        return Failed(f"LLVM ended with {f'signal {-code}' if code < 0 else f'code {code}'} while it compiled a kernel")

    def answers(self, patience: float | None) -> Iterator[tuple[int, bytes]]:
        """Yields the answers so far, waiting for the first: numbers and objects."""
        with selectors.DefaultSelector() as pipes:  # `select` takes no file whose number is above 1,023
            pipes.register(self.output, selectors.EVENT_READ)
            if self.left:
                pipes.register(self.input, selectors.EVENT_WRITE)
            ready = [key.fd for key, _ in pipes.select(patience)]
        if self.input in ready:
            self.write()
        if self.output not in ready:
            return
        part = os.read(self.output, PIPE_BYTES)
        if not part:
            raise self.ended()
        self.came += part
        while len(self.came) >= worker.ANSWER.size:
            failed, number, size = worker.ANSWER.unpack_from(self.came)
            end = worker.ANSWER.size + size
            if len(self.came) < end:
                break
            answer = bytes(self.came[worker.ANSWER.size : end])
            del self.came[:end]
            self.size -= self.given.pop(number)
            if failed:
                raise Failed(answer.decode())
            yield number, answer

    def end(self) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self.asked)
        self.popen.terminate()
        self.popen.wait()


class Workers:
    """The processes of this one; they end soon after the last request, when this process ends, and at an error."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: _Processes | None = None
        self.rest: threading.Timer | None = None  # ends them

    def start(self) -> None:
        """Lets one load LLVM ahead of the first request. Raises OSError where there can be not a process, ImportError without llvmlite."""
        if self.processes is not None:  # maybe at work for another thread, which need not end first
            return
        with self.lock:
            if self.processes is None:
                self.processes = _Processes()
                self._rest()

    def compile(self, texts: Iterable[str], target: Cpu) -> list[bytes]:
        """The object of each text, in order. Raises `Failed`; whatever is raised, Ctrl-C too, ends the processes at once."""
        given, ready = iter(texts), list[str]()
        while not self.lock.acquire(blocking=False):  # another thread has the processes: texts are made meanwhile
            text = next(given, None)
            if text is None:
                self.lock.acquire()
                break
            ready.append(text)
        try:
            if self.processes is None:
                self.processes = _Processes()
            made = self._compiled(self.processes, itertools.chain(ready, given), target)
            self._rest()
            return made
        except BaseException:
            self.end()
            raise
        finally:
            self.lock.release()

    def _compiled(self, processes: _Processes, texts: Iterable[str], target: Cpu) -> list[bytes]:
        most, count = min(allowed_cores(), MAX_PROCESSES), 0
        made: dict[int, bytes] = {}
        for count, text in enumerate(texts, 1):
            processes.ask(count - 1, text, target)
            processes.spread(most)
            made.update(processes.answers(0))
        while len(made) < count:
            made.update(processes.answers(None))
        return [made[k] for k in range(count)]

    def _rest(self) -> None:
        """They end when nothing has come for a while."""
        if self.rest is not None:
            self.rest.cancel()
        self.rest = threading.Timer(IDLE_SECONDS, self._idle)
        self.rest.daemon = True
        self.rest.start()

    def _idle(self) -> None:
        if self.lock.acquire(blocking=False):  # else they are at work
            try:
                self.end()
            finally:
                self.lock.release()

    def end(self) -> None:
        if self.processes is not None:
            found, self.processes = self.processes, None
            found.end()


workers = Workers()
atexit.register(workers.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.__init__)  # type: ignore[misc]  # the processes are the parent's
