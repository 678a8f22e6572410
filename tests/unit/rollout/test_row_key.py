from agon_verl.rollout.row_key import CHALLENGE, DRAFT, RowKey, challenge_keys
from agon_verl.rollout.wire import lora_ids, parse_sync_name, sync_name


def test_a_key_is_parsed_and_written_as_verl_writes_it() -> None:
    key = RowKey.parse("8f3a_b_12_1")
    assert key == ("8f3a_b", "12", CHALLENGE)  # a uid may contain an underscore
    assert str(key) == "8f3a_b_12_1"
    assert str(key.draft) == "8f3a_b_12_0" and key.draft.stream == DRAFT


def test_challenges_are_sorted() -> None:
    assert challenge_keys(["b_0_1", "b_0_0", "a_1_1", "a_1_0"]) == ["a_1_1", "b_0_1"]


def test_ids_of_adapters_do_not_change_when_snapshots_are_served() -> None:
    assert lora_ids(("A", "B")) == {"A": 1, "B": 2, "A_past": 3, "B_past": 4}


def test_names_of_a_transfer_survive_colons() -> None:
    assert parse_sync_name(sync_name("A_past", 3, "layers.0:weight")) == ("A_past", 3, "layers.0:weight")
