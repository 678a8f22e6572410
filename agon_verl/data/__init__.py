"""Data to train and validate on: `python -m agon_verl.data SOURCE` (docs/data.md).

`load.py` reads rows from a file, a folder or the hub. `sources.py`, `programs.py` and `functions.py` convert rows to
problems, or give the reason why one cannot be judged; `asserts.py` reduces test code to asserts with literals.
`overlap.py` finds problems that are the same. `prepare.py` combines these, and `write.py` writes verl's parquet files
and the report.
"""
