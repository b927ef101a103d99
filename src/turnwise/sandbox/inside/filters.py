"""Seccomp filters: the system calls that a program or a worker may make, as code for the kernel.

Provides the lists of calls with their numbers (name:x86_64:aarch64), and the filters made of them.
An unlisted call fails with ENOSYS. Interface: seccomp(2), and the kernel's
Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import kernel

_ALLOWED = """
read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 preadv:295:69
pwritev:296:70 lseek:8:62 creat:85:- close:3:57
close_range:436:436 stat:4:- fstat:5:80 lstat:6:- newfstatat:262:79 statx:332:291 statfs:137:43
fstatfs:138:44 access:21:- faccessat:269:48 faccessat2:439:439 readlink:89:- readlinkat:267:78
getcwd:79:17 chdir:80:49 fchdir:81:50 getdents:78:- getdents64:217:61 mkdir:83:- mkdirat:258:34
rmdir:84:- unlink:87:- unlinkat:263:35 rename:82:- renameat:264:38 renameat2:316:276 link:86:-
linkat:265:37 symlink:88:- symlinkat:266:36 ftruncate:77:46
fadvise64:221:223 sendfile:40:71 copy_file_range:326:285
umask:95:166 dup:32:23 dup2:33:- dup3:292:24 pipe:22:- pipe2:293:59 poll:7:-
ppoll:271:73 select:23:- pselect6:270:72 epoll_create:213:- epoll_create1:291:20 epoll_ctl:233:21
epoll_wait:232:- epoll_pwait:281:22 eventfd:284:- eventfd2:290:19 timerfd_create:283:85
timerfd_settime:286:86 timerfd_gettime:287:87 recvfrom:45:207 recvmsg:47:212
shutdown:48:210 getsockname:51:204 getpeername:52:205
getsockopt:55:209 munmap:11:215 mremap:25:216 mprotect:10:226
madvise:28:233 msync:26:227 mincore:27:232 brk:12:214 mlock:149:228 munlock:150:229
membarrier:324:283 futex:202:98 set_robust_list:273:99 get_robust_list:274:100
set_tid_address:218:96 rseq:334:293 sched_yield:24:124 sched_getaffinity:204:123
sched_getparam:143:121 sched_getscheduler:145:120 sched_get_priority_max:146:125
sched_get_priority_min:147:126 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139
rt_sigpending:127:136 rt_sigsuspend:130:133 rt_sigtimedwait:128:137 sigaltstack:131:132
restart_syscall:219:128 pause:34:- alarm:37:- setitimer:38:103 getitimer:36:102 nanosleep:35:101
clock_nanosleep:230:115 clock_gettime:228:113 clock_getres:229:114 gettimeofday:96:169 time:201:-
times:100:153 getrusage:98:165 sysinfo:99:179 uname:63:160 getrandom:318:278 getcpu:309:168
getpid:39:172 getppid:110:173 gettid:186:178 getuid:102:174 geteuid:107:175 getgid:104:176
getegid:108:177 getresuid:118:148 getresgid:120:150 getgroups:115:158 getpgrp:111:-
getpgid:121:155 getsid:124:156 setsid:112:157 setpgid:109:154 getpriority:140:141 getrlimit:97:163
capget:125:90 arch_prctl:158:- exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95
"""
"""Calls on the process itself: its own files, memory, threads and time."""
_TOOLS = """
execve:59:221 execveat:322:281 fork:57:- vfork:58:-
"""
"""Calls that start other programs."""
_WORKER = """
memfd_create:319:279 splice:275:76 unshare:272:97 mount:165:40 capset:126:91 setrlimit:160:164
pidfd_open:434:434 truncate:76:45 mount_setattr:442:442
"""
"""Further calls of a worker, and of the child that prepares for a program."""
_NETWORK = """
connect:42:203 sendmsg:46:211 sendmmsg:307:269 recvmmsg:299:243
"""
"""Calls that connect to other machines."""
_SERVERS = """
bind:49:200 listen:50:201 accept:43:202 accept4:288:242
"""
"""Calls that wait for connections, and could take the names of this machine's services."""
_LOCKS = """
flock:73:32
"""
"""Locks on files, which would block other readers of the interpreter's files or of /dev/null. A
single process gets a success without a lock; several processes are refused."""
_SYNCS = """
fsync:74:82 fdatasync:75:83
"""
"""Calls that write buffers to disk, at a cost to other processes; they succeed without effect."""
_ATTRIBUTES = """
setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10
listxattr:194:11 llistxattr:195:12 flistxattr:196:13
"""
"""Calls on extended attributes, which `shutil.copy2` makes; files have none here."""
_OWNERS = """
truncate:76:45 chmod:90:- fchmod:91:52 fchmodat:268:53 chown:92:- fchown:93:55 lchown:94:-
fchownat:260:54
"""
"""Calls that change files by path and that Landlock, or its first versions, does not restrict."""
_TIMES = """
utime:132:- utimes:235:- utimensat:280:88 futimesat:261:-
"""
"""Calls that change the times of writable files, including those of shared devices where the mounts
are not read-only."""
_KILLED = """
ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 tkill:200:130
rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 pidfd_getfd:438:438
pidfd_send_signal:424:424 kcmp:312:272 mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51
unshare:272:97 setns:308:268 fsopen:430:430 fsmount:432:432 move_mount:429:429 open_tree:428:428
mount_setattr:442:442 mknod:133:- mknodat:259:33 open_by_handle_at:304:265
name_to_handle_at:303:264 bpf:321:280 perf_event_open:298:241 userfaultfd:323:282 keyctl:250:219
add_key:248:217 request_key:249:218 kexec_load:246:104 kexec_file_load:320:294 init_module:175:105
finit_module:313:273 delete_module:176:106 io_uring_setup:425:425 io_uring_enter:426:426
io_uring_register:427:427 reboot:169:142 swapon:167:224 swapoff:168:225 acct:163:89
settimeofday:164:170 clock_settime:227:112 clock_adjtime:305:266 adjtimex:159:171
sethostname:170:161 setdomainname:171:162 iopl:172:- ioperm:173:- quotactl:179:60 syslog:103:116
vhangup:153:58 process_madvise:440:440 seccomp:317:277 personality:135:92
landlock_restrict_self:446:446
"""
"""Calls that no legitimate program makes."""
_LANDLOCK = """
landlock_create_ruleset:444:444 landlock_add_rule:445:445 landlock_restrict_self:446:446
"""
_SPECIAL = """
fcntl:72:25 socket:41:198 socketpair:53:199 sendto:44:206 setsockopt:54:208 clone:56:220 kill:62:129
tgkill:234:131 prctl:157:167 ioctl:16:29 prlimit64:302:261 mmap:9:222
open:2:- openat:257:56 fallocate:285:47
"""
"""Calls that are decided by their arguments."""

