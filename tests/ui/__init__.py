"""The inspector: its pages without a browser, and in one."""
