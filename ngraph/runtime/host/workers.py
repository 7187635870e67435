"""Compiles in processes beside this one: it need not load LLVM, plans on while they compile, and outlives what LLVM does not.

`workers.compile(texts, target)` takes texts as they are made. One process is started for little work, up to one for each core for much.
"""

from __future__ import annotations

import atexit
import importlib
import itertools
import os
import selectors
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder

from ngraph.runtime.host import worker
from ngraph.targets import Cpu, allowed_cores

MUCH = 400_000  # characters of IR that one process compiles in 0.1 to 0.5 seconds; to load LLVM takes one 0.2
AHEAD = 2  # requests that a process holds at most, so that it never waits for the next
IDLE_SECONDS = 5.0  # seconds after which processes that have nothing to do are ended
MAX_PROCESSES = 16  # processes; each takes 80 MB


def llvm_folder() -> str:
    """Returns the folder of the package llvmlite, found without importing it. Raises ImportError where there is none."""
    found = PathFinder.find_spec("llvmlite")
    if found is None or found.origin is None:
        raise ImportError("llvmlite is not installed", name="llvmlite")
    return os.path.dirname(found.origin)


class Failed(RuntimeError):
    """LLVM refused a text, or ended while it compiled it."""


class _Gone(Exception):
    """A process had waited for long, and has ended."""


class _Process:
    """One of them, with the texts that it has been given, and their numbers."""

    def __init__(self) -> None:
        if "python" not in os.path.basename(sys.executable or "").lower():
            raise OSError(f"{sys.executable or 'nothing'} is not Python that could be started")  # Python inside of another program
        folder = os.path.dirname(llvm_folder())
        command = [sys.executable, "-I", "-S", worker.__file__, folder]
        subprocess = importlib.import_module("subprocess")  # slow to load, and not needed where all is found
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.input, self.output = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        self.given: deque[tuple[int, str]] = deque()
        self.came = bytearray()

    def ask(self, number: int, text: str, target: Cpu) -> None:
        parts = [s.encode() for s in (target.triple, target.cpu, target.features, text)]
        left = memoryview(struct.pack(worker.REQUEST, *map(len, parts)) + b"".join(parts))
        self.given.append((number, text))
        try:
            while left:
                left = left[os.write(self.input, left) :]
        except BrokenPipeError:
            raise self.ended() from None

    def ended(self) -> Exception:
        code = self.popen.wait()
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return _Gone() if code == 0 else Failed(f"LLVM ended with {how} while it compiled a kernel")

    def answers(self) -> Iterable[tuple[int, bytes]]:
        """Yields the answers so far: numbers and objects."""
        part = os.read(self.output, 1 << 20)
        if not part:
            raise self.ended()
        self.came += part
        head = struct.calcsize(worker.ANSWER)
        while len(self.came) >= head:
            failed, size = struct.unpack_from(worker.ANSWER, self.came)
            if len(self.came) < head + size:
                break
            answer = bytes(self.came[head : head + size])
            del self.came[: head + size]
            if failed:
                raise Failed(answer.decode())
            yield self.given.popleft()[0], answer

    def end(self, kill: bool = False) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        if kill:
            self.popen.kill()
        if kill or self.popen.poll() is None:
            self.popen.wait()


class Workers:
    """The processes of this one; they end soon after the last request, when this process ends, and at an error."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.processes: list[_Process] = []
        self.rest: threading.Timer | None = None  # ends them

    def start(self) -> None:
        """Lets one load LLVM ahead of the first request. Raises OSError where there can be not a process, ImportError without llvmlite."""
        with self.lock:
            if not self.processes:
                self.processes.append(_Process())
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
            made = _Batch(self.processes, target).compile(itertools.chain(ready, given))
            self._rest()
            return made
        except BaseException:
            self.end()
            raise
        finally:
            self.lock.release()

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
        while self.processes:
            self.processes.pop().end(kill=True)


class _Batch:
    """Texts on their way through the processes."""

    def __init__(self, processes: list[_Process], target: Cpu):
        self.processes, self.target = processes, target
        self.waiting: deque[tuple[int, str]] = deque()
        self.made: dict[int, bytes] = {}

    def compile(self, texts: Iterable[str]) -> list[bytes]:
        count = 0
        for count, text in enumerate(texts, 1):
            self.waiting.append((count - 1, text))
            self.pass_on(0)
        while len(self.made) < count:
            self.pass_on(None)
        return [self.made[k] for k in range(count)]

    def pass_on(self, patience: float | None) -> None:
        """Gives what waits, starts another process where that is much, takes what is done."""
        most = min(allowed_cores(), MAX_PROCESSES) if sum(len(text) for _, text in self.waiting) > MUCH * len(self.processes) else 1
        if len(self.processes) < most:
            self.processes.append(_Process())
        for p in list(self.processes):
            while self.waiting and p in self.processes and len(p.given) < AHEAD:
                self.attempt(p, lambda p=p: p.ask(*self.waiting.popleft(), self.target))  # type: ignore[misc]  # a lambda with a default
        with selectors.DefaultSelector() as busy:  # `select` takes no file whose number is above 1,023
            for p in [p for p in self.processes if p.given]:
                busy.register(p.output, selectors.EVENT_READ, p)
            ready = [key.data for key, _ in busy.select(patience)] if busy.get_map() else []
        for p in ready:
            self.attempt(p, lambda p=p: self.made.update(p.answers()))  # type: ignore[misc]  # a lambda with a default

    def attempt(self, p: _Process, what: Callable[[], None]) -> None:
        """Runs `what`; if the process has ended by itself, its tasks wait for the next one."""
        try:
            what()
        except _Gone:
            self.processes.remove(p)
            self.waiting.extendleft(reversed(p.given))
            p.end()


workers = Workers()
atexit.register(workers.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.__init__)  # type: ignore[misc]  # the processes are the parent's
