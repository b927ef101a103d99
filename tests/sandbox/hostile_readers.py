"""Programs that go for what reads them: the record, the worker, its memory, the next program.

Entries are those of `hostile`. `PREPARED` is put before each: `MEMORIES()` finds what a record is
left on, and `FORGE(record)` leaves one and ends the process.
"""

PREPARED = r"""
import gc, os, struct, sys
def MEMORIES():
    return [thing for thing in gc.get_objects() if type(thing).__name__ == 'RecordMemory'] + [
        value for frame in FRAMES() for value in frame.f_locals.values()
        if type(value).__name__ == 'RecordMemory']
def FRAMES():
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back
def FORGE(record):
    for memory in MEMORIES()[:1]: memory.leave(record)
    os._exit(0)
def SIZED(tag, data, count=None):
    return tag + struct.pack('<I', len(data) if count is None else count) + data
def TEXT(text): return SIZED(b's', text.encode('utf-8', 'surrogatepass'))
def INT(number): return b'i' + struct.pack('<q', number)
def VALUE(data): return SIZED(b't', TEXT('value') + data, 2)
def FAILED(*parts): return SIZED(b't', TEXT('failed') + b''.join(parts), 1 + len(parts))
"""

_FORGED = [
    (
        "value of another kind of array",
        "FORGE(VALUE(b'a\\x0e\\x01' + struct.pack('<Q', 1) + b'A' * 8))",
    ),
    ("array of negative size", "FORGE(VALUE(b'a\\x04\\x01' + struct.pack('<q', -1)))"),
    ("array of too many dimensions", "FORGE(VALUE(b'a\\x04\\xff' + b'\\0' * 2040))"),
    (
        "array larger than its bytes",
        "FORGE(VALUE(b'a\\x04\\x02' + struct.pack('<QQ', 2**32, 2**32)))",
    ),
    ("empty array of huge sides", "FORGE(VALUE(b'a\\x04\\x02' + struct.pack('<QQ', 0, 2**62)))"),
    ("record of the old format", 'FORGE(b\'["value",{"a":[",",[1],"AAAA"]}]\')'),
    ("text larger than its bytes", "FORGE(VALUE(b's\\xff\\xff\\xff\\xff'))"),
    ("list larger than its bytes", "FORGE(VALUE(b'l\\xff\\xff\\xff\\x7f'))"),
    ("text that is no text", "FORGE(VALUE(SIZED(b's', b'\\xff\\xfe')))"),
    ("lists without end", "FORGE(VALUE(SIZED(b'l', b'', 1) * 2000 + b'N'))"),
    ("keys that are no keys", "FORGE(VALUE(SIZED(b'S', SIZED(b'l', b''), 1)))"),
    ("keys that come twice", "FORGE(VALUE(SIZED(b'd', INT(1) + b'N' + b'T' + b'N', 2)))"),
    ("bytes left over", "FORGE(VALUE(b'N') + b'N')"),
    ("failure of an array", "FORGE(FAILED(TEXT('exception'), b'a\\x0e\\0', INT(1)))"),
    ("failure of no name", "FORGE(FAILED(TEXT('infrastructure'), TEXT('retry'), INT(0)))"),
    ("failure of the sandbox", "FORGE(FAILED(TEXT('sandbox'), TEXT('retry'), INT(0)))"),
    ("failure that is a timeout", "FORGE(FAILED(TEXT('timeout'), TEXT('slow'), INT(0)))"),
    ("failure without a line", "FORGE(FAILED(TEXT('exception'), TEXT('x')))"),
    ("failure in a line of text", "FORGE(FAILED(TEXT('exception'), TEXT('x'), TEXT('1')))"),
    ("failure in a line that is none", "FORGE(FAILED(TEXT('exception'), TEXT('x'), INT(-1)))"),
    ("failure in a line beyond all", "FORGE(FAILED(TEXT('exception'), TEXT('x'), INT(2**62)))"),
    ("failure in a true line", "FORGE(FAILED(TEXT('exception'), TEXT('x'), b'T'))"),
    ("neither value nor failure", "FORGE(SIZED(b't', TEXT('verdict') + b'N', 2))"),
    ("value in a list", "FORGE(SIZED(b'l', TEXT('value') + b'N', 2))"),
    ("nothing but a value", "FORGE(INT(42))"),
    ("empty record", "FORGE(b'')"),
    ("record of zeros", "FORGE(bytes(4096))"),
]

