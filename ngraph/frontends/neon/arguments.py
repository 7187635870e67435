"""The command-line flags common to neon's programs."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Collection
from typing import Any, TextIO

import ngraph.transformers as ngt
from ngraph.data.mnist import cache_folder
from ngraph.errors import ArgumentError, nearest
from ngraph.frontends.neon.initializers import set_seed


class NgraphArgparser(argparse.ArgumentParser):
    """An ArgumentParser with neon's flags, or only with those that `only` lists by their long names.

    `parse_args` itself applies five of them: it chooses the transformer of `-b`, seeds it, initial values and shuffling by `-r`, makes data
    sets look in the folder of `-w`, copies the output into the file of `-l`, and reads further flags from the file of `-c`, one
    `key: value` or `key = value` a line; the command line takes precedence. The program reads the others.
    Raises ArgumentError where `only` lists an unknown flag.
    """

    def __init__(self, *args: Any, only: Collection[str] | None = None, **options: Any):
        super().__init__(*args, **{"formatter_class": argparse.ArgumentDefaultsHelpFormatter, **options})
        output = "output.hdf5" if importlib.util.find_spec("h5py") else "output.npz"
        known: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
            (("-c", "--config"), {"help": "a file with further flags"}),
            (("-v", "--verbose"), {"action": "count", "default": 0, "help": "say more"}),
            (("--no_progress_bar",), {"action": "store_true", "help": "no bar"}),
            (("-w", "--data_dir"), {"default": os.environ.get("NGRAPH_DATA") or cache_folder(), "help": "where data lies"}),
            (("-o", "--output_file"), {"default": output, "help": "costs: .hdf5, .npz or .csv"}),
            (("-t", "--num_iterations"), {"type": _count, "default": 2000, "help": "batches to train on"}),
            (("--iter_interval",), {"type": _count, "default": 200, "help": "batches between evaluations"}),
            (("-e", "--epochs"), {"type": _count, "default": 10, "help": "passes over the data"}),
            (("--manifest",), {"action": "append", "help": "a manifest of data, as key:file"}),
            (("--manifest_root",), {"help": "the folder that a manifest's paths are relative to"}),
            (("-eval", "--eval_freq"), {"type": _count, "default": 1, "help": "epochs between evaluations"}),
            (("-l", "--log"), {"help": "a file that gets a copy of what is printed"}),
            (("-s", "--save_path"), {"help": "a folder for checkpoints"}),
            (("-z", "--batch_size"), {"type": _count, "default": 128, "help": "examples in a batch"}),
            (("-b", "--backend"), {"default": None, "choices": ngt.transformer_choices(), "help": "the transformer"}),
            (("-r", "--rng_seed"), {"type": int, "default": None, "help": "the seed of initial values, shuffling and random numbers"}),
        )
        names = [flags[-1].removeprefix("--") for flags, _ in known]
        if only is not None and not set(only) <= set(names):
            strange = sorted(set(only) - set(names))
            meant = nearest(strange[0], names)
            raise ArgumentError(
                f"NgraphArgparser: no flag {', '.join(strange)}; there are {', '.join(names)}",
                fix=f"take {meant!r}" if meant else "take some of these",
            )
        for name, (flags, settings) in zip(names, known, strict=True):
            if only is None or name in only:
                self.add_argument(*flags, **settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        chosen, _ = self.parse_known_args(args, namespace)
        if getattr(chosen, "config", None):
            self.set_defaults(**self._from_file(chosen.config))
        parsed = super().parse_args(args, namespace)
        seed, backend, folder, log = (getattr(parsed, name, None) for name in ("rng_seed", "backend", "data_dir", "log"))
        if seed is not None:
            set_seed(seed)
        if backend is not None or seed is not None:
            make = ngt.make_transformer if backend is None else ngt.make_transformer_factory(backend)
            ngt.set_transformer_factory(make if seed is None else _seeded(make, seed))
        if folder is not None and folder != self.get_default("data_dir"):
            if not os.path.isdir(folder):
                self.error(f"-w {folder}: there is no such folder")
            os.environ["NGRAPH_DATA"] = folder
        if log is not None:
            try:
                sys.stdout = _Copied(sys.stdout, open(log, "a", encoding="utf-8"))
            except OSError as error:
                self.error(f"-l {log}: {error.strerror}")
        return parsed

    def _from_file(self, path: str) -> dict[str, Any]:
        known = {a.dest: a for a in self._actions}
        found = {}
        try:
            lines = open(path, encoding="utf-8")
        except OSError as error:
            self.error(f"-c {path}: {error.strerror}")
        with lines:
            for number, line in enumerate(lines, 1):
                text = line.split("#")[0].strip()
                if not text:
                    continue
                key, sign, value = text.partition("=" if "=" in text else ":")
                key, value = key.strip().replace("-", "_"), value.strip()
                if not sign or key not in known:
                    self.error(f"{path}:{number}: {text!r} is not a `flag: value`")
                found[key] = self._value(known[key], value, f"{path}:{number}")
        return found

    def _value(self, flag: argparse.Action, value: str, where: str) -> Any:
        """Returns the value of a flag in a file; refused as on the command line."""
        if flag.nargs == 0:  # a switch
            if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
                self.error(f"{where}: {flag.dest} is true or false, not {value!r}")
            return value.lower() in ("true", "1", "yes")
        try:
            made = flag.type(value) if callable(flag.type) else value
        except (ValueError, argparse.ArgumentTypeError):
            self.error(f"{where}: {flag.dest} cannot be {value!r}")
        if flag.choices is not None and made not in flag.choices:
            self.error(f"{where}: {flag.dest} is one of {', '.join(map(str, flag.choices))}, not {value!r}")
        return made


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


class _Copied:
    """A stream whose lines are also written to a file at once."""

    def __init__(self, stream: TextIO, file: TextIO):
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        self._file.flush()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _seeded(make: Any, seed: int) -> Any:
    if make is ngt.make_transformer:  # a factory that called itself would never end
        ngt.set_transformer_factory(None)
        make = type(ngt.make_transformer())

    def factory() -> Any:
        made = make()
        made.seed(seed)
        return made

    return factory