_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_AND = 0x54
_FARTHEST = 255
"""The largest number of instructions that a condition can jump over."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FOREIGN_CALLS = 0x40000000
"""Numbers from this one on belong to the x32 interface."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_THREAD, _NEW_NAMESPACES = 0x10000, 0x7E020000
_FILE_FLAGS = (0x5450, 0x5451, 0x541B, 0x5421)
"""FIONCLEX, FIOCLEX, FIONREAD, FIONBIO."""
_CONTROLS = (0, 1, 2, 3, 4, 5, 36, 1030, 1032, 1034)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_OFD_GETLK, F_DUPFD_CLOEXEC, F_GETPIPE_SZ
and F_GET_SEALS: none of them sends signals, takes kernel memory or changes an inode."""
_FAMILIES = (2, 10)
"""AF_INET and AF_INET6. A UNIX socket could connect to a service of this machine."""
_LOCKING = (6, 7, 37, 38)
"""F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW."""
_UNIX, _STREAM, _TYPE_FLAGS = 1, 1, (0, 0x800, 0x80000, 0x80800)
"""AF_UNIX, SOCK_STREAM, SOCK_NONBLOCK and SOCK_CLOEXEC: other pairs are refused. A connected stream
takes no address."""
_SHARED, _ANONYMOUS, _GROWS_DOWN, _NO_NAME = 1, 0x20, 0x100, 0x400000
"""The bits of MAP_SHARED, MAP_ANONYMOUS, MAP_GROWSDOWN and O_TMPFILE that no other flag has."""
_CUT, _ACCESS = 0x200, 3
"""O_TRUNC; and O_ACCMODE, whose values 1 and 2 request writing."""
_PROTOCOLS, _SOCKET = (0, 6, 41), 1
"""IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6; SOL_SOCKET."""
_OPTIONS = (2, 6, 7, 8, 9, 13, 15, 20, 21)
"""SO_REUSEADDR, SO_BROADCAST, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE, SO_LINGER, SO_REUSEPORT and the
two timeouts: none of them attaches a filter to a socket."""
_OWN_SPACES = 0x10020000
"""CLONE_NEWUSER and CLONE_NEWNS, of each child (`isolation`)."""
_HARMLESS_PROPERTIES = (3, 15, 16, 0x53564D41)
"""PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA."""

Code = tuple[int, int, int, int]
"""One instruction: operation, jump if true, jump if false, constant."""
_EPERM: Code = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
_ALLOWED_ALWAYS: Code = (_RETURN, 0, 0, _ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The restrictions that the other isolation of a program leaves to the filter.

    `modes` allows changes of owners and modes of files, `times` of their times. `nameless` allows
    files without a name and space beyond the end of a file; `maps` allows shared maps of files.

    Example:
        >>> Guard(modes=True, times=False, nameless=True, maps=True).times
        False
    """

    modes: bool
    times: bool
    nameless: bool
    maps: bool


