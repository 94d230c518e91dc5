"""Values that are JSON, which every serializer gives back as they were, whatever it is allowed to read.

Must not know: serializers, databases.
"""

from __future__ import annotations

import json
from typing import Any

from langgraph_checkpoint_custom.errors import ConfigError


def plain(what: str, value: Any) -> Any:
    """A copy of a value, made before the caller can change it; raises ConfigError if JSON would change it."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be stored, since it is not JSON: {error}") from error
    if copy != value:
        raise ConfigError(f"{what} cannot be stored, since JSON has only lists as sequences, and only text as keys")
    return copy
