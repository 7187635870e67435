"""What the examples share: their flags, the check of a quick run, and data that they fall back on."""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys

import numpy as np

from ngraph.data.mnist import Unavailable, cache_folder
from ngraph.frontends.neon import CIFAR10, NgraphArgparser, Text
from ngraph.frontends.neon.data.readers import text_file


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The docstring as it stands, and defaults, where there are any."""

    def _get_help_string(self, action):
        return action.help if action.default in (None, False) else super()._get_help_string(action)


ALL = ("config", "data_dir", "log", "save_path", "batch_size", "backend", "rng_seed")  # the flags that every example minds


class Flags(NgraphArgparser):
    """neon's flags that an example minds, and --quick, under which those of `quick` have its defaults.

    `args.check`: whether the loss is to be checked, as after a quick run of the length that it has by default.
    """

    def __init__(self, quick, **options):
        super().__init__(**options)
        self.quick, shown = quick, ", ".join(f"{name} {value}" for name, value in quick.items()) or "smaller, and of fixed length"
        self.add_argument("--quick", action="store_true", help=f"run for seconds ({shown}), and check that the loss falls")

    def parse_args(self, args=None, namespace=None):
        given = self.parse_known_args(args, namespace)[0]
        epochs = getattr(given, "epochs", None) != self.get_default("epochs")
        if given.quick:
            self.set_defaults(**{name: value for name, value in self.quick.items() if not (epochs and name == "num_iterations")})
        parsed = super().parse_args(args, namespace)
        parsed.check = parsed.quick and all(getattr(parsed, name) == value for name, value in self.quick.items())
        return parsed


def flags(doc, *more, quick=(), **defaults):
    """The flags of an example: those that all mind, `more` by their long names, and those with a default of its own."""
    parser = Flags(dict(quick), description=doc, formatter_class=Help, only={*ALL, *more, *defaults})
    parser.set_defaults(save_path=f"out/{os.path.splitext(os.path.basename(sys.argv[0]))[0]}", **defaults)
    return parser


def training_flags(doc, quick, **defaults):
    """The flags of an example that trains by `fit`: its length is given in epochs or, by default or by -t, in batches."""
    epochs = "epochs" in defaults
    more = {"eval_freq": 1, "num_iterations": None} if epochs else {"iter_interval": None}
    parser = flags(doc, "no_progress_bar", quick=quick, **{**more, **defaults})
    parser.epilog = "where -t and -e are both given, -t counts" if epochs else None
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder of -s, if there is one")
    return parser


def length(args, train):
    """How many batches to train on: -t, else -e times through the data."""
    return args.num_iterations if args.num_iterations is not None else args.epochs * len(train)


def fit(trainer, args, train, valid):
    """Trains as the flags of `training_flags` say, with a checkpoint every 500 batches. The report."""
    trainer.progress_bar = not args.no_progress_bar
    total = length(args, train)
    every = args.eval_freq * len(train) if hasattr(args, "eval_freq") else args.iter_interval or len(train)
    return trainer.fit(train, valid, steps=total, every=min(every, total), checkpoint_every=500, resume=args.resume)


def fell(losses, factor, first=5, last=20):
    """Asserts that the loss fell by a factor, from the mean of the first batches to that of the last ones."""
    before, after = np.mean(losses[:first]), np.mean(losses[-last:])
    assert after < before / factor, f"the loss went from {before:.4g} to {after:.4g}, not down by a factor of {factor}"
    print(f"the loss fell from {before:.4g} to {after:.4g}")


def cifar10(count=2000):
    """CIFAR-10, or where it cannot be had pictures of the same shape: each class a pattern of its own, under noise."""
    try:
        return CIFAR10().load_data()
    except Unavailable:
        print("CIFAR-10 is not in its folder (NGRAPH_DATA); taking made-up pictures of the same shape")
    random = np.random.default_rng(0)
    patterns = random.normal(128, 40, (10, 3, 8, 8)).repeat(4, 2).repeat(4, 3)

    def part(n):
        labels = random.integers(0, 10, n).astype(np.int32)
        pictures = np.clip(patterns[labels] + random.normal(0, 40, (n, 3, 32, 32)), 0, 255).astype(np.uint8)
        return {"image": {"data": pictures, "axes": ("N", "C", "H", "W")}, "label": {"data": labels, "axes": ("N",)}}

    return part(count), part(count // 4)


def bible():
    """The King James Bible as a file: in NGRAPH_DATA or the cache folder, else written by Debian's program `bible`."""
    folder = os.path.join(os.environ.get("NGRAPH_DATA") or cache_folder(), "bible")
    path = os.path.join(folder, "bible.txt")
    if not os.path.exists(path):
        program = shutil.which("bible")
        if program is None:
            raise SystemExit(f"{path} is missing\n  fix: apt install bible-kjv bible-kjv-text, or put any text there")
        os.makedirs(folder, exist_ok=True)
        text = subprocess.run([program, "-f", "-l80", "gen1:1-rev22:21"], capture_output=True, check=True).stdout
        with open(path + ".part", "wb") as file:
            file.write(text)
        os.replace(path + ".part", path)
    return path


def text(args, characters=None, copies=0, **options):
    """The Bible as a Text; for a quick run its beginning. The last tenth is for testing; before the rest stand so many renamed copies."""
    whole = text_file(bible())
    whole = whole[: characters or 200_000] if args.quick else whole
    end, random = len(whole) - len(whole) // 10, np.random.default_rng(0)
    train = "".join([renamed(whole[:end], random) for _ in range(copies)]) + whole[:end]
    return Text("", text=train + whole[end:], splits=(0.0, (len(whole) - end) / (len(train) + len(whole) - end)), **options)


def renamed(text, random):
    """The text with a made-up name in the marks of each chapter's verses: a book is never named again, so its name has to be copied."""
    words = sorted(set(re.findall("[a-z]{3,}", text)))

    def name():
        return random.choice(["", "", "", "1", "2"]) + random.choice(words)[: random.integers(2, 7)].capitalize()

    names = collections.defaultdict(name)
    return re.sub(r"^\d?[A-Z][A-Za-z]*(\d+)(?=:\d+ )", lambda mark: names[mark[0]] + mark[1], text, flags=re.M)


def late(part):
    """The last tenth of a part of a text: what is nearest to that which follows."""
    return {name: {**entry, "data": entry["data"][-(len(entry["data"]) // 10) :]} for name, entry in part.items()}