class Filter:
    """A filter, ready to be installed.

    Args:
        guard: the restrictions that other isolation enforces, so that the filter need not.
        tools: whether processes may be started. Signals are then allowed too, so other isolation
            must protect the other processes.
        network: whether sockets may be opened.
    """

    def __init__(self, guard: Guard, *, tools: bool, network: bool) -> None:
        allowed = _numbers(_ALLOWED) | (_numbers(_NETWORK) if network else {})
        allowed |= _numbers((_TOOLS if tools else "") + (_OWNERS if guard.modes else ""))
        allowed |= _numbers(_TIMES) if guard.times else {}
        special = _numbers(_SPECIAL)
        verdicts: dict[int, list[Code]] = {}
        refused = _TOOLS + _NETWORK + _SERVERS + _OWNERS + _TIMES
        for listed, action in (
            (_numbers(_KILLED), _KILL),
            (_numbers(refused), _ERRNO | errno.EPERM),
            (allowed, _ALLOW),
            (_numbers(_SYNCS), _ERRNO),
            (_numbers(_ATTRIBUTES), _ERRNO | errno.EOPNOTSUPP),
        ):
            verdicts |= {number: [(_RETURN, 0, 0, action)] for number in listed.values()}
        verdicts[special["clone"]] = _clone(tools)
        locked = _EPERM if tools else (_RETURN, 0, 0, _ERRNO)
        verdicts[_numbers(_LOCKS)["flock"]] = [locked]
        verdicts[special["fcntl"]] = _controls(locked)
        verdicts[special["socket"]] = _among(0, _FAMILIES, errno.EPERM) if network else [_EPERM]
        verdicts[special["socketpair"]] = _streams_only()
        verdicts[special["sendto"]] = [_ALLOWED_ALWAYS] if network else _null_only(4)
        verdicts[special["ioctl"]] = _among(1, _FILE_FLAGS, errno.ENOTTY)
        verdicts[special["prctl"]] = _among(0, _HARMLESS_PROPERTIES, errno.EPERM)
        verdicts[special["kill"]] = [_ALLOWED_ALWAYS] if tools else _own_only(_KILL)
        verdicts[special["tgkill"]] = [_ALLOWED_ALWAYS] if tools else _own_only(_KILL)
        verdicts[special["prlimit64"]] = [*_only(0, 0), *_null_only(2)]
        verdicts[special["setsockopt"]] = _options() if network else [_EPERM]
        verdicts[special["mmap"]] = _counted_only(guard.maps)
        for name, position in (("open", 1), ("openat", 2)):
            if name in special:
                named = [_ALLOWED_ALWAYS] if guard.nameless else _named_only(position)
                verdicts[special[name]] = named
        sized = [
            *_only(1, 0, errno.EOPNOTSUPP),
            _ALLOWED_ALWAYS,
        ]  # otherwise the size is wrong
        verdicts[special["fallocate"]] = [_ALLOWED_ALWAYS] if guard.nameless else sized
        self._program, self._code, self._places = _assembled(verdicts)

    def put_on(self, pid: int) -> None:
        """Install the filter for this process, `pid`, and its children, permanently."""
        number = pid.to_bytes(4, "little")
        for place in self._places:
            self._code[place : place + 4] = number
        kernel.put_on(self._program)


