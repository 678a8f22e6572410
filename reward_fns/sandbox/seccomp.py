"""The system calls that a judged program may not make, as a filter that bubblewrap loads before the program starts.

Namespaces hide the host; the filter closes what they leave open. A program is one process with threads: without `fork`
there are no fork bombs and no daemons, and a memory limit on the process covers everything. Memory that no process
limit counts is refused (System V segments, shared mappings without a file, memory files, message queues, pages moved
into pipes, attributes of files, filters, rules of Landlock), and so are calls that only enlarge the attack surface of
the kernel: sockets (but pairs within the program, which asyncio needs), nested namespaces, mounts, tracing, io_uring,
bpf, keys; and `sync`, which makes all processes wait for the disk. A program cannot choose its cores or lower its
priority, so it waits for a core only if the machine is busy. A refused call fails with EPERM, which most programs see
as an ordinary exception. Calls that need a capability are not listed: a program has none.

Programs that run side by side see the same read-only files, and must not talk through them: by locks, leases, watches
and marks on a file, by its time stamps (any program may set those of /dev/null to the present), by the state of the
page cache, or by descriptors in flight, which the kernel counts per user. Where an honest program makes such a call on
a file of its own (SQLite locks and syncs its database), the call is pretended: it returns 0 and does nothing. The file
is in memory and no other process can open it, so nothing is lost. docs/sandbox.md lists the ways that are left.

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
    "mincore": (27, 232), "cachestat": (451, 451), "sendmsg": (46, 211), "sendmmsg": (307, 269),
}  # fmt: skip
_PRETENDED: dict[str, tuple[int | None, int | None]] = {
    "flock": (73, 32), "fadvise64": (221, 223), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "fsync": (74, 82), "fdatasync": (75, 83), "sync_file_range": (277, 84), "msync": (26, 227),
}  # fmt: skip
# Reported as missing, so that the C library uses clone and preadv. The flags of clone3 are in memory, which a filter
# cannot read; those of preadv2 tell whether a page is in the cache.
_MISSING: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "preadv2": (327, 286)}
_FORK: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _PRCTL, _FCNTL, _MADVISE, _MMAP = (56, 220), (157, 167), (72, 25), (28, 233), (9, 222)
# Commands of fcntl: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW are pretended. From 17 on only F_OFD_GETLK,
# F_DUPFD_CLOEXEC, F_GETPIPE_SZ and seals are allowed: not leases, watches, write hints, and larger pipes, whose pages
# the kernel counts per user.
_LOCK_COMMANDS, _FIRST_SPECIAL, _SPECIAL_COMMANDS = (6, 7, 37, 38), 17, (36, 1030, 1032, 1033, 1034)
_SHARING_ADVICE = (12, 20, 21)  # MADV_MERGEABLE, which shares equal pages, MADV_COLD, MADV_PAGEOUT
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # the second numbering of system calls on x86_64
_CLONE_THREAD = 0x00010000
_SET_PARENT_DEATH_SIGNAL, _SIGKILL, _SET_SECCOMP = 1, 9, 22
_MAP_SHARED, _MAP_ANONYMOUS = 1, 32
_CLONE_NEW = 0x7E020000  # every flag that makes a namespace

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT, _FOURTH_ARGUMENT = 16, 24, 32, 40
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp_filter(processes: bool, machine: str | None = None) -> bytes:
    """The filter in the format of bubblewrap's --seccomp; with `processes` (for compilers) forking is allowed."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        raise SandboxError(f"no system-call filter for {machine}: only {' and '.join(_AUDIT_ARCH)} are supported")
    column = list(_AUDIT_ARCH).index(machine)
    refuse, pretend, allow = _return(_ERRNO | errno.EPERM), _return(_ERRNO), _return(_ALLOW)
    missing, invalid = _return(_ERRNO | errno.ENOSYS), _return(_ERRNO | errno.EINVAL)
    program = [_op(_LOAD, _ARCH), _op(_EQUAL, _AUDIT_ARCH[machine], true=1), _return(_KILL)]
    program += [_op(_LOAD, _NUMBER), _op(_AT_LEAST, _X32, false=1), missing]
    tables = [(_MISSING, missing), ({} if processes else _FORK, refuse), (_REFUSED, refuse), (_PRETENDED, pretend)]
    for table, action in tables:
        for row in table.values():
            if (number := row[column]) is not None:
                program += _case(number, action)
    program += _case(
        _FCNTL[column], _op(_LOAD, _SECOND_ARGUMENT),
        *(line for command in _LOCK_COMMANDS for line in _case(command, pretend)),
        *(line for command in _SPECIAL_COMMANDS for line in _case(command, allow)),
        _op(_AT_LEAST, _FIRST_SPECIAL, true=1), allow, invalid,
    )  # fmt: skip
    program += _case(
        _MADVISE[column], _op(_LOAD, _THIRD_ARGUMENT),
        *(line for advice in _SHARING_ADVICE for line in _case(advice, pretend)), allow,
    )  # fmt: skip
    # Pages of a shared mapping without a file stay when they are unmapped, if one of them is not: nobody counts them.
    program += _case(
        _MMAP[column], _op(_LOAD, _FOURTH_ARGUMENT), _op(_ANY_BIT, _MAP_ANONYMOUS, true=1), allow,
        _op(_ANY_BIT, _MAP_SHARED, true=1), allow, refuse,
    )  # fmt: skip
    # The parent-death signal ends an ordinary user's program with its judge: it must not be changed.
    program += _case(
        _PRCTL[column], _op(_LOAD, _FIRST_ARGUMENT), *_case(_SET_SECCOMP, refuse),
        _op(_EQUAL, _SET_PARENT_DEATH_SIGNAL, true=1), allow,
        _op(_LOAD, _SECOND_ARGUMENT), *_case(_SIGKILL, allow), refuse,
    )  # fmt: skip
    program += [_op(_EQUAL, _CLONE[column], true=1), allow, _op(_LOAD, _FIRST_ARGUMENT)]
    program += [_op(_ANY_BIT, _CLONE_NEW, false=1), refuse]
    if not processes:
        program += [_op(_ANY_BIT, _CLONE_THREAD, true=1), refuse]
    return b"".join([*program, allow])


def _case(value: int, *block: bytes) -> list[bytes]:
    """Execute the block, which ends with a return, if `value` was loaded; else skip it."""
    return [_op(_EQUAL, value, false=len(block)), *block]


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, true, false, k)


def _return(action: int) -> bytes:
    return _op(_RETURN, action)
