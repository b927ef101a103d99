"""Programs that mean harm, or go wrong as badly as they can, and what is to become of each.

An entry is (name, how it may end, program, limits). "value" means that it ends well, and that its
value is `SAFE`: such programs return what they got hold of, if anything.
"""

SAFE = "nothing"

LOOPS = [
    ("endless loop", "cpu", "while True: pass"),
    ("endless iteration in C", "cpu", "for _ in iter(int, 1): pass"),
    ("sum that never ends", "cpu", "sum(range(10**13))"),
    ("regular expression that explodes", "cpu", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"),
    (
        "loop that catches everything",
        "cpu",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    (
        "loop deaf to signals",
        "cpu",
        """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
    ),
    (
        "loops in all threads",
        "cpu",
        """
import threading
def spin():
    while True: pass
for _ in range(4): threading.Thread(target=spin).start()
spin()
""",
    ),
    ("power that never ends", "cpu memory", "x = 9**9**9**9"),
    ("sleep", "timeout", "import time\ntime.sleep(1e6)"),
    ("deadlock", "timeout", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()"),
    ("wait for a pipe of its own", "timeout", "import os\nos.read(os.pipe()[0], 1)"),
    ("wait for input", "exception", "input()"),
    ("pause", "timeout", "import signal\nsignal.pause()"),
    (
        "count of steps taken away",
        "cpu",
        "import sys\nsys.settrace(None)\nwhile True: pass",
        "steps",
    ),
    (
        "count of steps caught",
        "cpu",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "steps",
    ),
    (
        "count of steps replaced in the frame",
        "cpu",
        """
import sys
frame = sys._getframe()
while frame: frame.f_trace = None; frame = frame.f_back
sys.setprofile(None); sys.settrace(lambda *a: None)
while True: pass
""",
        "steps",
    ),
]

MEMORY = [
    ("list without end", "memory", "x = []\nwhile True: x.append(' ' * 10**6)"),
    ("one huge list", "memory", "x = [0] * 10**11"),
    ("bytes", "memory", "x = bytes(10**12)"),
    ("text that doubles", "memory", "x = 'x'\nwhile True: x += x"),
    ("map without a file", "memory", "import mmap\nm = mmap.mmap(-1, 10**11)"),
    ("list of an endless count", "memory cpu", "import itertools\nlist(itertools.count())"),
    (
        "memory that catches its error",
        "memory cpu",
        """
x = []
while True:
    try: x.append(bytearray(10**6))
    except MemoryError: pass
""",
    ),
    (
        "threads with stacks",
        "exception memory",
        """
import threading, time
while True: threading.Thread(target=time.sleep, args=(100,)).start()
""",
    ),
]

PROCESSES = [
    ("fork bomb", "forbidden", "import os\nwhile True: os.fork()"),
    (
        "stubborn fork bomb",
        "cpu",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    ),
    (
        "fork bomb with leave",
        "cpu timeout crash",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "tools",
    ),
    ("another program", "forbidden", "import subprocess\nsubprocess.run(['true'])"),
    ("shell", "value", "import os\nresult = 'nothing' if os.system('true') else 'a shell'"),
    (
        "multiprocessing",
        "forbidden",
        "import multiprocessing as m\nm.Process(target=print).start()",
    ),
    ("become another program", "forbidden", "import os\nos.execv('/bin/sh', ['sh'])"),
    (
        "daemon that outlives the call",
        "value",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
result = 'nothing'
""",
        "tools",
    ),
    (
        "thread that outlives the call",
        "value",
        """
import threading
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
result = 'nothing'
""",
    ),
    ("its own end", "crash", "import os\nos._exit(0)"),
    ("its own end, badly", "crash", "import os\nos.abort()"),
    ("exit", "exception", "import sys\nsys.exit(3)"),
    ("kill itself", "crash", "import os\nos.kill(os.getpid(), 9)"),
    ("stop itself", "timeout", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    ("kill its parent", "forbidden", "import os\nos.kill(os.getppid(), 9)"),
    ("kill the first process", "forbidden", "import os\nos.kill(1, 9)"),
    ("kill everything", "forbidden", "import os\nos.kill(-1, 9)"),
    ("kill its group", "forbidden", "import os\nos.killpg(0, 9)"),
    ("kill the library", "forbidden", "import os\nos.kill(HOST, 9)"),
    (
        "kill with leave",
        "value crash",
        """
import os, signal
for pid in (os.getppid(), 1, HOST):
    for number in (2, 15, 9, 19):
        try: os.kill(pid, number)
        except OSError: pass
result = 'nothing'
""",
        "tools",
    ),
]

SYSTEM = [
    (
        "signals by the owner of a pipe",
        "forbidden",
        """
import fcntl
read, write = os.pipe()
fcntl.fcntl(read, fcntl.F_SETOWN, HOST)
""",
    ),
    (
        "signals by the owner of a pipe, of its own choice",
        "forbidden",
        """
import fcntl
read, write = os.pipe()
fcntl.fcntl(read, 10, 9)
""",
    ),
    ("null pointer", "crash", "import ctypes\nctypes.string_at(0)"),
    ("trace its parent", "forbidden", "CALL(101, 16, os.getppid(), 0, 0)"),
    ("read its parent's memory", "forbidden", "CALL(310, os.getppid(), 0, 0, 0, 0, 0)"),
    ("write its parent's memory", "forbidden", "CALL(311, os.getppid(), 0, 0, 0, 0, 0)"),
    ("mount", "forbidden", "CALL(165, b'x', b'/', b'tmpfs', 0, 0)"),
    ("unmount", "forbidden", "CALL(166, b'/tmp', 2)"),
    ("leave its namespaces", "forbidden", "CALL(272, 0x10000000)"),
    ("enter others", "forbidden", "CALL(308, 0, 0)"),
    ("change its root", "forbidden", "CALL(161, b'/')"),
    ("make a device", "forbidden", "CALL(133, b'/tmp/d', 0o60666, 0x0801)"),
    ("open by handle", "forbidden", "CALL(304, 0, 0, 0)"),
    ("load into the kernel", "forbidden", "CALL(321, 0, 0, 0)"),
    ("keys of the kernel", "forbidden", "CALL(250, 0, 0, 0, 0, 0)"),
    ("queues of the kernel", "forbidden", "CALL(425, 8, 0)"),
    ("loosen its filter", "forbidden", "CALL(317, 1, 0, 0)"),
    ("clone with namespaces", "forbidden", "CALL(56, 0x10000011, 0, 0, 0, 0)"),
    ("calls of another interface", "forbidden", "CALL(0x40000000 + 39)"),
    ("fork below Python", "value", "result = 'nothing' if CALL(57) == -1 else 'a child'"),
    ("file in memory", "value", "result = 'nothing' if CALL(319, b'x', 0) == -1 else 'a file'"),
    (
        "system below Python",
        "value",
        "ctypes.CDLL(None).system(b'touch /tmp/hostile-x')\nresult = SEEN('/tmp/hostile-x')",
    ),
    ("become root", "value", "result = 'nothing' if CALL(105, 0) == -1 else 'root'"),
    (
        "raise its limits",
        "forbidden exception",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ),
    (
        "raise its limits below Python",
        "value",
        "more = (ctypes.c_ulong * 2)(-1, -1)\n"
        "result = 'nothing' if CALL(302, 0, 9, more, 0) == -1 else 'raised'",
    ),
]

FILES = [
    (
        "cut a secret short",
        "exception forbidden",
        "import os\nos.truncate(SECRETS[0], 0)",
    ),
    (
        "folders in folders without end",
        "output cpu exception value",
        """
import os
for i in range(5000):
    os.mkdir("x"); os.chdir("x")
    open("y", "w").write("y")
result = "nothing"
""",
    ),
    (
        "read secrets",
        "value",
        """
import os
found = []
for path in SECRETS + ['/etc/shadow', '/etc/passwd', '/proc/self/environ', '/proc/1/environ',
        '/proc/self/mem', '/sys/kernel/notes', '/dev/mem', '/dev/kmem', '/dev/vda', '/dev/sda',
        '/run/docker.sock', '/var/run/docker.sock', os.path.expanduser('~/.ssh/id_rsa')]:
    try: found.append((path, open(path, 'rb').read(20)))
    except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "list folders",
        "value",
        """
import os
found = []
for path in ['/proc', '/sys', '/home', '/root/.ssh', '/var', '/run', '/boot', REPOSITORY]:
    try: found += [n for n in os.listdir(path) if not OWN.startswith(os.path.join(path, n))]
    except OSError: pass
result = found or 'nothing'
""",
    ),
    (
        "write everywhere",
        "value",
        """
import os
wrote, scratch = [], os.getcwd()
for place, folders, names in os.walk('/'):
    if place.startswith((scratch, '/dev')): continue
    folders[:] = folders[:20]
    for path in [os.path.join(place, 'new'), *(os.path.join(place, n) for n in names[:2])]:
        try: open(path, 'ab').close(); wrote.append(path)
        except OSError: pass
    if len(place) > 60: folders.clear()
result = wrote or 'nothing'
""",
        "slow",
    ),
    ("write over a secret", "exception forbidden", "open(SECRETS[0], 'w').write('mine')"),
    (
        "remove everything",
        "value",
        "import shutil\nshutil.rmtree('/', ignore_errors=True)\nresult = 'nothing'",
        "slow",
    ),
    (
        "link to a secret",
        "exception forbidden",
        "import os\nos.symlink(SECRETS[0], 'x')\nopen('x').read()",
    ),
    ("hard link", "exception forbidden", "import os\nos.link(SECRETS[0], 'x')"),
    (
        "link left behind",
        "value",
        "import os\nos.symlink('/', 'root')\nos.symlink(SECRETS[0], 'x')\nresult = 'nothing'",
    ),
    (
        "files left behind",
        "value",
        """
import os, tempfile
open('left', 'w').write('x'); os.mkdir('folder'); open('folder/y', 'w').write('y')
os.chmod('folder', 0); tempfile.mkdtemp(); tempfile.NamedTemporaryFile(delete=False)
result = 'nothing'
""",
    ),
    ("file without end", "output", "f = open('big', 'wb')\nwhile True: f.write(bytes(10**6))"),
    ("file of holes", "output", "open('big', 'wb').truncate(10**12)"),
    (
        "files without end",
        "output cpu",
        "i = 0\nwhile True: open(str(i), 'w').write('x' * 9999); i += 1",
    ),
    ("descriptors without end", "exception", "import os\nwhile True: os.pipe()"),
    ("random numbers without end", "cpu memory", "open('/dev/urandom', 'rb').read()"),
    ("zeros without end", "cpu memory exception", "open('/dev/zero', 'rb').read()"),
    ("full device", "output", "open('/dev/full', 'w').write('x' * 99999)"),
]

NETWORK = [
    (
        "environment",
        "value",
        "import os\nresult = [v for v in os.environ.values() if TOKEN in v] or 'nothing'",
    ),
    ("socket", "forbidden", "import socket\nsocket.create_connection(('127.0.0.1', PORT))"),
    ("socket of UNIX", "forbidden", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0x')"),
    ("raw socket", "forbidden", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("netlink", "forbidden", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    (
        "names of machines",
        "exception forbidden",
        "import socket\nsocket.gethostbyname('example.org')",
    ),
    (
        "web page",
        "exception forbidden",
        "import urllib.request as u\nu.urlopen('http://127.0.0.1')",
    ),
    (
        "name of this machine",
        "value",
        "import os\nresult = 'nothing' if os.uname().nodename != MACHINE else MACHINE",
    ),
]

OUTPUT = [
    (
        "output that does not wait",
        "value exception",
        "import os\nos.set_blocking(1, False)\nos.set_blocking(2, False)\nresult = 'nothing'",
    ),
    ("print without end", "output", "while True: print('x' * 1000)"),
    ("errors without end", "output", "import sys\nwhile True: sys.stderr.write('x' * 1000)"),
    ("one huge print", "output", "print('x' * 10**7)"),
    ("binary output", "value", "import os\nos.write(1, bytes(range(256)))\nresult = 'nothing'"),
    ("half a character", "value", "print('\\ud800')\nresult = 'nothing'"),
    ("huge text", "output", "result = 'x' * 10**7"),
    ("huge list", "output", "result = [0] * 10**7"),
    ("huge number", "output", "result = 1 << 10**8"),
    ("list that holds itself", "exception", "result = []\nresult.append(result)"),
    (
        "lists that double",
        "output",
        "result = ['x']\nfor _ in range(50): result = [result, result]",
    ),
    ("dict that holds itself", "exception", "result = {}\nresult[0] = result"),
    ("iterator without end", "exception", "import itertools\nresult = itertools.count()"),
    ("closed output", "exception", "import sys\nsys.stdout.close()\nprint('x')"),
    ("all closed", "value", "import os\nos.closerange(0, 999)\nresult = 'nothing'"),
    ("output replaced", "value", "import sys\nsys.stdout = sys.stderr = None\nresult = 'nothing'"),
]

OBJECTS = [
    (
        "keys of one hash",
        "crash",
        "import sys\nresult = {i * sys.hash_info.modulus for i in range(1, 2000)}",
    ),
    (
        "keys of one hash, nested",
        "crash",
        "import sys\nresult = {((i * sys.hash_info.modulus,),): i for i in range(1, 800)}",
    ),
    ("object", "exception", "result = object()"),
    (
        "pickle",
        "value",
        "import pickle, os\nclass P:\n    def __reduce__(self): return os.system, ('true',)\n"
        "result = 'nothing' if pickle.dumps(P()) else 0",
    ),
    (
        "object with a reduce",
        "exception",
        "class P:\n    def __reduce__(self): return print, ('escaped',)\nresult = P()",
    ),
    (
        "equal to everything",
        "exception",
        "class E:\n    def __eq__(self, o): return True\nresult = E()",
    ),
    (
        "number equal to everything",
        "exception",
        "class E(int):\n    def __eq__(self, o): return True\nresult = E(3)",
    ),
    (
        "text equal to everything",
        "exception",
        "class E(str):\n    def __eq__(self, o): return True\nresult = E('x')",
    ),
    (
        "dict of its own",
        "exception",
        "class D(dict):\n    def items(self): return 1 / 0\nresult = D()",
    ),
    ("lies about its class", "exception", "class L:\n    __class__ = int\nresult = L()"),
    (
        "hostile repr",
        "exception",
        "class R:\n    def __repr__(self): raise SystemExit\nresult = R()",
    ),
    (
        "exception that cannot be told",
        "exception",
        "class X(Exception):\n    def __str__(self): raise self\nraise X",
    ),
    (
        "exception that tells for ever",
        "cpu",
        "class X(Exception):\n    def __str__(self):\n        while True: pass\nraise X",
    ),
    ("exception without end", "exception", "raise Exception('x' * 10**7)"),
    ("exception that is none", "exception", "raise BaseException('x')"),
    ("exit that cannot be stopped", "exception", "raise SystemExit('x')"),
    ("interrupt", "exception", "raise KeyboardInterrupt"),
    ("generator's exit", "exception", "raise GeneratorExit"),
    (
        "deletion that loops",
        "value cpu",
        "class D:\n    def __del__(self):\n        while True: pass\nd = D()\nresult = 'nothing'",
    ),
    ("deep recursion", "exception", "def f(): f()\nf()"),
    (
        "deeper recursion",
        "crash memory exception cpu",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    ),
    (
        "deep recursion in C",
        "crash exception memory cpu",
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
    ),
    ("nested source", "syntax", "(" * 5000 + ")" * 5000),
    ("nested source without brackets", "syntax crash", "x = " + "-" * 200_000 + "1"),
    ("no program", "syntax", "Here is the program you asked for:"),
    ("null in the source", "syntax", "x = 1\0"),
    ("half a character in the source", "syntax", "x = '\ud800'"),
    ("digits without end", "exception", "str(10**10000)"),
    ("modules emptied", "value", "import sys\nsys.modules.clear()\nresult = 'nothing'"),
    (
        "builtins emptied",
        "value crash exception",
        "import builtins\nvars(builtins).clear()\nresult = 'nothing'",
    ),
    (
        "builtins replaced",
        "value exception crash",
        """
import builtins, json
for name in ('len', 'isinstance', 'type', 'repr', 'str'):
    setattr(builtins, name, lambda *a, **k: 42)
json.dumps = lambda *a, **k: '[\\"value\\",42]'
result = 'nothing'
""",
    ),
    (
        "exit replaced",
        "value crash timeout cpu",
        "import os\nos._exit = lambda code: None\nresult = 'nothing'",
    ),
]

CHANNELS = [
    ("answer printed", "value", "print('[\"value\",42]')\nresult = 'nothing'"),
    (
        "answer on every descriptor",
        "value",
        """
import os
for fd in range(1024):
    try: os.write(fd, b'\\x02\\0\\0\\0{}["value",42]')
    except OSError: pass
result = 'nothing'
""",
    ),
    (
        "garbage in all shared memory",
        "crash value",
        """
import gc, mmap, os
for frame in [*__import__('sys')._current_frames().values()]:
    while frame:
        for value in [*frame.f_locals.values()]:
            for inner in [value, *vars(value).values()] if hasattr(value, '__dict__') else [value]:
                if isinstance(inner, mmap.mmap):
                    inner[:] = b'\\xff' * len(inner)
        frame = frame.f_back
os._exit(0)
""",
    ),
    (
        "record of a failed sandbox",
        "crash",
        """
import gc, mmap, os, struct
said = b'["failed","infrastructure","retry me",0]'
for thing in gc.get_objects():
    if type(thing).__name__ == 'RecordMemory':
        thing.leave(said)
os._exit(0)
""",
    ),
    (
        "record that is no record",
        "crash",
        """
import gc, os
for thing in gc.get_objects():
    if type(thing).__name__ == 'RecordMemory':
        thing.leave(b'["value",' + b'[' * 9999)
os._exit(0)
""",
    ),
    (
        "record of code",
        "crash",
        """
import gc, os
for thing in gc.get_objects():
    if type(thing).__name__ == 'RecordMemory':
        thing.leave(b'["value",{"a":["|O8",[1],"AAAAAAAAAAA="]}]')
os._exit(0)
""",
    ),
    (
        "its limits in its frames",
        "output crash",
        """
import sys
frame = sys._getframe()
while frame:
    wire = frame.f_globals.get('wire')
    if wire:
        wire.dump = lambda value, most, dump=wire.dump: dump(value, 10**9)
    for thing in [*frame.f_locals.values()]:
        if hasattr(thing, 'steps') and hasattr(thing, 'stdin'):
            object.__setattr__(thing, 'steps', 0)
    frame = frame.f_back
result = 'x' * 10**7
""",
    ),
    (
        "the checker's secrets",
        "value",
        """
import gc, sys
seen, todo = set(), [sys._getframe(), *gc.get_objects(), sys.modules]
found = 'nothing'
while todo:
    thing = todo.pop()
    if id(thing) in seen: continue
    seen.add(id(thing))
    if isinstance(thing, str) and thing.startswith(PREFIX) and thing != PREFIX: found = thing
    todo += gc.get_referents(thing)
result = found
""",
        "slow",
    ),
    ("audit hook", "value", "import sys\nsys.addaudithook(lambda *a: None)\nresult = 'nothing'"),
    (
        "profiler left on",
        "value",
        "import sys\nsys.setprofile(lambda *a: None)\nresult = 'nothing'",
    ),
    (
        "alarm left on",
        "value crash",
        "import signal\nsignal.setitimer(signal.ITIMER_PROF, .001)\nresult = 'nothing'",
    ),
    ("not a number", "value", "x = float('nan')\nresult = 'nothing' if x != x else x"),
]

CORPUS = [*LOOPS, *MEMORY, *PROCESSES, *SYSTEM, *FILES, *NETWORK, *OUTPUT, *OBJECTS, *CHANNELS]
