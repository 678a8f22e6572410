"""The system calls that a judged program may not make, as a filter that bubblewrap loads before the program starts.

Namespaces hide the host; the filter closes what they leave open. A program is one process with threads: without `fork`
there are no fork bombs and no daemons, and a memory limit on the process covers everything. Memory that no process
limit counts is refused (System V segments, memory files, message queues, pages moved into pipes, attributes of files,
rules of Landlock), and so are calls that only enlarge the attack surface of the kernel: sockets of any kind, nested
namespaces, mounts, tracing, io_uring, bpf, keys; and `sync`, which makes all processes wait for the disk. A program
cannot choose its cores or lower its priority, so it waits for a core only if the machine is busy. A refused call fails
with EPERM, which most programs see as an ordinary exception. Calls that need a capability are not listed: a program has
none.

Only little-endian x86_64 and aarch64 are supported; elsewhere there is no filter and the sandbox refuses to start.
"""

import errno
import platform
import struct

from reward_fns.sandbox import SandboxError

# name: (x86_64, aarch64), None if the architecture lacks it. From 424 on both have the same numbers.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "sync": (162, 81), "syncfs": (306, 267), "io_setup": (206, 0), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "personality": (135, 92), "syslog": (103, 116),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "socket": (41, 198), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "vmsplice": (278, 75), "splice": (275, 76), "tee": (276, 77), "setsockopt": (54, 208),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "landlock_create_ruleset": (444, 444), "seccomp": (317, 277),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
_FORK: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _CLONE3, _PRCTL = (56, 220), 435, (157, 167)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # the second numbering of system calls on x86_64
_CLONE_THREAD = 0x00010000
_SET_PARENT_DEATH_SIGNAL, _SIGKILL = 1, 9
_CLONE_NEW = 0x7E020000  # every flag that makes a namespace

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp_filter(processes: bool, machine: str | None = None) -> bytes:
    """The filter in the format of bubblewrap's --seccomp; with `processes` (for compilers) forking is allowed."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        raise SandboxError(f"no system-call filter for {machine}: only {' and '.join(_AUDIT_ARCH)} are supported")
    column = list(_AUDIT_ARCH).index(machine)
    refused = [row[column] for row in ({} if processes else _FORK).values()] + [r[column] for r in _REFUSED.values()]
    refuse, pretend_missing = _return(_ERRNO | errno.EPERM), _return(_ERRNO | errno.ENOSYS)
    program = [_op(_LOAD, _ARCH), _op(_EQUAL, _AUDIT_ARCH[machine], true=1), _return(_KILL)]
    program += [_op(_LOAD, _NUMBER), _op(_AT_LEAST, _X32, false=1), pretend_missing]
    # The flags of clone3 are in memory, which a filter cannot read; without it the C library uses clone.
    program += [_op(_EQUAL, _CLONE3, false=1), pretend_missing]
    for number in refused:
        if number is not None:
            program += [_op(_EQUAL, number, false=1), refuse]
    # The parent-death signal ends an ordinary user's program with its judge: it must not be changed.
    program += [_op(_EQUAL, _PRCTL[column], false=6), _op(_LOAD, _FIRST_ARGUMENT)]
    program += [_op(_EQUAL, _SET_PARENT_DEATH_SIGNAL, false=3), _op(_LOAD, _SECOND_ARGUMENT)]
    program += [_op(_EQUAL, _SIGKILL, true=1), refuse, _return(_ALLOW)]
    program += [_op(_EQUAL, _CLONE[column], true=1), _return(_ALLOW), _op(_LOAD, _FIRST_ARGUMENT)]
    program += [_op(_ANY_BIT, _CLONE_NEW, false=1), refuse]
    if not processes:
        program += [_op(_ANY_BIT, _CLONE_THREAD, true=1), refuse]
    return b"".join([*program, _return(_ALLOW)])


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, k)


def _return(action: int) -> bytes:
    return _op(_RETURN, action)
