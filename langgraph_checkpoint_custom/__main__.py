"""`python -m langgraph_checkpoint_custom`."""

from langgraph_checkpoint_custom.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
