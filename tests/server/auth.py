"""The user of the tests' servers has a name, a secret and permissions, none of which must be stored."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()
SECRET = "a secret token"


@auth.authenticate
async def authenticate() -> Auth.types.MinimalUserDict:
    return {"identity": "ann", "permissions": ["write"], "token": SECRET}  # type: ignore[typeddict-unknown-key]
