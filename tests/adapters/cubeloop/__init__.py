"""The adapter for CubeLoop, with the real framework; skipped without it."""

from importlib.util import find_spec

from tests.needs import need

# It needs Python 3.11, and 70 MB of packages that nothing else here uses.
need(find_spec("cubeloop"), "the extra cubeloop")
