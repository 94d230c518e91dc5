"""What an operation runs on: the statements of a database, the connections to it, and the encoding of values.

Whatever is built on a saver (tools, adapters, the command line) makes operations with `dialect` and `values`, and runs
them with `driver`.
"""

from __future__ import annotations

from typing import NamedTuple

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Driver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class Backend(NamedTuple):
    """The parts of a saver, with its tenant and its serializer.

    Attributes:
        dialect: The statements.
        driver: The connections.
        values: The encoding.
    """

    dialect: SqlDialect
    driver: Driver
    values: ValueCodec
