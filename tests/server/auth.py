"""Who asks the servers of the tests: whoever it is has a name, a secret and permissions, which must not be stored."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()
SECRET = "a token of somebody's"


@auth.authenticate
async def authenticate() -> Auth.types.MinimalUserDict:
    return {"identity": "somebody", "permissions": ["write"], "token": SECRET}  # type: ignore[typeddict-unknown-key]
