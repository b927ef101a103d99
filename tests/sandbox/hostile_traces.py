"""Programs that leave traces, hide what they use, or are honest where a filter is narrow.

Entries are those of `hostile`. The honest ones return what failed.
"""

_MAPPED = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def MAPPED(size, flags, descriptor=-1):
    found = libc.mmap(None, size, 3, flags, descriptor, 0)
    return None if found in (None, 2**64 - 1) else found
"""

TRACES = [
    (
        "end that never comes",
        "cpu",
        """
import atexit
def again():
    while True: pass
atexit.register(again)
""",
    ),
    ("end of its process at its end", "crash", "import atexit, os\natexit.register(os._exit, 0)"),
    (
        "end that begins again",
        "value",
        """
import atexit, os, threading
def again():
    threading._shutdown = lambda: 1 / 0
    atexit.register(lambda: 1 / 0)
    raise SystemExit
atexit.register(again)
threading.Thread(target=again, daemon=True).start()
result = 'nothing' if threading.active_count() else 0
import time; time.sleep(0.05)
""",
    ),
    (
        "folders that resist removal, many",
        "value output",
        """
import os
for i in range(900): os.mkdir(f'secret-{i}', 0o500)
result = 'nothing'
""",
        "twice",
    ),
    (
        "folders that resist removal, of all modes",
        "value output",
        """
import os
for mode in (0o700, 0o500, 0o300, 0o100, 0o200, 0o400, 0):
    os.makedirs(f'a{mode}/b/c'); open(f'a{mode}/b/c/x', 'w').write('x')
    os.symlink('/usr', f'a{mode}/b/link'); os.mkdir(f'e{mode}', mode); os.mkdir(f'a{mode}/e', mode)
    for path in ('b/c', 'b', ''):
        try: os.chmod(f'a{mode}/{path}', mode)
        except OSError: pass
result = 'nothing'
""",
        "twice",
    ),
    (
        "folders of later programs, made first",
        "value",
        """
import os
found = []
for i in range(50):
    try: os.mkdir(f'../{i}')
    except OSError: continue
if os.getcwd() not in ('/tmp', '/scratch'):
    try: found = [name for name in os.listdir('..') if len(name) < 32 and not WEAKER]
    except OSError: pass
result = found or 'nothing'
""",
        "twice",
    ),
    (
        "times of devices",
        "value",
        """
import os
found = []
for path in ('/dev/null', '/dev/full', '/dev/urandom', '/dev/random', '/dev/zero', '/', '/dev'):
    for given in (path, lambda: os.open(path, os.O_RDWR), lambda: 0):
        try:
            os.utime(given if given is path else given())
            found.append(path)
        except OSError: pass
for path in ('/dev/null', '/dev/full', '/dev/urandom'):
    before = os.stat(path)
    with open(path, 'rb') as device: device.read(8)
    try:
        with open(path, 'wb') as device: device.write(b'x')
    except OSError: pass
    after = os.stat(path)
    if (before.st_mtime_ns, before.st_atime_ns) != (after.st_mtime_ns, after.st_atime_ns):
        found.append('used: ' + path)
result = found or 'nothing'
""",
    ),
    (
        "shared memory, all but a page of it unmapped",
        "value",
        _MAPPED
        + """
total = 0
for _ in range(20):
    for flags, path in ((0x21, ''), (0x23, ''), (0x01, '/dev/zero')):
        try: descriptor = os.open(path, os.O_RDWR) if path else -1
        except OSError: continue
        place = MAPPED(8 << 20, flags, descriptor)
        if place:
            ctypes.memset(place, 1, 8 << 20); total += 8
            libc.munmap(place + 4096, (8 << 20) - 4096)
result = total or 'nothing'
""",
    ),
    (
        "stacks that grow",
        "value",
        _MAPPED + "result = 'a stack' if MAPPED(4096, 0x122) else 'nothing'",
    ),
    (
        "files without a name, slowly",
        "value output exception",
        """
import os, time
kept, total = [], 0
try:
    for _ in range(20):
        kept.append(os.open('.', os.O_TMPFILE | os.O_RDWR))
        total += os.write(kept[-1], bytes(1 << 20))
        time.sleep(0.01)
except OSError: pass
result = total if total > 1 << 20 else 'nothing'
""",
    ),
    (
        "room beyond the end of files",
        "value",
        _MAPPED
        + """
taken = 0
for keep in (1, 3, 0x11, 0x41):
    for _ in range(4):
        descriptor = os.open('x', os.O_CREAT | os.O_RDWR)
        os.unlink('x')
        libc.fallocate(descriptor, keep, ctypes.c_long(0), ctypes.c_long(8 << 20))
        taken += os.fstat(descriptor).st_blocks * 512
result = taken if taken > 1 << 20 else 'nothing'
""",
    ),
    (
        "hints and leases on files of the host",
        "value",
        """
import fcntl, os
found = []
descriptor = os.open(os.__file__, os.O_RDONLY)
for command in (8, 10, 15, 1024, 1026, 1031, 1036, 1038):
    try: found.append((command, fcntl.fcntl(descriptor, command, bytes(8))))
    except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "disks made to write",
        "value",
        """
import os
found = []
for call in (os.fsync, os.fdatasync):
    try: call(os.pipe()[0])  # the kernel refuses that, when it is asked
    except OSError: found.append(call.__name__)
result = found or 'nothing'
""",
    ),
]

HONEST = [
    (
        "honest: room for a file, and files opened anew",
        "value",
        """
import os
with open('x', 'w+b') as file: os.posix_fallocate(file.fileno(), 0, 4096)
size = os.stat('x').st_size
for mode in ('w', 'w+', 'a', 'r+'): open('x', mode).close()
result = 'nothing' if (size, os.stat('x').st_size) == (4096, 0) else size
""",
    ),
    (
        "honest: maps of files and memory",
        "value",
        """
import mmap
failed = []
with open('x', 'w+b') as file:
    file.write(bytes(8192)); file.flush()
    with mmap.mmap(file.fileno(), 0) as shared: shared[:3] = b'abc'
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as shared:
        if shared[:3] != b'abc': failed.append('a file')
for given in ({}, {'access': mmap.ACCESS_WRITE}, {'access': mmap.ACCESS_COPY},
              {'flags': mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}, {'prot': mmap.PROT_WRITE | 1}):
    with mmap.mmap(-1, 8192, **given) as memory:
        memory.write(b'abc'); memory.seek(0)
        if memory.read(3) != b'abc' or len(memory) != 8192: failed.append(given)
result = failed or 'nothing'
""",
    ),
    (
        "honest: temporary and synchronised files",
        "value",
        """
import os, tempfile
with tempfile.TemporaryFile() as file:
    file.write(b'x'); file.flush(); os.fsync(file.fileno())
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, 'x'), 'w').close()
result = 'nothing'
""",
    ),
    (
        "honest: copies with their times",
        "value",
        """
import os, shutil
open('x', 'w').write('abc'); os.utime('x', (1, 2)); shutil.copy2('x', 'y')
result = 'nothing' if os.stat('y').st_mtime == 2 else os.stat('y')
""",
    ),
]
