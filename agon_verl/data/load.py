"""Reading rows from a file, a folder, or a dataset of the Hugging Face hub.

Single JSON, JSONL and CSV files are read without `datasets`, which would guess types: a reference such as 007 or 1/2
must stay text. Folders and hub names go through the same calls of `datasets`, streaming and with only the needed
columns: of DeepMath-103K's 2 GB, nearly all of them solutions, little is downloaded.
"""

import csv
import gzip
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from agon_verl.data.problem import DataError

_FILES = (".parquet", ".jsonl", ".json", ".csv")
Row = dict[str, Any]
Select = Callable[[Collection[str]], list[str]]  # of the available columns, those to read


@dataclass(frozen=True)
class InputTable:
    """`version` is a hub dataset's commit, else the SHA-256 of the file or of a folder's data files."""

    name: str
    version: str
    rows: Iterable[Row]


def open_table(
    where: str,
    *,
    split: str | None,
    needed: Collection[str],
    optional: Collection[str] = (),
    revision: str | None = None,
) -> InputTable:
    """`where` is a path or a hub name, followed by `:config` if a dataset has several.

    `split` is the one to read, if the table has splits; `None` means `test`, or all if there is no `test`. A single
    file has no splits, so all of it is read.
    """

    def select(available: Collection[str]) -> list[str]:
        if missing := [name for name in needed if name not in available]:
            raise DataError(
                f"{where} has no column {missing[0]} (it has {', '.join(available)}): use another one (--from), "
                "or map its columns with the source `custom`"
            )
        return [name for name in available if name in needed or name in optional]

    path, _, config = where.rpartition(":")
    if Path(where).expanduser().exists() or not path:
        path, config = where, ""
    local = Path(path).expanduser()
    if local.is_file():
        return InputTable(where, _hash([local]), _read_file(local, select))
    if local.is_dir() and ((local / "dataset_dict.json").is_file() or (local / "state.json").is_file()):
        return _saved(where, local, split, select)
    if not local.is_dir() and (path.count("/") > 1 or path.startswith((".", "~")) or local.suffix in _FILES):
        raise DataError(f"{where} does not exist: use the path of a file or folder, or a name of the hub")
    return _builder(where, str(local) if local.is_dir() else path, config or None, split, select, revision)


def _read_file(path: Path, select: Select) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind not in _FILES:
        raise DataError(f"{path} has an unknown file type: use one of {', '.join(_FILES)}")
    try:
        if kind == ".parquet":
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(256, columns=select(file.schema_arrow.names)):
                    yield from batch.to_pylist()
            return
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", newline="") as text:
            for number, row in enumerate(_parse(text, kind)):
                if not isinstance(row, dict):
                    raise DataError(f"{path} has in row {number} a {type(row).__name__}: each row must be an object")
                if number == 0:
                    select(list(row))
                yield row
    except DataError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{path} is not valid {kind[1:].upper()}: download it again; JSON must be a list, JSONL one object "
            f"per line ({error})"
        ) from error


def _parse(text: TextIO, kind: str) -> Iterable[Any]:
    if kind == ".csv":
        csv.field_size_limit(1 << 30)  # a column of tests is long
        return csv.DictReader(text)
    return json.load(text) if kind == ".json" else (json.loads(line) for line in text if line.strip())


def _saved(where: str, path: Path, split: str | None, select: Select) -> InputTable:
    """A folder written by `save_to_disk` of `datasets`."""
    import datasets

    loaded = datasets.load_from_disk(str(path))
    parts = _choose(where, dict(loaded) if isinstance(loaded, dict) else {split or "test": loaded}, split)
    chosen = [part.select_columns(select(part.column_names)) for part in parts]
    return InputTable(where, _hash(path.rglob("*.arrow")), (row for part in chosen for row in part))


def _builder(
    where: str, path: str, config: str | None, split: str | None, select: Select, revision: str | None
) -> InputTable:
    import datasets

    try:
        builder = datasets.load_dataset_builder(path, config, revision=revision)
        parts = _choose(where, builder.as_streaming_dataset(), split)
        available = list(builder.info.features or parts[0].column_names or next(iter(parts[0]), {}))
        wanted = select(available)
        if hasattr(builder.config, "columns"):  # parquet, whose other columns need not even be fetched
            builder.config.columns, builder.info.features = wanted, None
            parts = _choose(where, builder.as_streaming_dataset(), split)
        else:
            parts = [part.select_columns(wanted) for part in parts]
    except DataError:
        raise
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{where} cannot be loaded ({str(error).splitlines()[0]}): download it where the hub can be reached "
            f"(hf download --repo-type dataset {path} --local-dir FOLDER) and use the folder in its place"
        ) from error
    folder = Path(path)
    files = [file for file in folder.rglob("*") if file.name.removesuffix(".gz").endswith(_FILES)]
    version = _hash(files) if folder.is_dir() else builder.base_path.rpartition("@")[2]
    return InputTable(where, version, _stream(where, parts))


def _stream(where: str, parts: Iterable[Any]) -> Iterator[Row]:
    try:
        for part in parts:
            yield from part
    except (OSError, RuntimeError) as error:
        raise DataError(f"reading {where} was interrupted ({str(error).splitlines()[0]}): run it again") from error


def _choose(where: str, parts: Any, split: str | None) -> list[Any]:
    if split is None:
        return [parts["test"]] if "test" in parts else list(parts.values())
    if split not in parts:
        raise DataError(f"{where} has no split {split}: use one of {', '.join(parts)} with --split")
    return [parts[split]]


def _hash(files: Iterable[Path]) -> str:
    """Of one file, what `sha256sum` prints; of several, the hash of their hashes in the order of their names."""
    digests = []
    for file in sorted(files):
        with file.open("rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
