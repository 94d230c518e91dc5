"""A proof that nothing is lost, whoever runs beside whom: see `__main__.py`."""
