"""What the examples share: their flags, the check of a quick run, and data that they fall back on."""

import argparse
import os
import shutil
import subprocess

import numpy as np

from ngraph.data.mnist import Unavailable, cache_folder
from ngraph.frontends.neon import CIFAR10, NgraphArgparser, Text
from ngraph.frontends.neon.data.readers import text_file


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The docstring as it stands, and defaults."""


def flags(doc, **defaults):
    """neon's flags and --quick; `defaults` are those of this example."""
    parser = NgraphArgparser(description=doc, formatter_class=Help)
    parser.add_argument("--quick", action="store_true", help="run for seconds, and check that the loss falls")
    parser.set_defaults(**defaults)
    return parser


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


def text(args, characters=None, **options):
    """The Bible as a Text; for a quick run its beginning. The last tenth is for testing."""
    whole = text_file(bible())
    return Text("", text=whole[: characters or 200_000] if args.quick else whole, splits=(0.0, 0.1), **options)
