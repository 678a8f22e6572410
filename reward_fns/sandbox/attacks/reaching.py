"""Programs that reach for the host: its files, network, users, devices and processes.

On an e2b machine a program may do some of this (`local` marks it): the machine's kernel and files are not the judge's.
"""

from reward_fns.sandbox.attacks.programs import CALLS, Attack, attack, breach

# fmt: off
FILES: list[Attack] = [
    breach("write the sandbox's own files", "open('/box/main', 'wb', 0).write(b'print(1)')", local=True),
    breach("poison the interpreter", r"""
import os
open(os.path.join(os.path.dirname(os.__file__), "@MARK@.py"), "w").write("x = 1")
"""),
    attack("leave something for the next sample", "wrong", r"""
import glob, os
for folder in ("/tmp", "/var/tmp", "/dev/shm", "/box", "."):
    try:
        if os.path.exists(f"{folder}/@MARK@"):
            os.write(1, open(f"{folder}/@MARK@", "rb").read())
            print("breached")
        open(f"{folder}/@MARK@", "w").write("left behind")
    except OSError:
        pass
""", problem="breach"),
    attack("fill other folders", "wrong", r"""
import os
for folder in ("/", "/box", "/dev", "/proc", "/usr/lib", "/etc", "/run", "/root", "/home", "/usr/local/lib", "/opt"):
    try:
        with open(f"{folder}/@MARK@", "wb") as file:
            file.write(bytes(1 << 20))
        print("breached")
        break
    except OSError:
        pass
""", problem="breach"),
    breach("make a device", "import os, stat\nos.mknod('/tmp/sda', 0o666 | stat.S_IFBLK, os.makedev(8, 0))"),
    breach("use the host's devices", r"""
import glob
print(open((glob.glob("/dev/sd*") + glob.glob("/dev/vd*") + ["/dev/mem"])[0], "rb").read(1))
"""),
    breach("a terminal of its own", "import os\nos.openpty()", local=True),
    breach("the host's kernel log", "print(len(open('/dev/kmsg', 'rb', 0).read(1)))", local=True),
    breach("write system settings", "open('/proc/sys/kernel/core_pattern', 'wb', 0).write(b'|/tmp/x')"),
    breach("the magic key", "open('/proc/sysrq-trigger', 'wb', 0).write(b'h')"),
    breach("write the kernel's parameters", r"""
import os
for path in ("/sys/kernel/mm/ksm/run", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/self/uid_map"):
    try:
        open(path, "wb", 0).write(b"0 0 1")
        break
    except OSError:
        pass
else:
    raise SystemExit(1)
"""),
    breach("an open folder as a way out", r"""
import os
folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
os.chroot("/tmp")
os.fchdir(folder)
os.stat("..")
"""),
    breach("hard links to what it cannot write", r"""
import os
os.link(os.__file__, "/tmp/@MARK@")
open("/tmp/@MARK@", "a").write("x = 1")
"""),
    breach("write through its own mapping of a library", r"""
import mmap, os
at = os.open(os.__file__, os.O_RDONLY)
shared = mmap.mmap(at, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
shared[0] = shared[0]
"""),
    breach("write a read-only file through /proc/self/mem", CALLS + r"""
import mmap
at = libc.mmap(None, 4096, 1, 1, os.open(os.__file__, os.O_RDONLY), 0)
memory = os.open("/proc/self/mem", os.O_RDWR)
os.lseek(memory, at, 0)
os.write(memory, b"x")
"""),
]

