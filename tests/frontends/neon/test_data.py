"""Readers of real layouts on files that the tests write, broken ones too; iterators that shuffle, wrap, pad, prefetch and resume."""

import gzip
import os
import pickle
import struct
import sys
import types

import numpy as np
import pytest

import ngraph as ng
from ngraph.data.mnist import Unavailable
from ngraph.frontends.neon import (
    CIFAR10,
    CIFAR100,
    IMDB,
    MNIST,
    PTB,
    ArrayIterator,
    FashionMNIST,
    IterableSource,
    Prefetch,
    SequentialArrayIterator,
    Shakespeare,
    Text,
    ax,
)
from ngraph.frontends.neon.data.readers import image_folder, unpickle

RANDOM = np.random.default_rng(0)


# ---- readers ------------------------------------------------------------------------------------------------------------


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files(tmp_path, kind, zipped):
    held = {}
    for prefix, count in (("train", 5), ("t10k", 3)):
        held[prefix] = RANDOM.integers(0, 256, (count, 28, 28), np.uint8), RANDOM.integers(0, 10, count).astype(np.uint8)
        for array, name in zip(held[prefix], ("images-idx3", "labels-idx1"), strict=True):
            path = tmp_path / f"{prefix}-{name}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    train, valid = kind(str(tmp_path)).load_data()
    assert (train["image"]["data"] == held["train"][0]).all() and (valid["label"]["data"] == held["t10k"][1]).all()
    assert train["image"]["axes"] == ("N", "H", "W") and train["label"]["data"].dtype == np.int32
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ng.NgraphError, match="expected"):
        kind(str(tmp_path)).load_data()


def cifar_files(folder, pickled, classes=10, count=4):
    names = {10: [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"], 100: ["train", "test"]}[classes]
    held = []
    for name in names:
        images = RANDOM.integers(0, 256, (count, 3072), np.uint8)
        labels = RANDOM.integers(0, 10 if classes == 10 else 20, (count, 1 if classes == 10 else 2)).astype(np.uint8)
        held.append((images, labels))
        if pickled:
            keys = [b"labels"] if classes == 10 else [b"coarse_labels", b"fine_labels"]
            entry = {b"data": images, **{k: list(map(int, labels[:, i])) for i, k in enumerate(keys)}, b"batch_label": b"x"}
            (folder / name).write_bytes(pickle.dumps(entry, 2))
        else:
            (folder / f"{name}.bin").write_bytes(np.concatenate([labels, images], 1).tobytes())
    return held


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(tmp_path, pickled, classes):
    inner = {(10, False): "cifar-10-batches-bin", (10, True): "", (100, False): "", (100, True): "cifar-100-python"}[classes, pickled]
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    held = cifar_files(folder, pickled, classes)
    train, valid = (CIFAR10 if classes == 10 else CIFAR100)(str(tmp_path)).load_data()
    images = np.concatenate([i for i, _ in held[:-1]]).reshape(-1, 3, 32, 32)
    assert (train["image"]["data"] == images).all() and train["image"]["axes"] == ("N", "C", "H", "W")
    assert (valid["label"]["data"] == held[-1][1][:, 0]).all()
    if classes == 100:
        assert (CIFAR100(str(tmp_path), label="fine").load_data()[1]["label"]["data"] == held[-1][1][:, 1]).all()
    broken = folder / (("test" if classes == 100 else "test_batch") + ("" if pickled else ".bin"))
    broken.write_bytes(broken.read_bytes()[:-7])
    with pytest.raises(ng.NgraphError, match=f"{broken.name}: expected") as error:
        (CIFAR10 if classes == 10 else CIFAR100)(str(tmp_path)).load_data()
    assert "fix:" in str(error.value)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/neon-was-here",)


def test_no_code_of_a_pickle_runs(tmp_path):
    path = tmp_path / "evil"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ng.NgraphError, match="only arrays are allowed"):
        unpickle(str(path))
    assert not os.path.exists("/tmp/neon-was-here")
    path.write_bytes(pickle.dumps({"a": np.arange(3), "b": [1, 2.5, "x"]}))
    assert (unpickle(str(path))["a"] == np.arange(3)).all()


def test_missing_files_say_where_and_what(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(Unavailable, match="data_batch_1[\\s\\S]*cs.toronto.edu[\\s\\S]*pip install pooch"):
        CIFAR10(str(tmp_path)).load_data()
    with pytest.raises(Unavailable, match="ptb.train.txt"):
        PTB(str(tmp_path)).load_data()
    with pytest.raises(Unavailable, match="imdb.npz"):
        IMDB(str(tmp_path)).load_data()
    with pytest.raises(Unavailable, match="shakespeare.txt is missing"):
        Shakespeare(str(tmp_path))


def test_downloads_are_hashed(tmp_path, monkeypatch):
    asked = []

    def retrieve(url, known_hash, fname, path, processor, progressbar):
        asked.append((url, known_hash))
        raise ValueError(f"hash of downloaded file ({fname}) does not match")

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve, Untar=lambda **k: None))
    with pytest.raises(Unavailable, match="does not match"):
        CIFAR10(str(tmp_path)).load_data()
    assert asked[0][1].startswith("md5:")


