"""Parts of the kernel that no program needs: each call must be refused before the kernel looks at its arguments.

A call counts as refused if it fails with "not permitted" or "no such call". Any other result, an error too, shows that
the kernel's own code was reached: a vulnerability there could be used.
"""

from reward_fns.sandbox.attacks.programs import CALLS, SYSTEM_CALLS, Attack, attack, breach

_ARGUMENTS = {
    "socket": "1, 1, 0", "keyctl": "0, -4, 1", "personality": "0x0400000", "memfd_create": "b'x', 0",
    "shmget": "0, 4096, 0o1600", "semget": "0, 1, 0o1600", "msgget": "0, 0o1600", "unshare": "0x10000000",
    "kcmp": "1, 1, 0, 0, 0", "io_setup": "1, ctypes.create_string_buffer(8)", "reboot": "0, 0, 0, 0",
    "clock_settime": "0, (ctypes.c_long * 2)(1, 0)", "sethostname": "b'x', 1", "setdomainname": "b'x', 1",
}  # fmt: skip
_NOT_HERE = {"cachestat", "clone", "clone3", "exit", "fork", "mincore", "setns", "socketpair", "vfork"}

SURFACES: list[Attack] = [
    attack(
        f"the call {name}",
        "runtime_error",
        CALLS
        + f"""
try:
    call({name!r}, {_ARGUMENTS.get(name, "0, 0, 0, 0, 0, 0")})
except OSError as error:
    if error.errno in (errno.EPERM, errno.ENOSYS):
        raise
print("breached")
""",
        problem="breach",
        local=True,
    )
    for name in sorted(SYSTEM_CALLS.keys() - _NOT_HERE)
]
SURFACES += [
    breach("calls of 32-bit programs", CALLS + r"""
import mmap
if os.uname().machine != "x86_64":
    raise SystemExit(1)
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # getpid by the old interrupt
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
assert ctypes.CFUNCTYPE(ctypes.c_int)(at)() > 0
""", local=True),
    breach("calls of the second numbering", CALLS + r"""
if os.uname().machine != "x86_64":
    raise SystemExit(1)
must(libc.syscall(0x40000000 | 39))
""", local=True),
]  # fmt: skip
