"""How operations run. No clock, OS thread, event loop, database or serializer is known here."""
