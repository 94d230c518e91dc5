"""Values of pandas come back as they were, or are refused; only if it is installed.

pandas compares its values itself, with its strictest comparison. What is of other packages needs a codec.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.allowlist import strict_serde
from langgraph_checkpoint_custom.encoding.serde import exact_serializer
from tests.exactly import same
from tests.table.classes import Point

LANGGRAPH = JsonPlusSerializer()
SERDE = exact_serializer(LANGGRAPH)
STRICT = exact_serializer(strict_serde(JsonPlusSerializer(), ()))


def module(name: str) -> Any:
    """A package that may be missing, and that type checkers then do not know."""
    return import_module(name)


def through(value: Any) -> Any:
    """A value after it was stored in several places, read with `strict=True`, which allows all of these types."""
    stored = SERDE.dumps_typed([value, {"deep": (value,)}, ToolMessage("t", tool_call_id="1", artifact=value)])
    alone, deep, message = STRICT.loads_typed(stored)
    assert type(alone) is type(value)
    assert type(deep["deep"][0]) is type(message.artifact) is type(value)
    (inside,) = SERDE.loads_typed(SERDE.dumps_typed([Point(value)]))
    assert type(inside.x) is type(value)
    LANGGRAPH.loads_typed(stored)  # It reads the rest, and the parts of the value at least.
    return alone


def pandas_values() -> dict[str, Any]:
    pd = module("pandas")
    when = pd.date_range("2024-03-30", periods=4, freq="12h", tz="Europe/Berlin")
    frame = pd.DataFrame(
        {
            "int": [1, 2],
            "small": np.array([1, 2], "i1"),
            "float": [0.1, np.nan],
            "bool": [True, False],
            "text": ["x", None],
            "object": pd.Series([(1, {"a": 2}), dt.date(2024, 1, 1)], dtype=object),
            "mixed": pd.Series([1, "1"], dtype=object),
            "texts as objects": pd.Series(["a", "b"], dtype=object),
            "category": pd.Categorical(["b", "a"], categories=["b", "a", "z"], ordered=True),
            "when": pd.to_datetime(["2024-01-01", None]),
            "seconds": np.array(["2024-01-01", "NaT"], "M8[s]"),
            "zone": pd.to_datetime(["2024-10-27 00:30", "2024-10-27 01:30"])
            .tz_localize("UTC")
            .tz_convert("Europe/Berlin"),
            "fixed zone": pd.to_datetime(["2024-01-01", None]).tz_localize(dt.timezone(dt.timedelta(hours=5))),
            "delta": pd.to_timedelta(["1ns", None]),
            "Int64": pd.array([2**62, None], dtype="Int64"),
            "UInt8": pd.array([1, None], dtype="UInt8"),
            "Float32": pd.array([0.5, None], dtype="Float32"),
            "boolean": pd.array([True, None], dtype="boolean"),
            "period": pd.PeriodIndex(["2024-01", None], freq="M"),
            "interval": pd.arrays.IntervalArray.from_tuples([(0, 1), (1, 2)], closed="left"),
            "string python": pd.array(["a", None], dtype=pd.StringDtype("python")),
            "decimal": pd.Series([Decimal("1.10"), None], dtype=object),
        }
    )
    noted = frame.copy()
    noted.attrs = {"source": ("a", 1)}
    named = pd.DataFrame([[1, 2], [3, 4]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)], names=["x", None]))
    return {
        "frame": frame,
        "attrs": noted,
        "no duplicate labels": frame.set_flags(allows_duplicate_labels=False),
        "names": named.rename_axis(index=[("i", 1)]),
        "the same name twice": pd.DataFrame([[1, "a"]], columns=["a", "a"]),
        "numbers as names": pd.DataFrame({1: [1], None: [2], (1, 2): [3]}),
        "no columns": pd.DataFrame(index=[1, 2]),
        "no rows": frame.iloc[:0],
        "nothing": pd.DataFrame(),
        "an index of times": pd.DataFrame({"a": range(4)}, index=when),
        "a part": frame.iloc[1:, ::3],
        "series": pd.Series([1.5, np.nan], name=("a", 1)),
        "series of lists": pd.Series([[1], [2]]),
        "series of texts": pd.Series(["a", None], dtype="str"),
        "index": pd.Index(["a", "b"], name="n"),
        "index of objects": pd.Index([1, "a", None], dtype=object),
        "index of small numbers": pd.Index([1, 2], dtype="i2"),
        "range": pd.RangeIndex(1, 9, 2, name="r"),
        "times": when,
        "naive times": pd.date_range("2024-01-01", periods=3, freq="ME"),
        "times without a frequency": pd.DatetimeIndex(["2024-01-01", "NaT"]),
        "deltas": pd.timedelta_range("1h", periods=3, freq="h"),
        "periods": pd.period_range("2024-01", periods=3, freq="Q-NOV"),
        "intervals": pd.interval_range(0, 3, closed="both"),
        "categories": pd.CategoricalIndex(["a", "b", None]),
        "several levels": pd.MultiIndex.from_product([["a", "b"], when[:2]], names=["l", "t"])[1:],
        "categorical": pd.Categorical([1, 2, None], categories=[2, 1]),
        "array of times": when.array,
        "array of deltas": pd.timedelta_range("1h", periods=2).array,
        "array of numbers": pd.array(np.array([1, 2])),
        "timestamp": pd.Timestamp("2024-02-29T12:30:01.999999999"),
        "timestamp of seconds": pd.Timestamp("2024-02-29").as_unit("s"),
        "the second of two hours": pd.Timestamp("2024-10-27 01:30", tz="UTC").tz_convert("Europe/Berlin"),
        "timestamp with an offset": pd.Timestamp("2024-01-01", tz=dt.timezone(dt.timedelta(hours=-3))),
        "naive fold": pd.Timestamp("2024-01-01").replace(fold=1),
        "timedelta": pd.Timedelta(1, "ns"),
        "period": pd.Period("2024-02", freq="M"),
        "interval": pd.Interval(pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-02"), closed="neither"),
        "NaT": pd.NaT,
        "NA": pd.NA,
    }


def same_in_pandas(one: Any, two: Any) -> bool:
    pd = module("pandas")
    if isinstance(one, (pd.DataFrame, pd.Series, pd.Index)):
        kind = next(kind for kind in (pd.DataFrame, pd.Series, pd.Index) if isinstance(one, kind))
        check = {pd.DataFrame: "frame", pd.Series: "series", pd.Index: "index"}[kind]
        more = {} if check == "index" else {"check_freq": True, "check_flags": True}
        getattr(pd.testing, f"assert_{check}_equal")(one, two, check_exact=True, **more)
        if isinstance(one, (pd.DataFrame, pd.Series)):
            assert same(one.attrs, two.attrs)
            assert type(one.index) is type(two.index)
            columns = [one] if isinstance(one, pd.Series) else [one.iloc[:, number] for number in range(one.shape[1])]
            others = [two] if isinstance(two, pd.Series) else [two.iloc[:, number] for number in range(two.shape[1])]
            objects = [(a, b) for a, b in zip(columns, others, strict=True) if a.dtype == object]
            assert all(same(list(a), list(b)) for a, b in objects)
        else:
            assert one.identical(two)
            assert getattr(one, "freq", None) == getattr(two, "freq", None)
        return True
    if isinstance(one, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(one, two, check_exact=True)
        return True
    if one is pd.NA or one is pd.NaT:
        return two is one
    if isinstance(one, pd.Timestamp):
        return (one.unit, one.fold, one.tz, one.value) == (two.unit, two.fold, two.tz, two.value)
    return bool(one == two)


def test_values_come_back_as_they_were() -> None:
    pytest.importorskip("pandas")
    assert {name: what for name, value in pandas_values().items() if (what := difference(value))} == {}


def on_business_days(pd: Any) -> Any:
    days = pd.offsets.CustomBusinessDay(holidays=["2024-01-05"])
    return pd.date_range("2024-01-04", periods=2, freq=days)


# Values that their format would change or that have none, and what the error says to do.
REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a column of lambdas": ("lambda", lambda pd: pd.DataFrame({"a": [lambda: 1]})),
    "a frequency with holidays": ("set the index's freq to None", on_business_days),
    "a sparse array": ("register_codec", lambda pd: pd.arrays.SparseArray([0, 1])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_is_refused(name: str) -> None:
    words, make = REFUSED[name]
    value = make(pytest.importorskip("pandas"))
    with pytest.raises(TypeError, match=words):
        SERDE.dumps_typed({"a": [value]})


def test_no_package_is_imported_for_values_of_others() -> None:
    """In a process of its own: this one has imported them."""
    packages = [package for package in ("pandas", "numpy", "msgspec") if find_spec(package)]
    program = f"""
import sys
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langchain_core.messages import AIMessage
before = {{package for package in {packages} if package in sys.modules}}
from langgraph_checkpoint_custom.encoding.serde import exact_serializer
serde = exact_serializer(JsonPlusSerializer())
class Local:
    pass
for value in ([1, "a", (2,)], {{"a": AIMessage("b")}}, range(3), int):
    serde.loads_typed(serde.dumps_typed(value))
assert {{package for package in {packages} if package in sys.modules}} == before, sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def difference(value: Any) -> str:
    """How a value differs after it was stored; an empty text if it does not."""
    try:
        return "" if same_in_pandas(value, found := through(value)) else f"{value!r} → {found!r}"
    except Exception as error:  # The comparison of pandas, or what refuses the value.
        return f"{type(error).__name__}: {error}"
