"""The filter, read as the kernel reads it, on both architectures; the attacks try it on this one's kernel."""

import errno
import struct

import pytest

from reward_fns.sandbox import SandboxError
from reward_fns.sandbox.seccomp import seccomp_filter

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
REFUSED, MISSING, INVALID, PRETENDED = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EINVAL, ERRNO
THREAD_FLAGS, FORK_FLAGS = 0x3D0F00, 0x1200011  # what the C library passes to clone for a thread, and for a fork
NEW_USER, NEW_NET = 0x10000000, 0x40000000


def decide(program: bytes, number: int, *arguments: int, arch: int) -> int:
    """Run the filter over one system call, with the few instructions that it uses."""
    call = struct.pack("<IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, true, false, k = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", call, k)
        elif operation == 0x06:
            return k
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[operation]
            at += true if holds else false


CALLS = {  # name: (x86_64, aarch64)
    "read": (0, 63), "mmap": (9, 222), "execve": (59, 221), "exit_group": (231, 94), "futex": (202, 98),
    "socketpair": (53, 199), "prlimit64": (302, 261), "getrandom": (318, 278), "statx": (332, 291), "openat": (257, 56),
}  # fmt: skip
FORBIDDEN = {
    "socket": (41, 198), "ptrace": (101, 117), "mount": (165, 40), "unshare": (272, 97), "memfd_create": (319, 279),
    "shmget": (29, 194), "io_uring_setup": (425, 425), "bpf": (321, 280), "keyctl": (250, 219), "sync": (162, 81),
    "process_vm_writev": (311, 271), "setns": (308, 268), "vmsplice": (278, 75), "splice": (275, 76), "tee": (276, 77),
    "setxattr": (188, 5), "fsetxattr": (190, 7), "setsockopt": (54, 208), "landlock_create_ruleset": (444, 444),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122),
    "setpriority": (141, 140), "mincore": (27, 232), "cachestat": (451, 451), "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}  # fmt: skip
WITHOUT_EFFECT = {
    "flock": (73, 32), "fadvise64": (221, 223), "utimensat": (280, 88), "fsync": (74, 82), "fdatasync": (75, 83),
    "sync_file_range": (277, 84), "msync": (26, 227),
}  # fmt: skip


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("machine", ARCH)
def test_calls_by_number(machine, forks):
    program, column = seccomp_filter(forks, machine), list(ARCH).index(machine)
    for name, numbers in CALLS.items():
        assert decide(program, numbers[column], arch=ARCH[machine]) == ALLOW, name
    for name, numbers in FORBIDDEN.items():
        assert decide(program, numbers[column], arch=ARCH[machine]) == REFUSED, name
    for name, numbers in WITHOUT_EFFECT.items():
        assert decide(program, numbers[column], arch=ARCH[machine]) == PRETENDED, name
    assert decide(program, (327, 286)[column], arch=ARCH[machine]) == MISSING  # preadv2


@pytest.mark.parametrize(("machine", "fcntl"), [("x86_64", 72), ("aarch64", 25)])
def test_files_are_not_locked_leased_or_watched(machine, fcntl):
    program = seccomp_filter(False, machine)
    decisions = {command: decide(program, fcntl, 3, command, arch=ARCH[machine]) for command in range(2048)}
    assert {c for c, decision in decisions.items() if decision == PRETENDED} == {6, 7, 37, 38}
    allowed = {c for c, decision in decisions.items() if decision == ALLOW}
    assert allowed == {*range(17), 36, 1030, 1032, 1033, 1034} - {6, 7}
    assert set(decisions.values()) == {PRETENDED, ALLOW, INVALID}
    assert decide(program, fcntl, 3, 0xFFFFFFFF, arch=ARCH[machine]) == INVALID


