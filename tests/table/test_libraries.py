"""Values of pandas, polars, Arrow, Pillow and torch come back as they were, or are refused; only if they are installed.

Each package compares its values itself, with its strictest comparison.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
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
STRICT = exact_serializer(strict_serde(None, ()))


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
    pd, pa = module("pandas"), module("pyarrow")
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
            "string arrow": pd.array(["a", None], dtype=pd.StringDtype("pyarrow")),
            "arrow": pd.array([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
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


def polars_values() -> dict[str, Any]:
    pl = module("polars")
    zone = dt.timezone.utc
    return {
        "frame": pl.DataFrame(
            {
                "a": [1, None],
                "text": ["x", None],
                "date": [dt.date(2020, 1, 1), None],
                "decimal": [Decimal("1.10"), None],
                "category": pl.Series(["b", None], dtype=pl.Categorical),
                "enum": pl.Series(["b", None], dtype=pl.Enum(["b", "a"])),
                "list": [[1, 2], None],
                "struct": [{"x": 1, "y": "a"}, None],
                "array": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int8, 2)),
                "null": [None, None],
                "time": [dt.time(1), None],
                "delta": [dt.timedelta(1), None],
                "bytes": [b"\xff", b""],
                "large": pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
                "float": [float("nan"), -0.0],
            }
        ),
        "times": pl.DataFrame({"a": [dt.datetime(2020, 1, 1, tzinfo=zone)]}).with_columns(
            b=pl.col("a").dt.convert_time_zone("Europe/Berlin"), c=pl.col("a").dt.cast_time_unit("ms")
        ),
        "nothing": pl.DataFrame(),
        "no rows": pl.DataFrame(schema={"a": pl.Int8, "b": pl.Categorical}),
        "series": pl.Series("n", [1, None], dtype=pl.Int16),
        "series without a name": pl.Series([[1], []]),
    }


def same_in_polars(one: Any, two: Any) -> bool:
    pl = module("polars")
    if isinstance(one, pl.DataFrame):
        return one.schema == two.schema and bool(one.equals(two, null_equal=True))
    return (one.name, one.dtype) == (two.name, two.dtype) and bool(one.equals(two, null_equal=True))


def arrow_values() -> dict[str, Any]:
    pa = module("pyarrow")
    words = pa.array(["a", "b", "a", None]).dictionary_encode()
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False, metadata={"q": "w"})], metadata={"k": "v"})
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": pa.chunked_array([["x"], ["y", None]])})
    return {
        "table": table.replace_schema_metadata({"k": "v"}),
        "nested": pa.table(
            {"a": [[{"x": 1}], None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8()))}
        ),
        "dictionary": pa.table({"d": words}),
        "no columns": table.select([]),
        "no rows": schema.empty_table(),
        "batch": pa.record_batch({"a": [1, None]}),
        "batch without rows": pa.record_batch({"a": pa.array([], pa.int8())}),
        "schema": schema,
        "array": pa.array([1.5, None, float("nan")]),
        "array of texts": pa.array(["a", None]),
        "words": words,
        "part of an array": pa.array(range(100_000))[5:7],
        "empty array": pa.array([], pa.list_(pa.int8())),
        "chunks": pa.chunked_array([[1], [], [2, 3]]),
        "decimals": pa.array([Decimal("1.10")]),
        "runs": pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2]),
        "uuids": pa.array([b"0123456789abcdef"], pa.uuid()) if hasattr(pa, "uuid") else pa.array([1]),
    }


def same_in_arrow(one: Any, two: Any) -> bool:
    pa = module("pyarrow")
    if isinstance(one, (pa.Table, pa.RecordBatch, pa.Schema)):
        return bool(one.equals(two, check_metadata=True))
    nan = one.type == pa.float64() and one.to_pylist()[:2] == two.to_pylist()[:2]
    return one.type == two.type and len(one) == len(two) and (nan or bool(one.equals(two)))


def pillow_values() -> dict[str, Any]:
    Image = module("PIL.Image")
    modes = [
        "1",
        "L",
        "RGB",
        "RGBA",
        "CMYK",
        "YCbCr",
        "LAB",
        "HSV",
        "I",
        "F",
        "LA",
        "RGBX",
        "RGBa",
        "La",
        "I;16",
        "I;16B",
    ]
    found: dict[str, Any] = {mode: Image.effect_noise((7, 5), 50).convert("L") for mode in ("L",)}
    for mode in modes:
        size = len(Image.new(mode, (7, 5)).tobytes())
        found[mode] = Image.frombytes(mode, (7, 5), bytes(range(size)) if mode != "F" else bytes(size))
    grey = Image.linear_gradient("L").resize((8, 8))
    found["palette"] = grey.convert("RGB").quantize(5)
    found["palette with transparency"] = Image.merge("RGBA", [grey] * 4).quantize(5)
    noted = grey.copy()
    noted.info = {"dpi": (72, 72), "icc_profile": b"\0"}
    noted.getexif()[0x010E] = "a description"
    return found | {"empty": Image.new("RGB", (0, 5)), "palette of none": Image.new("P", (2, 2)), "noted": noted}


def same_in_pillow(one: Any, two: Any) -> bool:
    of_palette = [image.palette and (image.palette.mode, image.getpalette(None)) for image in (one, two)]
    return one == two and of_palette[0] == of_palette[1] and dict(one.getexif()) == dict(two.getexif())


def torch_values() -> dict[str, Any]:
    torch = module("torch")
    names = ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool", "complex64", "float8_e5m2"]
    grid = torch.arange(24).reshape(2, 3, 4)
    return {
        **{name: torch.tensor([1.5, 0, -2]).to(getattr(torch, name)) for name in names},
        "no dimension": torch.tensor(3.5),
        "empty": torch.empty(0, 2),
        "transposed": grid.permute(2, 0, 1),
        "a part": grid[:, ::2, 1:],
        "expanded": torch.tensor([1, 2]).expand(3, 2),
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "with a gradient to come": torch.ones(2, requires_grad=True),
        "size": torch.Size([1, 2]),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "parameter": torch.nn.Parameter(torch.ones(2, 2).t()),
        "parameter that is frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    }


def same_in_torch(one: Any, two: Any) -> bool:
    torch = module("torch")
    if not isinstance(one, torch.Tensor):
        return bool(one == two)
    dense = one.is_contiguous() or one.permute(sorted(range(one.dim()), key=lambda d: -one.stride(d))).is_contiguous()
    return (
        (one.dtype, one.shape, one.requires_grad) == (two.dtype, two.shape, two.requires_grad)
        and (not dense or one.stride() == two.stride())
        and torch.equal(one.detach().to(torch.complex128), two.detach().to(torch.complex128))
    )


CASES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[Any, Any], bool]]] = {
    "pandas": (pandas_values, same_in_pandas),
    "polars": (polars_values, same_in_polars),
    "pyarrow": (arrow_values, same_in_arrow),
    "PIL": (pillow_values, same_in_pillow),
    "torch": (torch_values, same_in_torch),
}


@pytest.mark.parametrize("package", CASES)
def test_values_come_back_as_they_were(package: str) -> None:
    pytest.importorskip(package)
    values, is_same = CASES[package]
    assert {name: difference for name, value in values().items() if (difference := differing(value, is_same))} == {}


def opened(image: Any) -> Any:
    file = BytesIO()
    image.new("RGB", (2, 2)).save(file, "PNG")
    return image.open(file)


def extended(pa: Any) -> Any:
    class Extended(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.int64(), "tests.extended")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    return pa.table({"a": pa.ExtensionArray.from_storage(Extended(), pa.array([1]))})


def on_business_days(pd: Any) -> Any:
    days = pd.offsets.CustomBusinessDay(holidays=["2024-01-05"])
    return pd.date_range("2024-01-04", periods=2, freq=days)


# Values that their format would change or that have none: what the error says to do, and a function of the package.
REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "pandas: a column of lambdas": ("lambda", lambda pd: pd.DataFrame({"a": [lambda: 1]})),
    "pandas: a frequency with holidays": ("set the index's freq to None", on_business_days),
    "pandas: a sparse array": ("register_codec", lambda pd: pd.arrays.SparseArray([0, 1])),
    "polars: a column of objects": ("store a list", lambda pl: pl.Series([object()], dtype=pl.Object)),
    "polars: a lazy frame": (r"collect\(\)", lambda pl: pl.LazyFrame({"a": [1]})),
    "pyarrow: an unknown extension type": ("register_extension_type", extended),
    "PIL.Image: an image of a file": (r"image\.copy\(\)", opened),
    "torch: a sparse tensor": (r"to_dense\(\)", lambda torch: torch.eye(2).to_sparse()),
    "torch: another device": (r"cpu\(\)", lambda torch: torch.empty(2, device="meta")),
    "torch: a result": (r"detach\(\)", lambda torch: torch.ones(2, requires_grad=True) * 2),
    "torch: a layer": ("register_codec", lambda torch: torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_is_refused(name: str) -> None:
    words, make = REFUSED[name]
    value = make(pytest.importorskip(name.partition(":")[0]))
    with pytest.raises(TypeError, match=words):
        SERDE.dumps_typed({"a": [value]})


def test_no_package_is_imported_for_values_of_others() -> None:
    """In a process of its own: this one has imported them."""
    packages = [package for package in (*CASES, "numpy", "msgspec") if find_spec(package)]
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


def differing(value: Any, is_same: Callable[[Any, Any], bool]) -> str:
    try:
        return "" if is_same(value, found := through(value)) else f"{value!r} → {found!r}"
    except Exception as error:  # The comparison of pandas, or what refuses the value.
        return f"{type(error).__name__}: {error}"
