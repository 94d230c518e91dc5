"""docs/api.md: every public name with its signature, the first line of its docstring, and a link to an example."""
