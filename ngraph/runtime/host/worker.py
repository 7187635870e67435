"""Compiles IR text from a pipe: a process that loads LLVM and nothing else, so that other processes need not.

Run as a script, with the folder that contains llvmlite. A request is the lengths of four texts (triple, cpu, features, IR) and these;
the answer one byte (0: done), a length, and the object or the error. The process ends by itself without further requests.
"""

import os
import select
import signal
import struct
import sys
import threading
import time
from functools import cache
from typing import Any

REQUEST, ANSWER = "<4I", "<BI"
QUICK = "; quick\n"  # first line of a text that runs seldom: its instructions are selected fast, and not improved
OPEN = "; open\n"  # first line of a text with open lengths: LLVM's loop strength reduction takes half the time there and gains nothing
IDLE_SECONDS = 600.0  # seconds without a request after which it ends
PARENT_POLL_SECONDS = 0.5  # seconds after which it looks whether who started it is still there
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


def main(folder: str) -> None:
    """Answers requests from stdin on stdout until there are no more."""
    sys.path.insert(0, folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it, and ends it if need be
    parent = os.getppid()
    waiting: list[bytes] = []
    came = threading.Semaphore(0)
    busy = threading.Event()

    def read(size: int) -> bytes:
        parts = []
        while size:
            end = time.monotonic() + IDLE_SECONDS
            while not select.select([0], [], [], PARENT_POLL_SECONDS)[0]:
                if waiting or busy.is_set():
                    end = time.monotonic() + IDLE_SECONDS
                if os.getppid() != parent or time.monotonic() > end:
                    os._exit(0)
            part = os.read(0, min(size, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def listen() -> None:
        while True:
            sizes = struct.unpack(REQUEST, read(struct.calcsize(REQUEST)))
            waiting.append(b"\0".join([read(size) for size in sizes]))
            came.release()

    threading.Thread(target=listen, daemon=True).start()
    machine("x86_64-unknown-linux-gnu", "", "", opt=3)  # LLVM loads while the first request is being made
    while True:
        came.acquire()
        busy.set()
        triple, cpu, features, text = waiting.pop(0).decode().split("\0")
        try:
            failed, answer = 0, compile_object(triple, cpu, features, text)
        except Exception as error:
            failed, answer = 1, str(error).encode()
        left = memoryview(struct.pack(ANSWER, failed, len(answer)) + answer)
        while left:
            left = left[os.write(1, left) :]
        busy.clear()


if __name__ == "__main__":
    main(sys.argv[1])
