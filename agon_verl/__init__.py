"""Agon for verl: two LoRA adapters over one frozen base that learn by competing (see README.md)."""

__version__ = "0.1.0"