def test_data_folder_by_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("NGRAPH_DATA", str(tmp_path))
    assert MNIST().path == str(tmp_path)
    (tmp_path / "mnist").mkdir()
    assert MNIST().path == str(tmp_path / "mnist") and MNIST("there").path == "there"


def test_penn_treebank_and_text(tmp_path):
    for part, text in (("train", " the cat sat \n the dog \n"), ("valid", " the cat \n"), ("test", " the dog \n")):
        (tmp_path / f"ptb.{part}.txt").write_text(text)
    words = PTB(str(tmp_path), use_words=True)
    held = words.load_data()
    assert words.vocab.decode(held["train"]["inp_txt"]["data"]) == "the cat sat <eos> the dog <eos>".split()
    assert (held["train"]["tgt_txt"]["data"][:-1] == held["train"]["inp_txt"]["data"][1:]).all()
    assert held["train"]["tgt_txt"]["data"][-1] == held["train"]["inp_txt"]["data"][0]
    characters = PTB(str(tmp_path), shift_target=False).load_data()
    assert (characters["valid"]["tgt_txt"]["data"] == characters["valid"]["inp_txt"]["data"]).all()
    text = Text(str(tmp_path / "ptb.train.txt"), splits=(0.2, 0.2))
    assert text.decode(text.encode("the cat")) == "the cat"
    (tmp_path / "shakespeare.txt").write_text("To be, or not to be" * 10)
    assert len(Shakespeare(str(tmp_path)).test["inp_txt"]["data"]) == 19
    (tmp_path / "bad.txt").write_bytes(b"ab\xffcd")
    with pytest.raises(ng.NgraphError, match="byte 0xff at 2"):
        Text(str(tmp_path / "bad.txt"))
    with pytest.raises(ng.NgraphError, match="'q' is not among"):
        text.encode("q")


def test_reviews(tmp_path):
    for part in ("train", "test"):
        for label, text in (("neg", "bad bad film"), ("pos", "good film <br /> good")):
            (tmp_path / "aclImdb" / part / label).mkdir(parents=True)
            (tmp_path / "aclImdb" / part / label / "0.txt").write_text(text)
    held = IMDB(str(tmp_path), sentence_length=6, shuffle=False).load_data(test_split=0.5)
    review, label = held["train"]["review"]["data"], held["train"]["label"]["data"]
    assert review.shape == (2, 6) and list(label) == [0, 1] and list(review[0][:2]) == [0, 0] and review[0][2] == 1
    assert review[0][3] == review[0][4] != review[0][5] == review[1][4]
    lists = np.array([[1, 5, 9], [1, 7]], object)
    np.savez(tmp_path / "imdb.npz", x_train=lists, y_train=np.array([1, 0]), x_test=lists[:1], y_test=np.array([0]))
    packed = IMDB(str(tmp_path), sentence_length=2, vocab_size=8, shuffle=False).load_data(test_split=0.34)
    assert packed["train"]["review"]["data"].tolist() == [[5, 2], [1, 7]] and packed["valid"]["label"]["data"].tolist() == [0]


def test_image_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for k, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((4, 6, 3), 10 * k, np.uint8)).save(tmp_path / name / "0.png")
    images, labels, names = image_folder(str(tmp_path))
    assert images.shape == (2, 3, 4, 6) and list(labels) == [0, 1] and names == ["cat", "dog"] and (images[1] == 10).all()
    assert image_folder(str(tmp_path), (2, 2))[0].shape == (2, 3, 2, 2)
    (tmp_path / "dog" / "1.png").write_bytes(b"no picture")
    with pytest.raises(ng.NgraphError, match="1.png: expected a picture"):
        image_folder(str(tmp_path))


