"""pandas' frames, series, indexes, arrays and single values, each with its own parts.

A frame is its columns and two indexes. A column is the array in it: numpy's, of which each element of an object column
is stored like any other value, or one of pandas' own. So neither a dtype, nor an index, nor a category changes, and
neither a format of files nor another package is involved.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy

from langgraph_checkpoint_custom.encoding.extensions import POSITIONAL, SINGLE, UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import Leaf, called, rebuilt

pandas: Any = import_module("pandas")


def _array_of(column: Any) -> Any:
    """The array in a series or an index."""
    return column.to_numpy() if isinstance(column.dtype, numpy.dtype) else column.array


def _of_frame(frame: Any) -> dict[str, Any]:
    columns = [_array_of(frame.iloc[:, number]) for number in range(frame.shape[1])]
    return {"columns": frame.columns, "index": frame.index, "data": columns, **_notes(frame)}


def _frame(those: Any) -> Any:
    index = those["index"]
    # As series with their dtypes, of which pandas guesses none.
    data = {number: pandas.Series(each, index, each.dtype) for number, each in enumerate(those["data"])}
    made = pandas.DataFrame(data, index=index)
    made.columns = those["columns"]
    return _noted(made, those)


def _of_series(series: Any) -> dict[str, Any]:
    return {"data": _array_of(series), "index": series.index, "name": series.name, **_notes(series)}


def _series(those: Any) -> Any:
    data = those["data"]
    return _noted(pandas.Series(data, those["index"], data.dtype, those["name"]), those)


def _notes(those: Any) -> dict[str, Any]:
    """What a frame or series has besides its data, if that is not the default."""
    found: dict[str, Any] = {"attrs": those.attrs} if those.attrs else {}
    return found if those.flags.allows_duplicate_labels else found | {"duplicates": False}


def _noted(made: Any, those: Any) -> Any:
    made.attrs = those.get("attrs", {})
    return made if those.get("duplicates", True) else made.set_flags(allows_duplicate_labels=False)


# Indexes


def _of_index(index: Any) -> dict[str, Any]:
    found = {"data": _array_of(index), "name": index.name}
    frequency = getattr(index, "freq", None)
    if frequency is None or isinstance(index, pandas.PeriodIndex):
        return found
    return found | {"freq": _text_of(frequency)}


def _index(cls: Any) -> Leaf:
    def make(those: Any) -> Any:
        data = those["data"]
        if cls is pandas.Index:
            return pandas.Index(data, dtype=data.dtype, name=those["name"])
        made = cls(data, name=those["name"])
        if "freq" in those:
            made.freq = those["freq"]
        return made

    return rebuilt(cls, "pandas", _of_index, make)


def _text_of(frequency: Any) -> str:
    """The text of a frequency; some, such as business days without holidays, are more than their text."""
    if pandas.tseries.frequencies.to_offset(frequency.freqstr) != frequency:
        raise UnstorableValue(
            f"the frequency {frequency.freqstr!r} is more than its text; set the index's freq to None"
        )
    return str(frequency.freqstr)


def _period(frequency: Any) -> str:
    """The text of a period's frequency."""
    return str(pandas.PeriodDtype(frequency)).removeprefix("period[").removesuffix("]")


def _of_many(index: Any) -> list[Any]:
    return [list(index.levels), [numpy.asarray(codes) for codes in index.codes], list(index.names)]


def _many(those: Any) -> Any:
    levels, codes, names = those
    return pandas.MultiIndex(levels, codes, names=names, verify_integrity=True)


def _of_range(index: Any) -> list[Any]:
    return [index.start, index.stop, index.step, index.name]


def _range(those: Any) -> Any:
    start, stop, step, name = those
    return pandas.RangeIndex(start, stop, step, name=name)


# Arrays


def _of_times(array: Any) -> list[Any]:
    zone = getattr(array, "tz", None)
    plain = array if zone is None else array.tz_convert("UTC").tz_localize(None)
    frequency = getattr(array, "freq", None)  # Before pandas 3.
    return [plain.to_numpy(), zone, frequency and _text_of(frequency)]