_SHEETS = [
    (
        "record longer than it may be",
        "output crash",
        "for s in MEMORIES()[:1]:\n"
        "    s._memory[:16] = struct.pack('<QQ', 0x600DF00D, 2**62)\nos._exit(0)",
    ),
    (
        "record one byte too long",
        "crash",
        "for s in MEMORIES()[:1]:\n"
        "    s._memory[:16] = struct.pack('<QQ', 0x600DF00D, len(s._memory) - 15)\nos._exit(0)",
    ),
    (
        "record cut short",
        "crash value exception",
        "for s in MEMORIES()[:1]:\n    try: s._memory.resize(4096)\n    except Exception: pass\n"
        "result = 'nothing'",
    ),
    (
        "record closed",
        "crash",
        "for s in MEMORIES()[:1]: s._memory.close()\nresult = 'nothing'",
    ),
    (
        "frozensets of one hash, nested",
        "crash",
        """
M = sys.hash_info.modulus
inner = [SIZED(b'I', (i * M + 1).to_bytes(9, 'little')) for i in range(6)]
for _ in range(4):
    inner = [SIZED(b'z', b''.join(inner[:i] + inner[i + 1:]), len(inner) - 1)
             for i in range(len(inner))]
FORGE(VALUE(SIZED(b'S', b''.join(inner), len(inner))))
""",
        "slow",
    ),
    (
        "frozensets of one hash, built",
        "crash value output",
        """
M = sys.hash_info.modulus
x = [frozenset([i * M]) for i in range(1, 60)]
for _ in range(12): x = [frozenset([a, b]) for a, b in zip(x, x[1:])]
result = set(x) and 'nothing'
""",
        "slow",
    ),
    (
        "half characters in a message",
        "exception",
        "raise ValueError('\\ud800' * 10 + chr(0x1b) + '[2J')",
    ),
    ("half characters in an error's name", "exception", "raise type('E\\udfff', (Exception,), {})"),
    ("half characters in a value", "value", "x = '\\ud800'\nresult = 'nothing'"),
    ("half characters in errors", "value", "sys.stderr.write('\\udcff')\nresult = 'nothing'"),
    (
        "bytes that are no text",
        "value",
        "os.write(1, b'\\xff\\xfe\\xed\\xa0\\x80')\nresult = 'nothing'",
    ),
]

_WORKER = [
    (
        "numpy of its own where the worker looks",
        "value",
        """
for path in [*sys.path, '.', '/tmp']:
    for name in ('numpy', 'json', 'encodings'):
        try:
            os.makedirs(os.path.join(path, name), exist_ok=True)
            open(os.path.join(path, name, '__init__.py'), 'w').write('raise SystemExit')
        except OSError: pass
result = 'nothing'
""",
    ),
    (
        "descriptors of its parent",
        "value",
        """
found = []
for pid in (os.getppid(), 1, HOST):
    names = ['mem', 'environ', 'maps', 'root', 'cwd', 'exe', 'auxv']
    for name in names + [f'fd/{n}' for n in range(70)]:
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_NONBLOCK):
            try: os.close(os.open(f'/proc/{pid}/{name}', flags)); found.append((pid, name, flags))
            except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "descriptors that are left",
        "value",
        """
found = []
for number in range(3, 2000):
    try: os.fstat(number); found.append(number)
    except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "its folder closed",
        "value forbidden",
        "os.chmod('.', 0)\nresult = 'nothing'",
    ),
    (
        "its folder replaced by a link",
        "value exception forbidden",
        """
here = os.getcwd()
for target in (SECRETS[0], '/', os.path.dirname(SECRETS[0])):
    try:
        os.rename(here, here + '-old'); os.symlink(target, here)
    except OSError: pass
    try: os.rmdir(here); os.symlink(target, here)
    except OSError: pass
result = 'nothing'
""",
    ),
    (
        "closed folders in closed folders",
        "value exception forbidden",
        """
for i in range(30):
    os.mkdir('d', 0o700); open('d/f', 'w').close(); os.chdir('d')
for i in range(30):
    try: os.chmod('.', 0)
    except OSError: pass
    try: os.chdir('..')
    except OSError: break
result = 'nothing'
""",
    ),
    (
        "folders that are made closed",
        "value exception forbidden",
        "for i in range(50): os.mkdir(str(i), 0)\nresult = 'nothing'",
    ),
    (
        "attributes of its folder",
        "value",
        """
for call in (lambda: os.setxattr('.', 'user.x', b'mark'), lambda: os.utime('.', (1, 1)),
             lambda: os.chmod('.', 0o777)):
    try: call()
    except OSError: pass
result = 'nothing'
""",
    ),
    (
        "what is kept between programs",
        "value",
        """
import tempfile
places = {os.environ.get('HOME', '.'), os.environ.get('TMPDIR', '.'), '.', '..', '/tmp', '/var/tmp',
          '/dev/shm', tempfile.gettempdir()}
found = []
for place in places:
    path = os.path.join(place, 'kept')
    if os.path.exists(path): found.append(path)
for place in places:
    try: open(os.path.join(place, 'kept'), 'w').write('x')
    except OSError: pass
result = found or 'nothing'
""",
        "twice",
    ),
    (
        "locks that others feel",
        "value",
        """
import fcntl
found = []
for path in (os.__file__, '/usr', '/dev/null', '/dev/zero', '/'):
    try: descriptor = os.open(path, os.O_RDWR if path.startswith('/dev') else os.O_RDONLY)
    except OSError: continue
    for call in (fcntl.flock, fcntl.lockf):
        try: call(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError: found.append(path)
        except OSError: pass
result = found or 'nothing'
""",
        "twice",
    ),
    (
        "flags of its standard input",
        "value",
        """
import fcntl
before = fcntl.fcntl(0, fcntl.F_GETFL)
fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
result = 'nothing' if not before & (os.O_NONBLOCK | os.O_APPEND) else before
""",
        "twice",
    ),
    (
        "standard input written",
        "value",
        "try: os.write(0, b'for the next'); os.ftruncate(0, 0)\nexcept OSError: pass\n"
        "result = 'nothing'",
        "twice",
    ),
]

