"""The attack suite measures a sandbox's own file systems, never the host's."""

import os

from reward_fns.sandbox.attacks import meter


def test_a_path_that_changes_to_the_host_is_measured_once(tmp_path, monkeypatch):
    """While bubblewrap changes the root, /tmp is its own file system at one look and the host's at the next."""
    own, host, place = tmp_path / "own", tmp_path / "host", tmp_path / "tmp"
    own.mkdir()
    (own / "file").write_bytes(bytes(7))
    host.mkdir()
    (host / "file").write_bytes(bytes(700))
    place.symlink_to(own)
    real = os.fstat

    def change_root(descriptor):
        place.unlink()
        place.symlink_to(host)
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", change_root)
    space = meter.own_space(str(place), host=-1)
    assert space is not None and space.largest == 7


def test_the_host_is_not_measured(tmp_path):
    assert meter.own_space(str(tmp_path), os.stat(tmp_path).st_dev) is None
