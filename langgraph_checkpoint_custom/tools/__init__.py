"""Above the saver: export and import, migration from other savers, display."""