# ---- iterators ----------------------------------------------------------------------------------------------------------

DATA = {"image": np.arange(10), "label": np.arange(10) * 2}


def rows(iterator):
    return [list(b["image"]) for b in iterator]


def test_wrapping_goes_on_where_it_ended():
    it = ArrayIterator(DATA, 4)
    assert rows(it) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]] and rows(it)[0] == [2, 3, 4, 5]
    it.reset()
    assert rows(it)[0] == [0, 1, 2, 3] and it.nbatches == 3 and it.ndata == 10
    assert [b["iteration"] for b in ArrayIterator(DATA, 4, total_iterations=7)] == list(range(7))


@pytest.mark.parametrize("last, sizes", [("drop", [4, 4]), ("short", [4, 4, 2]), ("pad", [4, 4, 4])])
def test_last_batches(last, sizes):
    it = ArrayIterator(DATA, 4, last=last)
    assert [len(r) for r in rows(it)] == sizes and rows(it)[0] == [0, 1, 2, 3]
    if last == "pad":
        assert list(list(it)[-1]["mask"]) == [1, 1, 0, 0]


@pytest.mark.parametrize("last", ["wrap", "drop", "short", "pad"])
@pytest.mark.parametrize("prefetch", [False, True])
def test_shuffled_passes_have_all_examples_and_resume_anywhere(last, prefetch):
    def made():
        it = ArrayIterator(DATA, 4, shuffle=True, seed=5, last=last)
        return Prefetch(it) if prefetch else it

    whole = [r for _ in range(4) for r in rows(made_one)] if (made_one := made()) else []
    if last != "drop":
        first = [x for r in whole[: made_one.nbatches] for x in r][:10]
        assert sorted(first) == list(range(10)) and first != list(range(10))
    assert whole[: made_one.nbatches] != whole[made_one.nbatches : 2 * made_one.nbatches]
    for stop in range(1, len(whole), 2):
        it, seen = made(), []
        while len(seen) < stop:
            for b in it:
                seen.append(list(b["image"]))
                if len(seen) == stop:
                    break
        again = made()
        again.restore(it.state())
        while len(seen) < len(whole):
            seen += rows(again)
        assert seen == whole


def test_writing_into_a_batch_writes_into_no_data():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for shuffle in (False, True):
        first = next(iter(ArrayIterator({"x": x}, 3, shuffle=shuffle)))["x"]
        if shuffle:
            first *= 0
        else:
            with pytest.raises(ValueError, match="read-only"):
                first *= 0
    assert x.flags.writeable and (x.ravel() == np.arange(12)).all()


def test_batches_made_ahead_are_not_those_that_a_source_fills_again():
    held = np.zeros((3, 2), np.float32)

    def source():
        for k in range(6):
            held[:] = k
            yield {"x": held}

    assert [b["x"][0, 0] for b in Prefetch(IterableSource(source), depth=4)] == [0, 1, 2, 3, 4, 5]


def test_batches_that_are_not_shuffled_are_views_of_a_memory_map(tmp_path):
    big = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (64, 3))
    it = ArrayIterator({"x": big}, 16)
    assert all(np.shares_memory(b["x"], big) for b in it)


def test_labels_stay_with_their_images():
    for batch in ArrayIterator(DATA, 3, shuffle=True):
        assert (batch["label"] == 2 * batch["image"]).all()


