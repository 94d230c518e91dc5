"""Arrow's tables, batches, arrays and schemas, in Arrow's own format for streams.

The columns of a table come back with their chunks cut at the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue, UnstorableValue
from langgraph_checkpoint_custom.encoding.leaves import Leaf, rebuilt

pyarrow: Any = import_module("pyarrow")


def _of_schema(schema: Any) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    if not pyarrow.ipc.read_schema(pyarrow.py_buffer(data)).equals(schema, check_metadata=True):
        raise UnstorableValue(
            "an extension type of Arrow comes back only if it is registered; call pyarrow.register_extension_type"
        )
    return data


def _schema(data: bytes) -> Any:
    return _known(pyarrow.ipc.read_schema(pyarrow.py_buffer(data)))


def _known(schema: Any) -> Any:
    """Return a schema, unless it has an extension type that is not registered in this process."""

    def names(field: Any) -> Iterator[Any]:
        yield (field.metadata or {}).get(b"ARROW:extension:name")
        for number in range(field.type.num_fields):
            yield from names(field.type.field(number))

    if lost := next(filter(None, (name for field in schema for name in names(field))), None):
        raise UnreadableValue(
            f"the Arrow extension type {lost.decode()!r} is not registered in this process; call "
            "pyarrow.register_extension_type before reading"
        )
    return schema


def _of_table(table: Any) -> bytes:
    _of_schema(table.schema)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _table(data: bytes) -> Any:
    found = pyarrow.ipc.open_stream(pyarrow.py_buffer(data)).read_all()
    _known(found.schema)
    found.validate(full=True)  # The stored offsets and lengths must stay inside of the stored bytes.
    return found


def _of_column(column: Any) -> bytes:
    return _of_table(pyarrow.table({"": column}))


def _column(data: bytes) -> Any:
    return _table(data).column(0)


def _array(data: bytes) -> Any:
    column = _column(data)
    return column.chunk(0) if column.num_chunks else pyarrow.array([], column.type)


def _batch(data: bytes) -> Any:
    table = _table(data)
    return pyarrow.RecordBatch.from_arrays(
        [column.chunk(0) if column.num_chunks else pyarrow.array([], column.type) for column in table.columns],
        schema=table.schema,
    )


def _classes(cls: Any) -> Iterator[Any]:
    yield cls
    for each in cls.__subclasses__():
        yield from _classes(each)


def _leaf(cls: Any, name: str, parts: Callable[[Any], bytes], make: Callable[[bytes], Any]) -> Leaf:
    return rebuilt(cls, "pyarrow", parts, make, name)


LEAVES = [
    _leaf(pyarrow.Schema, "Schema", _of_schema, _schema),
    _leaf(pyarrow.Table, "Table", _of_table, _table),
    _leaf(pyarrow.RecordBatch, "RecordBatch", lambda o: _of_table(pyarrow.Table.from_batches([o])), _batch),
    _leaf(pyarrow.ChunkedArray, "ChunkedArray", _of_column, _column),
    *(_leaf(cls, "Array", _of_column, _array) for cls in _classes(pyarrow.Array) if cls.__module__ == "pyarrow.lib"),
]
