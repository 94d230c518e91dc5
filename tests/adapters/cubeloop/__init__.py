"""The adapter for CubeLoop, with the real framework; skipped without it."""

import pytest

# It needs Python 3.11, and 70 MB of packages that nothing else here uses.
pytest.importorskip("cubeloop", reason="NOT TESTED: there is no CubeLoop; install the extra `cubeloop`")