def _times(those: Any) -> Any:
    data, zone, frequency = those
    index = pandas.Index(data, dtype=data.dtype)
    if zone is not None:
        index = index.tz_localize("UTC").tz_convert(zone)
    index.freq = frequency
    return index.array


def _of_masked(array: Any) -> list[Any]:
    kind = array.dtype.numpy_dtype if hasattr(array.dtype, "numpy_dtype") else numpy.dtype(bool)
    return [array.to_numpy(dtype=kind, na_value=kind.type(0)), array.isna()]


def _of_texts(array: Any) -> list[Any]:
    missing = array.isna()
    texts = [None if gone else text for gone, text in zip(missing, array, strict=True)]
    return [texts, array.dtype.storage, getattr(array.dtype, "na_value", pandas.NA)]


def _texts(those: Any) -> Any:
    texts, storage, missing = those
    kind = pandas.StringDtype(storage) if missing is pandas.NA else pandas.StringDtype(storage, na_value=missing)
    return pandas.array(texts, dtype=kind)


def _arrays(name: str, parts: Any, make: Any) -> list[Leaf]:
    """The leaf of a class of arrays, if the installed pandas has it."""
    cls = getattr(pandas.arrays, name, None)
    return [rebuilt(cls, "pandas.arrays", parts, make, name)] if cls else []


def _masked(name: str) -> list[Leaf]:
    return _arrays(name, _of_masked, lambda those: getattr(pandas.arrays, name)(*those))


LEAVES = [
    rebuilt(pandas.DataFrame, "pandas", _of_frame, _frame),
    rebuilt(pandas.Series, "pandas", _of_series, _series),
    *map(
        _index,
        (
            pandas.Index,
            pandas.DatetimeIndex,
            pandas.TimedeltaIndex,
            pandas.PeriodIndex,
            pandas.IntervalIndex,
            pandas.CategoricalIndex,
        ),
    ),
    rebuilt(pandas.MultiIndex, "pandas", _of_many, _many),
    rebuilt(pandas.RangeIndex, "pandas", _of_range, _range),
    rebuilt(
        pandas.Categorical,
        "pandas",
        lambda o: [numpy.asarray(o.codes), o.categories, o.ordered],
        lambda those: pandas.Categorical.from_codes(those[0], those[1], those[2]),
    ),
    *_arrays("DatetimeArray", _of_times, _times),
    *_arrays("TimedeltaArray", _of_times, _times),
    *_arrays(
        "PeriodArray",
        lambda o: [o.asi8, _period(o.freq)],
        lambda those: pandas.PeriodIndex.from_ordinals(those[0], freq=those[1]).array,
    ),
    *_arrays(
        "IntervalArray",
        lambda o: [o.left, o.right, o.closed],
        lambda those: pandas.arrays.IntervalArray.from_arrays(*those),
    ),
    *_masked("IntegerArray"),
    *_masked("FloatingArray"),
    *_masked("BooleanArray"),
    *_arrays("StringArray", _of_texts, _texts),
    *_arrays("ArrowStringArray", _of_texts, _texts),
    *_arrays("NumpyExtensionArray", lambda o: o.to_numpy(), lambda data: pandas.arrays.NumpyExtensionArray(data)),
    rebuilt(pandas.Timestamp, "pandas", lambda o: [o.to_datetime64(), o.tz, o.fold], lambda those: _timestamp(*those)),
    called(pandas.Timedelta, SINGLE, "pandas", lambda o: o.to_timedelta64()),
    called(type(pandas.NaT), SINGLE, "pandas", lambda _: "NaT", "Timestamp")._replace(make=pandas.Timestamp),
    rebuilt(type(pandas.NA), "pandas", lambda _: None, lambda _: pandas.NA, "NA"),
    rebuilt(
        pandas.Period,
        "pandas",
        lambda o: [o.ordinal, _period(o.freq)],
        lambda those: pandas.Period(ordinal=those[0], freq=those[1]),
    ),
    called(pandas.Interval, POSITIONAL, "pandas", lambda o: [o.left, o.right, o.closed]),
]


def _timestamp(utc: Any, zone: Any, fold: int) -> Any:
    made = pandas.Timestamp(utc)
    if zone is not None:
        made = made.tz_localize("UTC").tz_convert(zone)
    return made if made.fold == fold else made.replace(fold=fold)
