"""Writing verl's parquet files and the report, all of them or none.

Every file is written into a temporary folder and moved when all are complete. A file with other rows is only replaced
on source, because a run may depend on it.
"""

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agon_verl.data.prepare import Prepared
from agon_verl.data.problem import DataError, Problem
from agon_verl.data.sources import Source
from agon_verl.game.domains.code import FUNCTION_TASK, PROGRAM_TASK

Row = dict[str, Any]
_SAMPLES, _SHOWN = 3, 400  # rows, and characters of each text


def rows(problems: Sequence[Problem], source: Source, split: str, prompt: str) -> list[Row]:
    return [
        {
            "data_source": source.data_source or source.name,
            "prompt": [{"role": "user", "content": _asked(prompt, problem)}],
            "ability": source.domain.name,
            "reward_model": {"style": "rule", "ground_truth": problem.ground_truth},
            "extra_info": {"index": index, "split": split, "row": problem.row, **problem.extra},
        }
        for index, problem in enumerate(problems)
    ]


def _asked(prompt: str, problem: Problem) -> str:
    task = prompt.replace(PROGRAM_TASK, FUNCTION_TASK) if problem.calls else prompt
    return task.replace("{problem}", problem.text)


def fingerprint(table: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of the rows as JSON; a parquet file's own bytes change with the version of the library."""
    digest = hashlib.sha256()
    for row in table:
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def write(folder: Path, source: Source, prepared: Prepared, prompt: str, overwrite: bool) -> str:
    """The report, in Markdown."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = {"train": prepared.train, "heldout": prepared.heldout}
    tables = {split: rows(problems, source, split, prompt) for split, problems in parts.items() if problems}
    summary = report(source, prepared, tables)
    text = in_markdown(summary)
    for split in parts:
        path = folder / f"{split}.parquet"
        if path.exists() and not overwrite and (split not in tables or not _has_rows(path, tables[split])):
            raise DataError(f"{path} exists with other rows: use another --out, or replace it with --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".") as temporary:
        scratch = Path(temporary)
        for split, table in tables.items():
            pq.write_table(pa.Table.from_pylist(table), scratch / f"{split}.parquet")
        (scratch / "report.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False))
        (scratch / "report.md").write_text(text)
        for split in parts.keys() - tables.keys():
            (folder / f"{split}.parquet").unlink(missing_ok=True)
        for written in scratch.iterdir():
            written.replace(folder / written.name)
    return text


def _has_rows(path: Path, table: Sequence[Row]) -> bool:
    import pyarrow.parquet as pq

    try:
        return fingerprint(pq.read_table(path).to_pylist()) == fingerprint(table)
    except (OSError, ValueError):
        return False


def report(source: Source, prepared: Prepared, tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    return {
        "source": source.name,
        "seed": source.seed,
        "inputs": {role: {"name": table.name, "version": table.version} for role, table in prepared.tables.items()},
        "rows_read": prepared.rows,
        "removed": dict(prepared.removed),
        "left_over": prepared.rows - sum(prepared.removed.values()) - sum(map(len, tables.values())),
        "tests_removed": dict(prepared.tests_removed),
        "files": {
            f"{split}.parquet": {
                "rows": len(table),
                "sha256_of_rows": fingerprint(table),
                "characters": _lengths(table),
            }
            for split, table in tables.items()
        },
        "samples": [_cut(row) for table in list(tables.values())[:1] for row in table[:_SAMPLES]],
    }


def in_markdown(summary: Mapping[str, Any]) -> str:
    lines = [f"# {summary['source']}, seed {summary['seed']}", ""]
    lines += [f"- {role}: {table['name']} ({table['version']})" for role, table in summary["inputs"].items()]
    lines += ["", f"{summary['rows_read']:,} problems read", ""]
    lines += [f"- {count:,} removed: {reason}" for reason, count in summary["removed"].items()]
    lines += [f"- {summary['left_over']:,} left over"] if summary["left_over"] else []
    lines += [f"- {count:,} tests removed: {reason}" for reason, count in summary["tests_removed"].items()]
    lines += ["", "| file | rows | prompt, characters: median, 95 %, most | SHA-256 of rows |", "|---|---|---|---|"]
    for name, file in summary["files"].items():
        sizes = ", ".join(f"{file['characters']['prompt'][size]:,}" for size in ("median", "95 %", "most"))
        lines.append(f"| {name} | {file['rows']:,} | {sizes} | {file['sha256_of_rows'][:16]} |")
    for row in summary["samples"]:
        lines += ["", "```json", json.dumps(row, indent=1, ensure_ascii=False), "```"]
    return "\n".join(lines) + "\n"


def _lengths(table: Sequence[Row]) -> dict[str, dict[str, int]]:
    lengths = {}
    for name, texts in (
        ("prompt", [row["prompt"][-1]["content"] for row in table]),
        ("ground_truth", [row["reward_model"]["ground_truth"] for row in table]),
    ):
        sizes = sorted(map(len, texts))
        most = {"95 %": sizes[-(-len(sizes) * 95 // 100) - 1], "most": sizes[-1]}
        lengths[name] = {"median": int(statistics.median(sizes)), **most}
    return lengths


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value if not isinstance(value, str) or len(value) <= _SHOWN else value[:_SHOWN] + " …"
