"""Programs written for the official savers, run with those and, with one line changed, with ours."""
