"""Trainers of users, for `test_plans.py`."""


class WithLibraries:
    """Calls something of its own `libraries`."""

    def __init__(self, libraries):
        self.libraries = libraries

    def __call__(self, data, context):
        return None


class Reads:
    """Says what it reads."""

    def reads(self, schema):
        return ["sales", "absent"]

    def __call__(self, data, context):
        return None
