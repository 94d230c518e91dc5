"""Real graphs on both databases. Their results must be the same as in memory."""

import pytest

pytest.register_assert_rewrite("tests.graphs.running", "tests.graphs.scenarios")
