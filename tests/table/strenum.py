"""An enum type of Python 3.11."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum

    class Size(StrEnum):
        BIG = "big"
