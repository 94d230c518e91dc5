"""What the saver does, without doing it: no clock, no OS thread, no event loop and no database is known here."""
