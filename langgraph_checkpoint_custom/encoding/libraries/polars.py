"""polars' frames and series, in Arrow's format for streams, which polars writes and reads itself."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from langgraph_checkpoint_custom.encoding.extensions import UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import rebuilt

polars: Any = import_module("polars")


def _of_frame(frame: Any) -> bytes:
    if _frame(_written(frame.clear())).schema != frame.schema:  # What a column of Python objects has are addresses.
        raise UnstorableValue(
            f"a polars frame with {_other(frame)} would come back as another one; store a list instead"
        )
    return _written(frame)


def _other(frame: Any) -> str:
    return ", ".join(
        f"a column of {kind}" for kind in dict.fromkeys(frame.dtypes) if kind.is_nested() or kind == polars.Object
    )


def _written(frame: Any) -> bytes:
    found = BytesIO()
    frame.write_ipc_stream(found, compat_level=polars.CompatLevel.newest())
    return found.getvalue()


def _frame(data: bytes) -> Any:
    return polars.read_ipc_stream(BytesIO(data), use_pyarrow=False)


LEAVES = [
    rebuilt(polars.DataFrame, "polars", _of_frame, _frame),
    rebuilt(polars.Series, "polars", lambda o: _of_frame(o.to_frame()), lambda data: _frame(data).to_series()),
]