def test_windows_of_text():
    text = np.arange(101)
    data = {"inp_txt": text, "tgt_txt": np.roll(text, -1)}
    it = SequentialArrayIterator(data, time_steps=5, batch_size=4, get_prev_target=True)
    first, second = list(it)[:2]
    assert first["inp_txt"].shape == (4, 5) and (first["tgt_txt"] == first["inp_txt"] + 1).all()
    assert (second["inp_txt"][:, 0] == first["inp_txt"][:, -1] + 1).all()  # rows go on
    assert (first["prev_tgt"][1:] == first["inp_txt"][1:]).all()
    shuffled = SequentialArrayIterator(data, 5, 4, shuffle="random")
    starts = [int(r[0]) for b in shuffled for r in b["inp_txt"]]
    assert starts != sorted(starts) and len(set(starts)) == 20 and [int(r[0]) for b in shuffled for r in b["inp_txt"]] != starts
    reverse = next(iter(SequentialArrayIterator(data, 5, 4, reverse_target=True)))
    assert (reverse["tgt_txt"][:, ::-1] == reverse["inp_txt"] + 1).all()
    both = next(iter(SequentialArrayIterator(data, 5, 4, reverse_target=True, get_prev_target=True)))
    for target, before in zip(both["tgt_txt"].tolist(), both["prev_tgt"].tolist(), strict=True):
        assert before == [target[-1], *target[:-1]]  # as upstream
    assert SequentialArrayIterator(data, 5, 4, stride=1).windows == 97
    with pytest.raises(ValueError, match="shuffle is True, False or 'random', not 'randon'"):
        SequentialArrayIterator(data, 5, 4, shuffle="randon")
    with pytest.raises(ValueError, match="fewer than a batch"):
        SequentialArrayIterator(data, 50, 4)


def upstream(length, steps, size, stride, shuffle, total):
    """The windows of each batch of neon of 2017, element by element: a pass had length // stride // size batches, and indices wrapped."""
    batches = length // stride // size
    for k in range(batches if total is None else total):
        first = [k * stride + r * batches * steps if shuffle else (k * size + r) * stride for r in range(size)]
        yield [[(f + t) % length for t in range(steps)] for f in first]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("total", [None, 3, 71])