def confine_worker() -> None:
    """Install a filter for this process, a worker, and its children, permanently.

    It allows what programs may do at most, and what the preparation of a program needs.
    """
    given = "".join((_ALLOWED, _TOOLS, _NETWORK, _OWNERS, _TIMES, _LOCKS, _WORKER, _SPECIAL))
    given += _LANDLOCK + _SYNCS
    allowed = _numbers(given)
    verdicts = {number: [(_RETURN, 0, 0, _KILL)] for number in _numbers(_KILLED).values()}
    verdicts |= {number: [_ALLOWED_ALWAYS] for number in allowed.values()}
    verdicts[allowed["clone"]] = _clone(True)
    verdicts[allowed["unshare"]] = _among(0, (_OWN_SPACES,), errno.EPERM)
    program, _code, _places = _assembled(verdicts)  # the code must live until it is installed
    kernel.put_on(program)


_PID = 0xFFFFFFFE
"""Placeholder in a filter for the id of the process that installs it."""


def _assembled(verdicts: dict[int, list[Code]]) -> tuple[_Program, Any, list[int]]:
    """Return a filter for the kernel, its code, and the places of the process id."""
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[kernel.MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_search(_runs(verdicts)),
    ]
    packed = b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
    kept = ctypes.create_string_buffer(packed, len(packed))
    places = [8 * i + 4 for i, instruction in enumerate(code) if instruction[3] == _PID]
    return _Program(len(code), ctypes.addressof(kept)), kept, places


def _numbers(listed: str) -> dict[str, int]:
    """Return name -> number of the calls in a list that exist on this machine."""
    place = 1 if kernel.MACHINE == "x86_64" else 2
    entries = (entry.split(":") for entry in listed.split())
    return {entry[0]: int(entry[place]) for entry in entries if entry[place] != "-"}


def _one_by_one(numbers: Iterable[int], action: int) -> list[Code]:
    """Return code that does `action` for any of the calls."""
    return [c for n in numbers for c in ((_EQUAL, 0, 1, n), (_RETURN, 0, 0, action))]


def _runs(verdicts: dict[int, list[Code]]) -> list[tuple[int, list[Code]]]:
    """Return (first number, verdict) for every run of numbers with one verdict, from 0 on."""
    unknown: list[Code] = [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    runs = [(0, verdicts.get(0, unknown))]
    for number in range(1, max(verdicts) + 2):
        verdict = verdicts.get(number, unknown)
        if verdict != runs[-1][1]:
            runs.append((number, verdict))
    return [*runs, (_FOREIGN_CALLS, [(_RETURN, 0, 0, _KILL)])]


def _search(runs: list[tuple[int, list[Code]]]) -> list[Code]:
    """Return code that finds a number's run by bisection; the kernel caches constant verdicts."""
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    low, high = _search(runs[:middle]), _search(runs[middle:])
    if len(low) <= _FARTHEST:
        return [(_AT_LEAST, len(low), 0, runs[middle][0]), *low, *high]
    return [(_AT_LEAST, 0, 1, runs[middle][0]), (_JUMP, 0, 0, len(low)), *low, *high]


def _among(position: int, values: Iterable[int], otherwise: int) -> list[Code]:
    """Return a verdict that allows some values of an argument."""
    load = (_LOAD, 0, 0, _ARGUMENTS + 8 * position)
    return [load, *_one_by_one(values, _ALLOW), (_RETURN, 0, 0, _ERRNO | otherwise)]


def _controls(locked: Code) -> list[Code]:
    """Return the verdict on `fcntl`, with `locked` for locks."""
    load = (_LOAD, 0, 0, _ARGUMENTS + 8)
    locks = [c for number in _LOCKING for c in ((_EQUAL, 0, 1, number), locked)]
    return [load, *_one_by_one(_CONTROLS, _ALLOW), *locks, _EPERM]


def _clone(tools: bool) -> list[Code]:
    """Return the verdict on `clone`: threads, and processes if tools may be started."""
    process = _ALLOW if tools else _ERRNO | errno.EPERM
    return [
        (_LOAD, 0, 0, _ARGUMENTS),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _KILL),
        (_ANY_BIT, 0, 1, _THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, process),
    ]