NETWORK: list[Attack] = [
    breach("connect to the judge", r"""
import socket
socket.create_connection(("127.0.0.1", @PORT@), 2).sendall(b"hello")
"""),
    breach("connect to the world", r"""
import urllib.request
urllib.request.urlopen("http://1.1.1.1", timeout=1)
"""),
    breach("send a datagram", r"""
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", @PORT@))
"""),
    breach("ask for a name", "import socket\nprint(socket.gethostbyname('example.com'))"),
    breach("a Unix socket of the host", r"""
import glob, socket
for name in ["\0agon-verl-sandbox-0-0"] + glob.glob("/run/**/*.sock", recursive=True):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(name)
        except OSError:
            continue
        break
    else:
        continue
    break
else:
    raise SystemExit(1)
"""),
    breach("a netlink socket", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)", local=True),
    breach("a packet socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"),
    breach("a socket of the kernel's ciphers",
           "import socket\nsocket.socket(38, socket.SOCK_SEQPACKET, 0)", local=True),
    breach("a socket to the hypervisor", "import socket\nsocket.socket(40, socket.SOCK_STREAM, 0)", local=True),
    breach("connect through an inherited socket", r"""
import os, socket, stat
for name in os.listdir("/proc/self/fd"):
    if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
        break
else:
    raise SystemExit(1)
"""),
]

