"""Files of earlier versions still load: `formats/` has `pair.json` of a checkpoint and of an export by 0.1.0."""

import json
from pathlib import Path

import pytest

from agon_verl.errors import CheckpointError
from agon_verl.inference.players import Players, Sampling, find_players
from agon_verl.pair.checkpoint import Manifest
from agon_verl.pair.trained import TrainedPair

FORMATS = Path(__file__).parent / "formats"
HEADER = b'{"weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The weights whose hash is in both files."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(HEADER).to_bytes(8, "little") + HEADER + bytes(8))
    return folder


def write_pair(folder: Path, adapters: Path, text: str) -> Path:
    for name in "AB":
        (adapters / name).mkdir(parents=True)
        (adapters / name / "adapter_config.json").write_text('{"r": 16}')
    (folder / "pair.json").write_text(text)
    return folder


@pytest.mark.parametrize("kind", ["checkpoint", "export"])
def test_a_pair_of_an_earlier_version_loads(tmp_path: Path, base: Path, kind: str) -> None:
    folder = tmp_path / "global_step_20"
    adapters = folder / "actor" if kind == "checkpoint" else folder
    write_pair(folder, adapters, (FORMATS / f"{kind}.json").read_text())
    assert find_players(str(folder), base=str(base)) == Players(
        target=str(folder),
        base=str(base),
        base_hash="af04c947fc15cd8bd1ca385345cda2866647e54989a13e15a0b479d1cf4e07c2",
        checked=True,
        adapters={name: adapters / name for name in "AB"},
        rank=16,
        direction="B_to_A",
        domain="math",
        tags=("<think>", "</think>"),
        sampling=Sampling(temperature=0.6, top_p=0.95, top_k=-1, max_tokens=72),
        max_prompt=96,
        verifier={
            "path": "pkg://reward_fns.math_answer",
            "name": "compute_score",
            "reward_kwargs": {"format_weight": 0.5, "reasoning_tags": ["<think>", "</think>"]},
        },
        reward_timeout=90 if kind == "checkpoint" else None,
    )


def test_a_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    """With the fields that later versions added, at their defaults."""
    for name, kind, added in (("checkpoint", Manifest, {}), ("export", TrainedPair, {"withhold": "announced"})):
        text = (FORMATS / f"{name}.json").read_text()
        (tmp_path / "pair.json").write_text(text)
        record = kind.read(tmp_path)
        assert record is not None
        record.write(tmp_path)
        expected = json.dumps({**json.loads(text), **added}, indent=1) + "\n"
        assert (tmp_path / "pair.json").read_text() == expected


def test_the_first_exports_had_no_verifier_and_no_players(tmp_path: Path, base: Path) -> None:
    values = json.loads((FORMATS / "export.json").read_text())
    del values["verifier"], values["players"]
    folder = tmp_path / "export"
    players = find_players(str(write_pair(folder, folder, json.dumps(values))), base=str(base))
    assert players.names == ("A", "B", "base") and players.verifier == {}


def test_an_export_of_a_later_format_is_refused(tmp_path: Path) -> None:
    values = json.loads((FORMATS / "export.json").read_text())
    (tmp_path / "pair.json").write_text(json.dumps({**values, "format": 2}))
    with pytest.raises(CheckpointError, match="has format 2, this version reads 1"):
        TrainedPair.read(tmp_path)