_LIMITS = [
    (
        "threads without end, counted",
        "value exception memory forbidden",
        """
import threading, time
made = 0
try:
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except Exception: pass
result = made if made > (500 if WEAKER else 8) else 'nothing'
""",
    ),
    (
        "five processes of four",
        "value crash",
        """
import time
made, failed = 1, 0
for _ in range(40):
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
    except OSError: failed += 1
result = made if made > 4 else 'nothing'
""",
        "tools",
    ),
    (
        "processes and threads of four",
        "value crash",
        """
import threading, time
made = 1
for _ in range(12):
    try:
        if os.fork() == 0:
            try: threading.Thread(target=time.sleep, args=(30,)).start(); os.write(2, b't')
            except BaseException: pass
            time.sleep(30); os._exit(0)
        made += 1
    except OSError: pass
time.sleep(0.3)
result = made if made > 4 else 'nothing'
""",
        "tools",
    ),
    (
        "processes of processes",
        "value crash cpu timeout",
        """
import time
os.setsid()
for _ in range(10):
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
time.sleep(0.2)
result = 'nothing'
""",
        "tools",
    ),
    (
        "files that are open and removed",
        "output exception value forbidden",
        """
kept, total = [], 0
try:
    for i in range(50):
        f = open('x', 'wb'); kept.append(f); f.write(bytes(1 << 20)); f.flush()
        os.unlink('x'); total += 1
except OSError: pass
result = total if total > 1 and not WEAKER else 'nothing'
""",
    ),
    (
        "large pipes",
        "value exception",
        """
import fcntl
total = 0
try:
    while True:
        _, write = os.pipe(); os.set_blocking(write, False)
        try: fcntl.fcntl(write, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: total += os.write(write, bytes(1 << 16))
        except BlockingIOError: pass
except OSError: pass
result = total if total > 8 << 20 else 'nothing'
""",
    ),
    (
        "memory of files without a name",
        "value memory exception output forbidden",
        """
import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
found = 'nothing' if call(319, b'x', 0) < 0 else 'memfd'
try:
    descriptor = os.open('.', os.O_TMPFILE | os.O_RDWR)
    for _ in range(200): os.write(descriptor, bytes(1 << 20))
    found = 'a large file'
except OSError: pass
result = found
""",
    ),
]

_SOCKETS = [
    (
        f"pairs of {name}",
        "value",
        f"""
import socket
found = []
for kind in (1, 2, 3, 4, 5, 6, 10):
    if ({family}, kind) == (1, 1): continue
    try: found.append([s.family for s in socket.socketpair({family}, kind)])
    except (OSError, ValueError): pass
    try: found.append(socket.socket({family}, kind).fileno())
    except (OSError, ValueError): pass
result = found or 'nothing'
""",
    )
    for name, family in (
        *(("UNIX", 1), ("INET", 2), ("INET6", 10), ("NETLINK", 16), ("PACKET", 17)),
        *(("BLUETOOTH", 31), ("ALG", 38), ("VSOCK", 40), ("XDP", 44)),
    )
] + [
    (
        "datagrams to a named socket",
        "value",
        """
import socket
found = []
pair = socket.socketpair()
for path in (SERVICE, '\\0turnwise-test'):
    for call in (lambda: pair[0].sendto(b'x', path), lambda: pair[0].connect(path),
                 lambda: pair[0].sendmsg([b'x'], [], 0, path), lambda: pair[0].bind('here')):
        try: call(); found.append(path)
        except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "descriptors sent to itself",
        "value",
        """
import array, socket
left, right = socket.socketpair()
try:
    for _ in range(2000):
        left.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 50))])
    result = 'sent'
except OSError: result = 'nothing'
""",
    ),
]

READERS = [
    *((f"record: {name}", "crash", program) for name, program in _FORGED),
    *_SHEETS,
    *_WORKER,
    *_LIMITS,
    *_SOCKETS,
]
