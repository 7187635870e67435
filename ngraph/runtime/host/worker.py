"""Compiles IR text from a pipe: processes that load LLVM and nothing else, so that other processes need not.

Run as a script, with the folder that contains llvmlite and the number of a pipe. This process loads LLVM and then forks those that
compile, which takes a twentieth of the time: one, and as many as a byte from that pipe says. Each takes the next request from stdin when it
has answered one. A request is a number, the lengths of four texts (triple, cpu, features, IR) and these; the answer one byte (0: done), the
number, a length, and the object or the error. They end when stdin does, or who started them has ended.
"""

import ctypes
import os
import select
import signal
import struct
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

REQUEST, ANSWER = struct.Struct("<5I"), struct.Struct("<BII")
QUICK = "; quick\n"  # first line of a text that runs seldom: its instructions are selected fast, and not improved
OPEN = "; open\n"  # first line of a text with open lengths: LLVM's loop strength reduction takes half the time there and gains nothing
PARENT_POLL_SECONDS = 0.5  # seconds after which it looks whether who started it is still there
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl: the signal that a process gets when the one that forked it ends
_emitting = threading.Lock()


@cache
def machine(triple: str, cpu: str, features: str, opt: int) -> Any:
    """LLVM's target machine; `opt` is how much code is improved, from 0 to 3."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small")


def opt(text: str) -> int:
    """Returns how much the code of a text is improved, from 0 to 3."""
    return 0 if text.startswith(QUICK) else 3


def parse(text: str) -> Any:
    """A verified module. Raises RuntimeError with LLVM's words where the text is not IR."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    return module


def compile_object(triple: str, cpu: str, features: str, text: str) -> bytes:
    """The relocatable object of a module."""
    import llvmlite.binding as llvm

    own, module = machine(triple, cpu, features, opt(text)), parse(text)
    with _emitting:
        llvm.set_option("ngraph", f"-disable-lsr={int(text.startswith(OPEN))}")  # of the whole process, until the next one
        made: bytes = own.emit_object(module)
    return made


class _Turn:
    """A lock that forked processes share: a byte in a pipe, which is read to take the lock, and written back to release it."""

    def __init__(self) -> None:
        self.input, self.output = os.pipe()
        self.__exit__()

    def __enter__(self) -> None:
        os.read(self.input, 1)

    def __exit__(self, *_: object) -> None:
        os.write(self.output, b"t")


class _Compilers:
    """The processes that compile, as the one sees them that forks them."""

    def __init__(self, asked: int) -> None:
        self.asked, self.pids = asked, set[int]()
        self.reading, self.writing = _Turn(), _Turn()
        self.woken, self.wake = os.pipe()  # gets a byte at a signal: one of them has ended
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGTERM, lambda *_: self.end(0))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake)

    def serve(self) -> None:
        """Forks them, until the requests have ended."""
        parent, most = os.getppid(), 1
        while os.getppid() == parent:
            while len(self.pids) < most:
                self.fork()
            came = select.select([self.asked, self.woken], [], [], PARENT_POLL_SECONDS)[0]
            if self.woken in came:
                os.read(self.woken, 64)
                self.reap()
            if self.asked in came:
                most = max(os.read(self.asked, 64), default=0)
        self.end(0)

    def fork(self) -> None:
        pid = os.fork()
        if pid:
            self.pids.add(pid)
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
            self.compile()
        finally:
            os._exit(0)

    def reap(self) -> None:
        """Ends all when one has ended: as that was killed, or because there are no more requests."""
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            self.pids.discard(pid)
            self.end(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)

    def end(self, by: int) -> None:
        """Ends all and this process, by a signal where it is not 0."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in self.pids:
            with suppress(ProcessLookupError):  # the signal came between the wait for it and its leaving the set
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if by:
            os.kill(os.getpid(), signal.SIGKILL if by == signal.SIGTERM else by)
        os._exit(0)

    def compile(self) -> None:
        """Answers requests from stdin on stdout until there are no more."""
        while True:
            with self.reading:
                number, *sizes = REQUEST.unpack(_read(REQUEST.size))
                texts = [_read(size).decode() for size in sizes]
            try:
                failed, answer = 0, compile_object(*texts)
            except Exception as error:
                failed, answer = 1, str(error).encode()
            left = memoryview(ANSWER.pack(failed, number, len(answer)) + answer)
            with self.writing:
                while left:
                    left = left[os.write(1, left) :]


def _read(size: int) -> bytes:
    """So many bytes from stdin; ends the process where there are no more."""
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            sys.exit()
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main(folder: str, asked: int) -> None:
    """Loads LLVM, and starts processes with it."""
    sys.path.insert(0, folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it, and ends it if need be
    machine("x86_64-unknown-linux-gnu", "", "", opt=3)
    _Compilers(asked).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