@pytest.mark.parametrize(("machine", "madvise"), [("x86_64", 28), ("aarch64", 233)])
def test_pages_are_not_merged_or_evicted(machine, madvise):
    program = seccomp_filter(False, machine)
    decisions = {advice: decide(program, madvise, 0, 0, advice, arch=ARCH[machine]) for advice in range(128)}
    assert {a for a, decision in decisions.items() if decision != ALLOW} == {12, 20, 21}
    assert decisions[12] == decisions[20] == decisions[21] == PRETENDED


@pytest.mark.parametrize(("machine", "mmap"), [("x86_64", 9), ("aarch64", 222)])
def test_shared_mappings_need_a_file(machine, mmap):
    program, shared, private, validated, anonymous = seccomp_filter(False, machine), 1, 2, 3, 0x20
    for sharing, decision in ((shared, REFUSED), (validated, REFUSED), (private, ALLOW)):
        assert decide(program, mmap, 0, 4096, 3, sharing | anonymous, arch=ARCH[machine]) == decision
        assert decide(program, mmap, 0, 4096, 3, sharing, arch=ARCH[machine]) == ALLOW


@pytest.mark.parametrize(("machine", "prctl", "seccomp"), [("x86_64", 157, 317), ("aarch64", 167, 277)])
def test_no_filters_of_its_own(machine, prctl, seccomp):
    program = seccomp_filter(False, machine)
    assert decide(program, prctl, 22, 2, arch=ARCH[machine]) == REFUSED
    assert decide(program, seccomp, 1, arch=ARCH[machine]) == REFUSED


def test_every_way_to_set_the_times_of_a_file_on_x86_64():
    for number in (132, 235, 261, 280):
        assert decide(seccomp_filter(False, "x86_64"), number, arch=ARCH["x86_64"]) == PRETENDED


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
def test_threads_but_no_processes(machine, clone):
    arch = ARCH[machine]
    runs, compiles = seccomp_filter(False, machine), seccomp_filter(True, machine)
    assert decide(runs, clone, THREAD_FLAGS, arch=arch) == ALLOW
    assert decide(runs, clone, FORK_FLAGS, arch=arch) == REFUSED
    assert decide(runs, clone, 0, arch=arch) == REFUSED
    assert decide(compiles, clone, FORK_FLAGS, arch=arch) == ALLOW
    for program in (runs, compiles):
        assert decide(program, clone, FORK_FLAGS | NEW_USER, arch=arch) == REFUSED
        assert decide(program, clone, THREAD_FLAGS | NEW_NET, arch=arch) == REFUSED
        assert decide(program, 435, arch=arch) == MISSING  # clone3: the C library falls back to clone


@pytest.mark.parametrize(("machine", "prctl"), [("x86_64", 157), ("aarch64", 167)])
def test_the_signal_at_the_judges_death_cannot_be_changed(machine, prctl):
    program, arch = seccomp_filter(False, machine), ARCH[machine]
    assert decide(program, prctl, 1, 0, arch=arch) == REFUSED
    assert decide(program, prctl, 1, 15, arch=arch) == REFUSED
    assert decide(program, prctl, 1, 9, arch=arch) == ALLOW  # how it is set in the first place
    assert decide(program, prctl, 15, 0, arch=arch) == ALLOW


def test_the_other_ways_to_fork_on_x86_64():
    arch = ARCH["x86_64"]
    for number in (57, 58):
        assert decide(seccomp_filter(False, "x86_64"), number, arch=arch) == REFUSED
        assert decide(seccomp_filter(True, "x86_64"), number, arch=arch) == ALLOW


@pytest.mark.parametrize("machine", ARCH)
def test_no_second_set_of_numbers(machine):
    """Under another architecture's numbers, or x32's, every refused call has a second name."""
    program = seccomp_filter(False, machine)
    assert decide(program, 0, arch=0x40000003) == KILL  # 32-bit x86
    assert decide(program, 0, arch=ARCH["aarch64" if machine == "x86_64" else "x86_64"]) == KILL
    assert decide(program, 0x40000000 | 41, arch=ARCH[machine]) == MISSING


def test_an_unknown_machine_is_refused():
    with pytest.raises(SandboxError, match="riscv64"):
        seccomp_filter(False, "riscv64")
