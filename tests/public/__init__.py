"""What is public: see docs/versions.md."""
