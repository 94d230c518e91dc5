"""How operations run. Must not know: clocks, OS threads, event loops, databases, serializers."""
