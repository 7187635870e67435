"""The flags that neon's programs share."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Any

import ngraph.transformers as ngt
from ngraph.data.mnist import cache_folder
from ngraph.frontends.neon.initializers import set_seed


class NgraphArgparser(argparse.ArgumentParser):
    """An ArgumentParser with neon's flags. `parse_args` chooses the transformer that `-b` names and seeds it and the first values by `-r`.

    -c FILE: further flags from a file, one `key: value` or `key = value` a line; those on the command line win.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **{"formatter_class": argparse.ArgumentDefaultsHelpFormatter, **options})
        output = "output.hdf5" if importlib.util.find_spec("h5py") else "output.npz"
        for flags, settings in (
            (("-c", "--config"), {"help": "a file with further flags"}),
            (("-v", "--verbose"), {"action": "count", "default": 0, "help": "say more"}),
            (("--no_progress_bar",), {"action": "store_true", "help": "no bar"}),
            (("-w", "--data_dir"), {"default": os.environ.get("NGRAPH_DATA") or cache_folder(), "help": "where data lies"}),
            (("-o", "--output_file"), {"default": output, "help": "costs: .hdf5, .npz or .csv"}),
            (("-t", "--num_iterations"), {"type": int, "default": 2000, "help": "batches to train on"}),
            (("--iter_interval",), {"type": int, "default": 200, "help": "batches between evaluations"}),
            (("-e", "--epochs"), {"type": int, "default": 10, "help": "times through the data"}),
            (("--manifest",), {"action": "append", "help": "a manifest of data, as key:file"}),
            (("--manifest_root",), {"help": "what a manifest's files are relative to"}),
            (("-eval", "--eval_freq"), {"type": int, "default": 1, "help": "epochs between evaluations"}),
            (("-l", "--log"), {"help": "a file for the log"}),
            (("-s", "--save_path"), {"help": "a folder for checkpoints"}),
            (("-z", "--batch_size"), {"type": int, "default": 128, "help": "examples in a batch"}),
            (("-b", "--backend"), {"default": None, "choices": ngt.transformer_choices(), "help": "the transformer"}),
            (("-r", "--rng_seed"), {"type": int, "default": None, "help": "the seed of all random numbers"}),
        ):
            self.add_argument(*flags, **settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        chosen, _ = self.parse_known_args(args, namespace)
        if chosen.config:
            self.set_defaults(**self._from_file(chosen.config))
        parsed = super().parse_args(args, namespace)
        seed = parsed.rng_seed
        if seed is not None:
            set_seed(seed)
        if parsed.backend is not None or seed is not None:
            make = ngt.make_transformer if parsed.backend is None else ngt.make_transformer_factory(parsed.backend)
            ngt.set_transformer_factory(make if seed is None else _seeded(make, seed))
        return parsed

    def _from_file(self, path: str) -> dict[str, Any]:
        known = {a.dest: a for a in self._actions}
        found = {}
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                text = line.split("#")[0].strip()
                if not text:
                    continue
                key, sign, value = text.partition("=" if "=" in text else ":")
                key = key.strip().replace("-", "_")
                if not sign or key not in known:
                    self.error(f"{path}:{number}: {text!r} is no `flag: value`")
                kind = known[key].type
                found[key] = kind(value.strip()) if callable(kind) else value.strip()
        return found


def _seeded(make: Any, seed: int) -> Any:
    if make is ngt.make_transformer:  # a factory that asks for itself would never end
        ngt.set_transformer_factory(None)
        make = type(ngt.make_transformer())

    def factory() -> Any:
        made = make()
        made.seed(seed)
        return made

    return factory
