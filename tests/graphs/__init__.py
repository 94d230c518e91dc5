"""Real graphs on both databases; what they see must be what they would see in memory."""

import pytest

pytest.register_assert_rewrite("tests.graphs.running", "tests.graphs.scenarios")
