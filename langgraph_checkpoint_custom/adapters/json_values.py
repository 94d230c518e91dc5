"""Values of JSON types only. Every serializer restores them unchanged, whatever classes it may read.

Must not know: serializers, databases.
"""

from __future__ import annotations

import json
from typing import Any

from langgraph_checkpoint_custom.errors import ConfigError


def plain(what: str, value: Any) -> Any:
    """Copy a value, so that the caller cannot change it later.

    Args:
        what: The name of the value in an error.
        value: The value.

    Raises:
        ConfigError: The value is not JSON, or JSON would change it.
    """
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be stored, since it is not JSON: {error}") from error
    if copy != value:
        raise ConfigError(f"{what} cannot be stored, since JSON has only lists as sequences, and only text as keys")
    return copy
