"""Where memory groups can be made, for the layouts that machines have; the real one is used by tests/sandbox."""

import pytest

from reward_fns.sandbox.cgroup import VERSION_1, VERSION_2, CgroupPlace, MemoryCgroup, find_cgroups


@pytest.fixture
def machine(tmp_path):
    """Makes groups as folders: `limits` are those whose children have memory limits."""

    def make(*paths: str, limits: tuple[str, ...] = ()) -> None:
        for path in paths:
            folder = tmp_path / path
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.procs").touch()
            (folder / "cgroup.subtree_control").write_text("cpu memory pids\n" if path in limits else "cpu\n")

    return tmp_path, make


def mount(folder, kind: str, options: str, root: str = "/") -> str:
    return f"30 24 0:27 {root} {folder} rw,nosuid shared:9 - {kind} {kind} {options}\n"


def test_version_1_below_the_own_group(machine):
    folder, make = machine
    make("memory/job/1", "cpu/job/1")
    mounts = mount(folder / "cpu", "cgroup", "rw,cpu") + mount(folder / "memory", "cgroup", "rw,memory")
    place = find_cgroups(mounts, "5:memory:/job/1\n4:cpu:/job/1\n0::/\n")
    assert place == CgroupPlace(VERSION_1, folder / "memory/job/1", folder / "memory/job/1")


def test_version_2_below_the_nearest_ancestor_that_limits_memory(machine):
    folder, make = machine
    make("user", "user/app", "user/app/run.scope", limits=("user", "user/app"))
    place = find_cgroups(mount(folder, "cgroup2", "rw"), "0::/user/app/run.scope\n")
    assert place == CgroupPlace(VERSION_2, folder / "user/app", folder / "user/app/run.scope")


def test_version_2_without_an_ancestor_that_limits_memory(machine):
    folder, make = machine
    make("", "job")
    (folder.parent / "cgroup.subtree_control").write_text("memory")  # above the mount: not a group
    assert find_cgroups(mount(folder, "cgroup2", "rw"), "0::/job\n") is None


def test_a_container_sees_its_own_group_as_the_first(machine):
    folder, make = machine
    make("memory", "memory/below")
    mounts = mount(folder / "memory", "cgroup", "rw,memory", root="/docker/1")
    assert find_cgroups(mounts, "5:memory:/docker/1/below\n").home == folder / "memory/below"
    assert find_cgroups(mounts, "5:memory:/docker/2\n") is None


def test_no_groups_at_all():
    assert find_cgroups("22 1 0:1 / / rw - ext4 /dev/sda rw\n", "") is None


@pytest.mark.parametrize(
    ("interface", "usage", "events"),
    [
        (VERSION_1, "memory.usage_in_bytes", {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}),
        (
            VERSION_2,
            "memory.current",
            {"memory.events": "low 0\nhigh 0\nmax 41\noom 3\noom_kill 2\noom_group_kill 0\n"},
        ),
    ],
)
def test_what_a_group_says(interface, usage, events, tmp_path):
    group = MemoryCgroup(CgroupPlace(interface, tmp_path, tmp_path), "one")
    stat = "anon 4096\nshmem 8192\ninactive_anon 8192\nactive_anon 4096\ninactive_file 20000\nactive_file 3000\n"
    for name, content in {usage: "50000\n", "memory.stat": stat, **events}.items():
        (group.folder / name).write_text(content)
    assert group.kills() == 2
    assert group.residue() == 27000


def test_a_count_that_cannot_be_read_is_not_zero(tmp_path):
    """The next program would be taken for one that the kernel has killed. Only a group that is gone has none."""
    group = MemoryCgroup(CgroupPlace(VERSION_1, tmp_path, tmp_path), "one")
    assert group.kills() == 0
    (group.folder / "memory.oom_control").mkdir()
    with pytest.raises(IsADirectoryError):
        group.kills()
