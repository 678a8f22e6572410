"""Errors for the user: one sentence with the cause, the value and the fix. Commands print them without a traceback."""


class AgonError(Exception):
    """The base class of every error that this package raises on purpose."""


class ConfigError(AgonError, ValueError):
    """A setting of a run or of a command cannot be used."""


class CheckpointError(AgonError, RuntimeError):
    """A checkpoint cannot be written, read, or used by this run."""
