"""Pillow's images: mode, size and the bytes of the pixels, with the palette and what else is known of the image.

An image that was opened from a file is of another class, which holds on to the file.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from langgraph_checkpoint_custom.encoding.leaves import rebuilt

Image: Any = import_module("PIL.Image")


def _of_image(image: Any) -> dict[str, Any]:
    data = image.tobytes()
    found = {"mode": image.mode, "size": image.size, "data": data, "info": image.info}
    if image.palette is not None:
        found["palette"] = [image.palette.mode, bytes(image.getpalette(None))]
    if exif := getattr(image, "_exif", None):  # Tags that were read, and perhaps changed.
        found["exif"] = exif.tobytes()
    return found


def _image(those: Any) -> Any:
    found = Image.frombytes(those["mode"], those["size"], those["data"])
    found.info = those["info"]
    if "palette" in those:
        mode, colours = those["palette"]
        found.putpalette(colours, mode)
    if "exif" in those:
        found.getexif().load(those["exif"])
    return found


LEAVES = [rebuilt(Image.Image, "PIL.Image", _of_image, _image)]
