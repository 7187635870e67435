"""Encoded images as arrays. `pillow` is the module PIL.Image of the optional package Pillow, which who calls these imports."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ngraph.errors import GraphError, UnsupportedError

Array = np.ndarray[Any, Any]

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's names by number of channels
RGB_TO_GREY = np.array([9798, 19235, 3735])  # libpng's parts of 32,768 for 0.299, 0.587 and 0.114 of red, green and blue
WIDER = 256  # by which TensorFlow multiplies numbers of 8 bits that it gives as 16, but for PNG files (decode_image_op.cc)
LARGEST_IMAGE = 1 << 28  # pixels: what a header may ask for


def image_of(pillow: Any, data: bytes) -> Any:
    """Returns Pillow's image of encoded bytes. Raises GraphError for bytes that are no image, and for one that is too large."""
    try:
        found = pillow.open(io.BytesIO(data))
    except Exception as error:
        raise GraphError(f"{len(data)} bytes are not an image: {error}") from None
    if found.width * found.height > LARGEST_IMAGE:
        raise GraphError(f"an image of {found.width:,} x {found.height:,} pixels; at most {LARGEST_IMAGE:,} are decoded")
    return found


def decoded(pillow: Any, data: bytes, channels: int = 0, ratio: int = 1, wide: bool = False) -> Array:
    """Returns an image as [height, width, channels] of uint8, or of uint16 where `wide`.

    channels: 0 for the file's own. ratio: by which JPEG images are made smaller, 1, 2, 4 or 8.
    Raises GraphError for bytes that are no image, UnsupportedError for 16 bits of colour.
    """
    made: Array
    image = image_of(pillow, data)
    own = 1 if image.mode in ("1", "L", "I;16", "I;16B", "I") else 2 if image.mode == "LA" else 4 if image.mode == "RGBA" else 3
    if image.mode == "P" and "transparency" in image.info:
        own = 4
    channels = channels or own
    if channels not in MODES:
        raise GraphError(f"images of {channels} channels; there are 1 to 4")
    try:
        if image.format == "JPEG":
            own = min(own, 3)
            image.draft("L" if channels == 1 else None, (max(image.width // ratio, 1), max(image.height // ratio, 1)))
            made = pixels(image.convert(MODES[channels]))
            return made.astype(np.uint16) * WIDER if wide else made
        if image.mode.startswith("I"):
            grey = np.asarray(image).astype(np.uint16)[:, :, None]
            made = grey if wide else (grey >> 8).astype(np.uint8)
        else:
            if wide and image.format == "PNG" and data[24:25] == b"\x10":
                raise UnsupportedError("Pillow reads 16 bits of grey images alone", fix="decode the image as uint8")
            made = pixels(image.convert(MODES[own])) if image.mode != MODES[own] else pixels(image)
            made = made.astype(np.uint16) * 257 if wide else made
    except OSError as error:
        raise GraphError(f"an image cannot be decoded: {error}") from None
    most = np.iinfo(made.dtype).max
    colour, alpha = (made[..., :-1], made[..., -1:]) if own in (2, 4) else (made, np.full_like(made[..., :1], most))
    if channels < 3 and own > 2:
        grey = (colour.astype(np.int64) @ RGB_TO_GREY >> 15)[..., None]
        colour = np.where((colour == colour[..., :1]).all(-1, keepdims=True), colour[..., :1], grey).astype(made.dtype)
    elif channels > 2 and own < 3:
        colour = np.repeat(colour, 3, axis=-1)
    return np.concatenate([colour, alpha], axis=-1) if channels in (2, 4) else colour


def bitmap(data: bytes, channels: int = 0, wide: bool = False) -> Array:
    """Returns a BMP file's numbers, [height, width, channels] of uint8, or of uint16 where `wide`, as TensorFlow's decode_image_op.cc.

    8, 24 or 32 bits a pixel, not compressed; colour tables are passed over. channels: 0 for the file's own.
    Raises GraphError for other files, and for channels that are not the file's own.
    """
    if len(data) < 32 or data[:2] != b"BM":
        raise GraphError(f"{len(data)} bytes are not a BMP file")
    start, width, height = (int.from_bytes(data[at : at + 4], "little", signed=True) for at in (10, 18, 22))
    bits = int.from_bytes(data[28:30], "little")
    own = bits // 8
    if bits not in (8, 24, 32) or (channels and channels != own):
        raise GraphError(f"a BMP file of {bits} bits a pixel is read as {channels or 'its own'} channels", fix="ask for 0 channels")
    row = (own * width + 3) // 4 * 4  # bytes
    if start < 0 or width <= 0 or not height or start + (abs(height) - 1) * row + width * own > len(data):
        raise GraphError(f"a BMP file of {width} x {height} pixels has {len(data)} bytes", fix="is the file cut off?")
    stored = np.frombuffer(data[start:].ljust(abs(height) * row, b"\0"), np.uint8, abs(height) * row)
    found = stored.reshape(abs(height), row)[:, : width * own].reshape(abs(height), width, own)
    found = found[::-1] if height > 0 else found  # the last row comes first, unless the height is negative
    found = found[:, :, [2, 1, 0, 3][:own]] if own > 1 else found  # blue comes first
    return found.astype(np.uint16) * WIDER if wide else found


def pixels(image: Any) -> Array:
    """Returns an image's numbers as [height, width, channels]."""
    found = np.asarray(image)
    return found if found.ndim == 3 else found[:, :, None]


def frames(pillow: Any, data: bytes) -> Array:
    """Returns the frames of a GIF file, [frames, height, width, 3] of uint8. Raises GraphError for bytes that are none."""
    image = image_of(pillow, data)
    if image.format != "GIF":
        raise GraphError(f"an image of the form {image.format} where a GIF file is read")
    if image.n_frames * image.width * image.height > LARGEST_IMAGE:
        raise GraphError(f"{image.n_frames:,} frames of {image.width:,} x {image.height:,} pixels; at most {LARGEST_IMAGE:,} are decoded")
    found = []
    for k in range(image.n_frames):
        image.seek(k)
        found.append(np.asarray(image.convert("RGB")))
    return np.stack(found)


def encoded(pillow: Any, array: Array, **jpeg: Any) -> bytes:
    """Returns [height, width, channels] of uint8, or one channel of uint16, as a PNG file; jpeg: with Pillow's options, as a JPEG file.

    Raises UnsupportedError for other arrays.
    """
    if jpeg and (array.dtype != np.uint8 or array.shape[-1] not in (1, 3)):
        raise UnsupportedError(f"{array.dtype}{list(array.shape)} as a JPEG file", fix="give 1 or 3 channels of uint8")
    if array.ndim != 3 or array.shape[-1] not in MODES or (array.dtype == np.uint16 and array.shape[-1] > 1):
        raise UnsupportedError(f"{array.dtype}{list(array.shape)} as a PNG file", fix="give [height, width, channels] of uint8")
    file = io.BytesIO()
    pillow.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(file, "JPEG" if jpeg else "PNG", **jpeg)
    return file.getvalue()
