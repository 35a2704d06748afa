"""The key that tests of signed stores are given, by the fixture `configured_key`."""

CONFIGURED_KEY = f"2025:{'a1' * 32}"