@pytest.mark.parametrize("length, steps, size, stride", [(101, 5, 4, 5), (60, 5, 3, 5), (97, 7, 2, 3), (33, 4, 30, 1), (50, 4, 2, 9)])
def test_windows_in_order_are_those_of_2017(length, steps, size, stride, shuffle, total):
    data = {"tgt_txt": np.arange(length)}
    expected = list(upstream(length, steps, size, stride, shuffle, total))
    found = SequentialArrayIterator(data, steps, size, total, stride=stride, shuffle=shuffle)
    assert [b["tgt_txt"].tolist() for b in found] == expected and found.nbatches == length // stride // size
    found.reset()
    backwards = SequentialArrayIterator(data, steps, size, total, stride=stride, shuffle=shuffle, reverse_target=True)
    for ours, theirs, again in zip(backwards, expected, found, strict=True):
        assert ours["tgt_txt"].tolist() == [row[::-1] for row in theirs] and again["tgt_txt"].tolist() == theirs
    if stride == steps and shuffle:
        once = [b["tgt_txt"].tolist() for b in found.once()]
        whole = list(upstream(length, steps, size, stride, shuffle, None))
        assert once[: len(whole)] == whole[: len(once)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("features", [(), (2,)])
def test_windows_of_several_entries_are_those_of_2017(features, shuffle):
    """Random lengths, strides and sizes beside rows at the indices of 2017, through two passes; targets backwards, and rolled."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        length, steps, size, stride = (int(rng.integers(low, high)) for low, high in ((40, 200), (1, 9), (1, 6), (1, 12)))
        batches = length // stride // size
        if not batches or length < steps:
            continue
        text = rng.normal(size=(length, *features))
        data = {"inp_txt": text, "out": np.roll(text, -1, axis=0)}
        options = {"stride": stride, "shuffle": shuffle, "tgt_key": "out", "reverse_target": True, "get_prev_target": True}
        found = SequentialArrayIterator(data, steps, size, **options)
        for _ in range(2):
            for k, batch in enumerate(found):
                rows = np.arange(size)
                first = k * stride + rows * batches * steps if shuffle else (k * size + rows) * stride
                at = (first[:, None] + np.arange(steps)) % length
                target = data["out"][at][:, ::-1]
                np.testing.assert_array_equal(batch["inp_txt"], text[at])
                np.testing.assert_array_equal(batch["out"], target)
                np.testing.assert_array_equal(batch["prev_tgt"], np.roll(target, 1, axis=1))
            assert k + 1 == batches == found.nbatches


def test_a_pass_that_is_longer_than_the_text_reads_on():
    """Each row goes on in the text of the next one, as neon's did, so the state that layers carry is not reset; later passes start anew."""
    it = SequentialArrayIterator({"tgt_txt": np.arange(60)}, 5, 3, total_iterations=10)
    rows = np.concatenate([b["tgt_txt"] for b in it], axis=1)
    np.testing.assert_array_equal(np.diff(rows, axis=1) % 60, 1)
    assert [k for k in range(30) if it.starts(k)] == [0, 10, 20]
    assert next(iter(it))["tgt_txt"][:, 0].tolist() == [0, 20, 40]
    assert all(SequentialArrayIterator({"tgt_txt": np.arange(60)}, 5, 3, shuffle=False).starts(k) for k in range(4))


def test_stretches_of_text_in_random_order():
    """Rows go on through four windows, then elsewhere; all stretches of a pass are unlike."""
    text = np.arange(401)
    it = Prefetch(SequentialArrayIterator({"inp_txt": text[:-1], "tgt_txt": text[1:]}, 5, 3, stretch=4))
    for _ in range(2):
        batches = list(it)
        assert len(batches) == len(it) == 24 and [it.starts(k) for k in range(9)] == [True, *[False] * 3] * 2 + [True]
        for one, two in zip(batches, batches[1:], strict=False):
            goes_on = two["inp_txt"][:, 0] == one["inp_txt"][:, -1] + 1
            assert goes_on.all() if two["iteration"] % 4 else not goes_on.all()
        begun = [int(r[0]) for b in batches[::4] for r in b["inp_txt"]]
        assert begun != sorted(begun) and len(set(begun)) == 18 and all(b % 20 == 0 for b in begun)
    assert it.starts(24) and it.starts(48)
    in_order = SequentialArrayIterator({"inp_txt": text}, 5, 3)
    assert [k for k in range(60) if in_order.starts(k)] == [0, 26, 52]
    with pytest.raises(ValueError, match="400 steps make 80 windows of 5, fewer than a batch of 11 stretches of 8"):
        SequentialArrayIterator({"inp_txt": text[:-1]}, 5, 11, stretch=8)


def test_placeholders_and_their_axes():
    it = ArrayIterator({"image": {"data": np.zeros((9, 3, 4), np.uint8), "axes": ("batch", "H", "W")}, "label": np.zeros(9, np.int32)}, 3)
    made = it.make_placeholders(include_iteration=True)
    assert [a.label for a in made["image"].axes] == ["N", "H", "W"] and ax.N.length == 3 and made["image"].dtype is ng.uint8
    assert set(made) == {"image", "label", "iteration"} and made["label"].axes[0] == made["image"].axes[0] == ax.N
    old = made["image"].axes[0]
    other = ArrayIterator({"image": np.zeros((9, 2), np.float32)}, 5).make_placeholders()
    assert ax.N.length == 5 and old.length == 3 and other["image"].axes[0].length == 5
    text = SequentialArrayIterator({"inp_txt": np.zeros(99, np.int32)}, 7, 2, tgt_key="inp_txt").make_placeholders()
    assert [a.label for a in text["inp_txt"].axes] == ["N", "REC"] and ax.REC.length == 7


def test_iterables_of_dicts():
    batches = [{"x": np.full((2, 3), k), "label": [k, k]} for k in range(4)]
    it = IterableSource(batches)
    assert [int(b["x"][0, 0]) for b in it] == [0, 1, 2, 3] and it.nbatches == 4 and it.batch_size == 2
    again = IterableSource(lambda: iter(batches))
    passing = iter(again)
    next(passing), next(passing)
    later = IterableSource(lambda: iter(batches))
    later.restore(again.state())
    assert [int(b["x"][0, 0]) for b in later] == [2, 3] and later.batch(0)["x"].dtype == np.int32
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader([{"x": torch.ones(3) * k, "label": k} for k in range(6)], batch_size=2)
    assert [b["x"].tolist()[0][0] for b in IterableSource(loader)] == [0, 2, 4]


def test_errors():
    with pytest.raises(ValueError, match="3 examples are fewer than a batch of 4"):
        ArrayIterator({"x": np.zeros(3)}, 4)
    with pytest.raises(ValueError, match="different numbers of examples: x 3, y 4"):
        ArrayIterator({"x": np.zeros(3), "y": np.zeros(4)}, 2)

    class Broken(ArrayIterator):
        def batch(self, k):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(Prefetch(Broken(DATA, 2)))


def test_an_iterator_of_sequences_that_includes_the_iteration_makes_its_placeholder():
    text = {"inp_txt": np.arange(40), "tgt_txt": np.arange(40)}
    for include in (False, True):
        made = SequentialArrayIterator(text, 4, 2, include_iteration=include).make_placeholders()
        assert ("iteration" in made) is include
