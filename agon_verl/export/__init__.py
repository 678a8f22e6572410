"""`python -m agon_verl.export CHECKPOINT OUT`: a trained pair for use without verl, as PEFT folders."""

from agon_verl.errors import AgonError


class ExportError(AgonError, RuntimeError):
    """An export cannot be written."""
