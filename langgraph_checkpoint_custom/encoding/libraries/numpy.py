"""numpy's arrays, scalars and dtypes.

An array is stored as LangGraph stores it: its dtype, shape, order and bytes. An array of objects or of texts of any
length has its elements instead of bytes; a structured one also has the names and types of its fields. A scalar is the
number or text from which numpy makes the same scalar, or an array of no dimension if there is none.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy

from langgraph_checkpoint_custom.encoding.extensions import KEYWORDS, NUMPY, POSITIONAL, SINGLE, UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import Leaf, called, rebuilt

# Texts of any length, which numpy 2 has.
_TEXTS: Any = getattr(getattr(numpy, "dtypes", None), "StringDType", None)
_NUMBERS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def _of_dtype(kind: Any) -> list[Any]:
    """The text of a dtype and, if it is structured, the names and types of its fields."""
    if kind.kind == "T" and kind == _TEXTS():
        return ["T"]
    if kind.kind not in "VT":
        return [kind.str]
    with suppress(ValueError):  # `descr` cannot describe overlapping fields.
        found = [kind.str, [list(each) for each in kind.descr]] if kind.names else [kind.str]
        if _dtype(*found) == kind:
            return found
    raise UnstorableValue(f"the numpy dtype {kind} would come back as another one")


def _dtype(text: str, names: Any = None) -> Any:
    return numpy.dtype(text) if names is None else numpy.lib.format.descr_to_dtype(_described(names))


def _described(names: Any) -> Any:
    """A `descr` with its lists as tuples again; a name can be a tuple, too: a title and a name."""
    return [
        (
            tuple(name) if type(name) is list else name,
            _described(kind) if type(kind) is list else kind,
            *map(tuple, more),
        )
        for name, kind, *more in names
    ]


def _of_array(array: Any) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    text, *names = _of_dtype(array.dtype)
    data = array.ravel(order).tolist() if array.dtype.hasobject else array.tobytes(order="A")
    return [text, list(array.shape), order, data, *names]


def _array(those: Any) -> Any:
    text, shape, order, data, *names = those
    kind = _dtype(text, *names)
    if type(data) is list:
        found = numpy.empty(len(data), dtype=kind)
        for number, each in enumerate(data):  # Assigned together, lists of one length would become another dimension.
            found[number] = each
        return found.reshape(shape, order=order)
    # An array over bytes would be read-only, unlike the original, so it is copied. A copy of a structured array would
    # have only the fields, not the bytes between them, so that one gets a bytearray.
    if names:
        return numpy.frombuffer(bytearray(data), dtype=kind).reshape(shape, order=order)
    return numpy.frombuffer(data, dtype=kind).reshape(shape, order=order).copy(order="K")


def _of_masked_array(array: Any) -> dict[str, Any]:
    mask = numpy.ma.getmask(array)
    return {
        "data": numpy.asarray(array.data),
        "mask": False if mask is numpy.ma.nomask else mask,
        "fill_value": array._fill_value,
        "hard_mask": bool(array.hardmask),
    }


def _of_scalar(scalar: Any) -> Any:
    if isinstance(scalar, (str, bytes)):
        return str.__str__(scalar) if isinstance(scalar, str) else bytes(scalar)
    value = scalar.item()
    return value if type(value) is _NUMBERS.get(scalar.dtype.kind) else numpy.asarray(scalar)


def _scalar(cls: Any) -> Leaf:
    def make(stored: Any) -> Any:
        return stored[()] if isinstance(stored, numpy.ndarray) else cls(stored)

    name = "bool_" if cls is numpy.bool_ else cls.__name__  # numpy 1 does not have it as `bool`.
    return Leaf(cls, SINGLE, "numpy", name, _of_scalar, make)


def _view(cls: Any) -> Leaf:
    """The leaf of arrays that are used in another way."""
    return rebuilt(cls, "numpy", lambda o: o.view(numpy.ndarray), lambda o: o.view(cls))


def _leaf_of_dtype(cls: Any) -> Leaf:
    return Leaf(cls, POSITIONAL, "numpy", "dtype", _of_dtype, lambda those: _dtype(*those))


_DTYPES = {type(numpy.dtype(code)) for code in numpy.typecodes["All"]} | ({_TEXTS} - {None})
LEAVES = [
    Leaf(numpy.ndarray, NUMPY, "numpy", "ndarray", _of_array, _array),
    called(numpy.ma.MaskedArray, KEYWORDS, numpy.ma.MaskedArray.__module__, _of_masked_array),
    _view(numpy.recarray),
    _view(numpy.matrix),
    *map(_leaf_of_dtype, _DTYPES),
    *(_scalar(cls) for cls in {*numpy.sctypeDict.values()} if cls is not numpy.object_),
]
