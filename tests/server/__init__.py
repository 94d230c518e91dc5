"""The real Agent Server with our saver, driven through its SDK.

It comes with the extra `server`; without it, these tests are skipped. Each server is started once in a test process and
shared by its tests: `python -m pytest tests/server -n 6` has a process for each.
"""

import pytest

pytest.register_assert_rewrite("tests.server.threads")
