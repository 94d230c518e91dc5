"""Programs written for the official savers. They run with those and, with one line changed, with ours."""