PRIVILEGE: list[Attack] = [
    breach("become root", "import os\nos.setuid(0)"),
    breach("take back rights", "import os\nos.setgroups([0])\nos.setresuid(0, 0, 0)"),
    attack("a setuid program", "wrong", r"""
import os
open("/tmp/x", "w").write("#!/bin/true")
os.chmod("/tmp/x", 0o6755)
for path in ("/usr/bin/su", "/usr/bin/sudo", "/usr/bin/mount", "/bin/sh", "/tmp/x"):
    try:
        os.execv(path, [path])
    except OSError:
        pass
""", local=True),
    breach("capabilities", CALLS + r"""
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
if not any(int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")):
    raise SystemExit(1)
"""),
    breach("raise a capability", CALLS + r"""
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
header, rights = Header(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
must(libc.capset(ctypes.byref(header), ctypes.byref(rights)))
"""),
    breach("new privileges allowed again",
           CALLS + "must(libc.prctl(38, 0, 0, 0, 0))\nassert libc.prctl(39, 0, 0, 0, 0) == 0"),
    breach("another user", "import os\nos.setresuid(1, 1, 1)\nos.setresgid(1, 1, 1)"),
    breach("give a file away", "import os\nopen('/tmp/x', 'w')\nos.chown('/tmp/x', 0, 0)"),
    breach("raise our limits", r"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""),
    breach("raise any limit", r"""
import resource
for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "RTPRIO", "NICE", "MSGQUEUE"):
    kind = getattr(resource, "RLIMIT_" + name, None)
    if kind is None or resource.getrlimit(kind)[1] == resource.RLIM_INFINITY:
        continue
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        continue
    break
else:
    raise SystemExit(1)
"""),
    breach("raise our priority", "import os\nos.nice(-20)\nos.setpriority(0, 0, -20)"),
    breach("real-time priority", "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))"),
    breach("survive when memory is short", "open('/proc/self/oom_score_adj', 'wb', 0).write(b'-1000')"),
    breach("change its control group", r"""
import glob
for path in glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)[:50]:
    try:
        open(path, "wb", 0).write(b"0")
        break
    except OSError:
        pass
else:
    raise SystemExit(1)
"""),
]

NAMESPACES: list[Attack] = [
    breach("mount something", CALLS + "must(libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0))"),
    breach("make the root writable", CALLS + "must(libc.mount(b'none', b'/', b'', 32, 0))"),
    breach("unmount what hides the host", CALLS + "must(libc.umount2(b'/tmp', 2))"),
    *(breach(f"a {kind} namespace of its own", CALLS + f"must(libc.unshare({flag}))", local=kind == "user")
      for kind, flag in {"user": 0x10000000, "mount": 0x20000, "network": 0x40000000, "process": 0x20000000,
                         "control group": 0x2000000, "time": 0x80}.items()),
    breach("a user namespace by clone", CALLS + r"""
if call("clone", 0x10000000 | 17, 0, 0, 0, 0) == 0:
    os._exit(0)
""", local=True),
    breach("a user namespace by clone3", CALLS + r"""
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
if call("clone3", arguments, 88) == 0:
    os._exit(0)
""", local=True),
    breach("enter the judge's namespace", CALLS + "must(libc.setns(os.open('/proc/@PID@/ns/mnt', os.O_RDONLY), 0))"),
    breach("enter its own namespaces again", CALLS + r"""
for name in ("mnt", "user", "pid", "net"):
    must(libc.setns(os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0))
"""),
    breach("reach the namespaces around its own", r"""
import fcntl, os
GET_OWNER, GET_PARENT = 0xB701, 0xB702
for name in os.listdir("/proc/self/ns"):
    namespace = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
    try:
        namespace = fcntl.ioctl(namespace, GET_OWNER)
    except OSError:
        pass
    try:
        fcntl.ioctl(namespace, GET_PARENT)
        break
    except OSError:
        pass
else:
    raise SystemExit(1)
""", local=True),
    breach("reach the mounts around its own", CALLS + r"""
import fcntl, struct
GET_INFO, GET_NEXT, GET_PREVIOUS = 0x8010B70A, 0x8010B70B, 0x8010B70C  # from Linux 6.12 on
LIST_MOUNTS, ROOT = 458, 0xFFFFFFFFFFFFFFFF
own, info, mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY), bytearray(16), (ctypes.c_uint64 * 64)()
fcntl.ioctl(own, GET_INFO, info)
number = struct.unpack("<IIQ", info)[2]
seen = 0
for direction in (GET_NEXT, GET_PREVIOUS):
    try:
        fcntl.ioctl(own, direction, info)
        seen += 1
    except OSError:
        pass
for other in range(max(1, number - 5000), number + 100):
    request = struct.pack("<IIQQQ", 32, 0, ROOT, 0, other)
    seen += other != number and libc.syscall(LIST_MOUNTS, request, mounts, 64, 0) >= 0
if not seen:
    raise SystemExit(1)
""", local=True),
    breach("a new root", CALLS + "call('pivot_root', b'/tmp', b'/tmp')"),
]

PROCESSES: list[Attack] = [
    breach("signal the judge", "import os, signal\nos.kill(@PID@, signal.SIGKILL)"),
    attack("signal everyone", "wrong", r"""
import os, signal
for pid in (-1, 0, 1, os.getppid(), os.getpgrp()):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("still here")
""", local=True),
    breach("signal the judge by a descriptor", "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(@PID@), 9)"),
    breach("own the judge's descriptors", r"""
import fcntl, os, signal
for number in (0, 1, 2):
    fcntl.fcntl(number, fcntl.F_SETOWN, @PID@)
    fcntl.fcntl(number, 10, signal.SIGKILL)
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    if fcntl.fcntl(number, fcntl.F_GETOWN) == @PID@:
        break
else:
    raise SystemExit(1)
"""),
    breach("trace the judge", CALLS + "must(libc.ptrace(16, @PID@, 0, 0))"),
    breach("trace ourselves", CALLS + "must(libc.ptrace(0, 0, 0, 0))", local=True),
    breach("read the judge's memory by a call", CALLS + r"""
here = ctypes.create_string_buffer(64)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
vector = Vector(ctypes.addressof(here), 64)
must(libc.process_vm_readv(@PID@, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0))
"""),
    breach("change the judge's limits", "import resource\nresource.prlimit(@PID@, resource.RLIMIT_CPU, (1, 1))"),
    breach("slow the judge down", "import os\nos.setpriority(os.PRIO_PROCESS, @PID@, 19)"),
    breach("pin the judge", "import os\nos.sched_setaffinity(@PID@, {0})"),
    breach("see another process", r"""
import os
if sum(name.isdigit() for name in os.listdir("/proc")) <= 1:
    raise SystemExit(1)
""", local=True),
]
