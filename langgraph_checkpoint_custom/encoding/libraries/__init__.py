"""The types of other packages that are stored in one piece: a file for each package, with the `LEAVES` for it."""