def _own_only(otherwise: int) -> list[Code]:
    """Return a verdict that allows a call on the process itself."""
    load = (_LOAD, 0, 0, _ARGUMENTS)
    return [load, *_one_by_one([_PID], _ALLOW), (_RETURN, 0, 0, otherwise)]


def _null_only(position: int) -> list[Code]:
    """Return a verdict that allows a call whose pointer at `position` is null.

    `prlimit64` then reads limits, and `sendto` sends to whom it is connected.
    """
    halves = [_ARGUMENTS + 8 * position, _ARGUMENTS + 8 * position + 4]
    tests = [c for half in halves for c in ((_LOAD, 0, 0, half), (_EQUAL, 1, 0, 0), _EPERM)]
    return [*tests, _ALLOWED_ALWAYS]


def _only(position: int, value: int, otherwise: int = errno.EPERM) -> list[Code]:
    """Return the beginning of a verdict that refuses all but one value of an argument."""
    refusal = (_RETURN, 0, 0, _ERRNO | otherwise)
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * position), (_EQUAL, 1, 0, value), refusal]


def _counted_only(files: bool) -> list[Code]:
    """Return the verdict on `mmap`: private memory, which is counted, and optionally files.

    No limit counts the pages that shared memory without a file keeps after an unmap, nor stacks
    that grow.
    """
    flags = (_LOAD, 0, 0, _ARGUMENTS + 8 * 3)
    grows = [(_ANY_BIT, 0, 1, _GROWS_DOWN), _EPERM]
    shared = [(_ANY_BIT, 1, 0, _SHARED), _ALLOWED_ALWAYS]
    return [
        flags,
        *grows,
        *shared,
        *([(_ANY_BIT, 0, 1, _ANONYMOUS), _EPERM, _ALLOWED_ALWAYS] if files else [_EPERM]),
    ]


def _named_only(position: int) -> list[Code]:
    """Return a verdict on opening files that refuses files without a name, which are not counted.

    It also refuses to truncate a file without opening it for writing, which the first versions of
    Landlock treat as reading.
    """
    flags = (_LOAD, 0, 0, _ARGUMENTS + 8 * position)
    refusal = (_RETURN, 0, 0, _ERRNO | errno.EOPNOTSUPP)
    cut = [(_EQUAL, 0, 1, _CUT), _EPERM, (_EQUAL, 0, 1, _CUT | _ACCESS), _EPERM]
    named = [(_AND, 0, 0, _CUT | _ACCESS), *cut, _ALLOWED_ALWAYS]
    return [flags, (_ANY_BIT, 0, 1, _NO_NAME), refusal, *named]


def _options() -> list[Code]:
    """Return the verdict on `setsockopt`: options of protocols, and harmless ones of sockets."""
    level = (_LOAD, 0, 0, _ARGUMENTS + 8)
    return [level, *_one_by_one(_PROTOCOLS, _ALLOW), *_only(1, _SOCKET), *_among(2, _OPTIONS, 1)]


def _streams_only() -> list[Code]:
    """Return the verdict on `socketpair`: connected streams within this machine."""
    return _only(0, _UNIX) + _among(1, [_STREAM | flags for flags in _TYPE_FLAGS], errno.EPERM)
