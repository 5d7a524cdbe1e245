//! Out of `run --isolate`: each way of SECURITY.md's list is tried, by root and by a user, in one script, which says what it got.

use crate::support::binary::open;
use crate::support::{Origin, at_once, eventually, within};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

/// Prints a line for each way out that is open.
const ATTACKS: &str = r#"
import ctypes, os, socket, struct, subprocess, fcntl, sys
outer, port, abstract, home, segment = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
libc = ctypes.CDLL(None, use_errno=True)

def way(name):
    def tried(attempt):
        try:
            if attempt() is not False:
                print('open:', name)
        except (OSError, subprocess.CalledProcessError):
            pass
    return tried

def connects(address=('127.0.0.1', port)):
    socket.create_connection(address, 2).close()

@way('loopback of the machine')
def _(): connects()

@way('another address')
def _(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))

def enters(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        if os.stat(path).st_ino == os.stat('/proc/self/ns/net').st_ino:
            return False
        if libc.setns(fd, 0):
            raise OSError(ctypes.get_errno())
        connects()
    finally:
        os.close(fd)

for pid in {'1', str(os.getppid()), str(outer)}:
    way('network of ' + pid)(lambda: enters(f'/proc/{pid}/ns/net'))
for number in range(3, 1000):
    way(f'inherited descriptor {number}')(lambda: enters(f'/proc/self/fd/{number}'))
    def writes():
        socket.socket(fileno=os.dup(number)).send(b'x')
    way(f'inherited socket {number}')(writes)
    way(f'/proc of outside below the inherited directory {number}')(lambda: os.stat(f'proc/{outer}', dir_fd=number))

way('nsenter')(lambda: subprocess.run(['nsenter', f'--net=/proc/{os.getppid()}/ns/net', 'true'], check=True, capture_output=True)
               and os.stat(f'/proc/{os.getppid()}/ns/net').st_ino != os.stat('/proc/self/ns/net').st_ino)

@way('another process in sight')
def _(): return any(p.isdigit() and b'\0run\0' in open(f'/proc/{p}/cmdline', 'rb').read() for p in os.listdir('/proc'))

@way('signal to a process outside')
def _(): os.kill(outer, 0)

@way('ptrace of a process outside')
def _():
    if libc.ptrace(16, outer, 0, 0):
        raise OSError(ctypes.get_errno())

@way('memory of a process outside')
def _(): open(f'/proc/{outer}/mem', 'rb')

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno())

# Process 1 watches over the command, as the same user.
@way('ptrace of process 1, attached')
def _():
    call(libc.ptrace(16, 1, None, None))
    os.waitpid(1, 0x40000000)
    libc.ptrace(17, 1, None, None)

@way('ptrace of process 1, seized')
def _():
    call(libc.ptrace(0x4206, 1, None, None))
    call(libc.ptrace(0x4207, 1, None, None))
    os.waitpid(1, 0x40000000)
    libc.ptrace(17, 1, None, None)

for mode in [os.O_RDONLY, os.O_RDWR]:
    way(f'memory of process 1 ({mode})')(lambda: os.close(os.open('/proc/1/mem', mode)))

@way('memory of process 1 by calls')
def _():
    byte = ctypes.create_string_buffer(1)
    own = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 1)
    for function in [libc.process_vm_readv, libc.process_vm_writev]:
        # Where it can be reached and nothing is at that address, the error is another.
        if function(1, own, 1, own, 1, 0) >= 0 or ctypes.get_errno() == 14:
            return True
    return False

@way('descriptor of process 1')
def _():
    process = os.pidfd_open(1)
    for number in range(10):
        if libc.syscall(438, process, number, 0) >= 0:
            return True
    return False

for number in range(20):
    way(f'descriptor {number} of process 1 by its path')(lambda: os.readlink(f'/proc/1/fd/{number}'))

@way('end of process 1')
def _():
    for signal in [9, 19, 20]:
        for target in [1, -1]:
            # By -1 it reaches all but process 1 and who sends it.
            os.kill(target, signal)
    return 'State:\tT' in open('/proc/1/status').read()

@way('kernel key of the caller')
def _():
    for keyring in [-3, -4, -5, int(sys.argv[6])]:
        if libc.syscall(250, 10, keyring, b'user', abstract.encode(), 0) >= 0:
            return True
    buffer = ctypes.create_string_buffer(10)
    return libc.syscall(250, 11, int(sys.argv[6]), buffer, 10) >= 0

@way('list of the keys of others')
def _(): call(libc.syscall(250, 0, -3, 1))

@way('key of its own')
def _(): call(libc.syscall(248, b'user', b'x', b'x', 1, -3))

@way('key that another program makes')
def _(): call(libc.syscall(249, b'user', abstract.encode(), None, -3))

@way('file system of process 1')
def _(): return os.readlink('/proc/1/ns/mnt') != os.readlink('/proc/self/ns/mnt')

@way('mount')
def _():
    if libc.mount(b'none', home.encode(), b'tmpfs', 0, None):
        raise OSError(ctypes.get_errno())

@way('unmount of /proc')
def _():
    if libc.umount2(b'/proc', 2):
        raise OSError(ctypes.get_errno())

@way('unshare of the network without a user namespace')
def _():
    if libc.unshare(0x40000000):
        raise OSError(ctypes.get_errno())

@way('a namespace of its own that leads out')
def _(): subprocess.run(['unshare', '-Urn', 'bash', '-c', f'echo > /dev/tcp/127.0.0.1/{port}'], check=True, capture_output=True)

@way('raw socket')
def _(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)

@way('packet socket')
def _(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)

@way('change of an interface')
def _(): fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, struct.pack('16sH14x', b'lo', 0))

@way('change of a route by netlink')
def _():
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    link.send(struct.pack('IHHIIiiHHiII', 32, 16, 5, 1, 0, 0, 1, 0, 0, 0, 0, 1)[:32])
    return struct.unpack('i', link.recv(100)[16:20])[0] == 0

@way('abstract Unix socket')
def _(): socket.socket(socket.AF_UNIX).connect('\0' + abstract)

@way('shared memory of System V')
def _():
    libc.shmat.restype = ctypes.c_ssize_t
    if libc.shmat(segment, None, 0) == -1:
        raise OSError(ctypes.get_errno())

@way('list of shared memory')
def _(): return len(open('/proc/sysvipc/shm').readlines()) > 1

@way('message queue of POSIX')
def _():
    if libc.mq_open(b'/' + abstract.encode(), os.O_RDWR) < 0:
        raise OSError(ctypes.get_errno())

@way('message queue by its file')
def _(): return len(os.listdir('/dev/mqueue')) > 0

@way('name of the machine')
def _():
    libc.sethostname(b'other', 5)
    return socket.gethostname() == 'other'

@way('place in the hierarchy of cgroups')
def _(): return any(line.rstrip().split(':', 2)[2] != '/' for line in open('/proc/self/cgroup'))

@way('socket of virtual machines')
def _(): socket.socket(40, socket.SOCK_STREAM)

@way('io_uring')
def _():
    if libc.syscall(425, 8, ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno())

@way('keys on the terminal')
def _():
    child = os.fork()
    if not child:
        os.setsid()
        _, terminal = os.openpty()
        fcntl.ioctl(terminal, 0x540E, 0)
        try:
            fcntl.ioctl(terminal, 0x5412, b'x')
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

@way('signal to the group of the caller')
def _():
    try:
        return bool(open('/dev/tty')) and False
    except OSError:
        pass
    status = open('/proc/self/stat').read().rsplit(')')[1].split()
    return status[2] == '0'

for path in ['/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/sys/fs/cgroup/cgroup.procs',
             '/sys/kernel/uevent_helper']:
    way('write to ' + path)(lambda: open(path, 'r+').close())

way('write in the directory that it began in')(lambda: os.close(os.open('core_pattern', os.O_RDWR)))
for number in range(3, 1000):
    way(f'write in the inherited directory {number}')(lambda: os.close(os.open('core_pattern', os.O_RDWR, dir_fd=number)))

@way('write to what is the whole system\'s')
def _():
    # What anybody may write there is nobody's setting.
    if os.geteuid():
        return False
    own = ('self', 'thread-self', 'mounts', 'net')
    tops = [f'/proc/{name}' for name in os.listdir('/proc') if not name.isdigit() and name not in own] + ['/sys']
    found = []
    for top in tops:
        for path in [top] + [f'{at}/{name}' for at, _, names in os.walk(top) for name in names]:
            try:
                if os.path.isfile(path) and not os.path.islink(path):
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    found.append(path)
            except OSError:
                pass
    print('\n'.join(f'open: {path}' for path in found), end='')
    return False

status = dict(line.split(':\t') for line in open('/proc/self/status').read().splitlines() if ':\t' in line)
for name in ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']:
    if int(status[name], 16):
        print('open:', name, status[name])
if status['NoNewPrivs'].strip() != '1':
    print('open: new privileges')
open(home + '/made', 'w').write('x')
os.mkdir(home + '/directory')
print('tried')
"#;

/// The script's output by this user, and what it has said beside; `None`: it cannot be had here. `before`: what is done first, in a
/// namespace of mounts.
async fn tried(user: Option<u32>, before: &str, home: &tempfile::TempDir) -> Option<(String, String)> {
    // A listener of the machine, one without a name in a directory, and descriptors that a caller may have left open.
    let site = Origin::site("").await;
    let port = site.authority("127.0.0.1").rsplit(':').next().expect("a port").to_owned();
    let name = format!("politely-test-{}-{port}", std::process::id());
    let _listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("it is free");
    let network = File::open("/proc/self/ns/net").expect("Linux");
    let system = File::open("/proc/sys/kernel").expect("Linux");
    let root = File::open("/").expect("it is readable");
    let connected = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    let inherited = [network.as_raw_fd(), connected.as_raw_fd(), system.as_raw_fd(), root.as_raw_fd()];
    // SAFETY: these take numbers, and a text that outlives the call; the segment and the queue go at the end.
    let (segment, queue, opened) = unsafe {
        let queue = CString::new(format!("/{name}")).expect("a name");
        // A user may have few of the size that is usual.
        let mut small: libc::mq_attr = std::mem::zeroed();
        (small.mq_maxmsg, small.mq_msgsize) = (1, 1);
        let flags = libc::O_CREAT | libc::O_RDWR;
        let opened = libc::mq_open(queue.as_ptr(), flags, 0o666 as libc::mode_t, &raw const small);
        assert!(opened >= 0 && libc::fchmod(opened, 0o666) == 0, "{}", std::io::Error::last_os_error());
        (libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o666), queue, opened)
    };
    let key = session_key(&name);
    let script = home.path().join("attacks.py");
    fs::write(&script, ATTACKS).expect("it is writable");
    let mut command = Command::new("bash");
    let become_user = user.map(|id| format!("setpriv --reuid={id} --regid={id} --clear-groups")).unwrap_or_default();
    let run = format!(
        "exec {become_user} bash -c 'exec {} run --isolate python3 \"$0\" $$ {port} {name} \"$1\" {segment} {key}' \"$0\" \"$1\"",
        env!("CARGO_BIN_EXE_politely")
    );
    if !before.is_empty() {
        let inner = format!("{before} && {run}");
        command = Command::new("unshare");
        command.args(["-m", "bash", "-c", &inner]);
    } else {
        command.args(["-c", &run]);
    }
    command.arg(&script).arg(home.path()).current_dir("/proc/sys/kernel");
    command
        .env("HOME", home.path())
        .env("XDG_CACHE_HOME", home.path())
        .env("STATE_DIRECTORY", home.path().join("state"));
    command.envs(open()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // Root's own Python may be in a directory that is closed to others.
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    let inherit = move || {
        for (number, at) in inherited.into_iter().zip(900..) {
            // SAFETY: `dup2` takes two integers, and may be called between fork and exec.
            if unsafe { libc::dup2(number, at) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(inherit) };
    let output = within("the attacks", command.output()).await.expect("bash");
    // SAFETY: as above.
    unsafe {
        libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
        libc::mq_close(opened);
        libc::mq_unlink(queue.as_ptr());
        libc::syscall(libc::SYS_keyctl, KEYCTL_INVALIDATE, key);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (got, said) = (text(&output.stdout), text(&output.stderr));
    let is_missing = ["cannot isolate", "Permission denied", "cannot run `python3`", "setpriv: "];
    if !got.contains("tried") && is_missing.iter().any(|why| said.contains(why)) {
        eprintln!("skipped: the attacks cannot be tried here: {said}");
        return None;
    }
    Some((got, said))
}

/// A key that the caller of `run` has, as a login's ticket; 0 where the kernel keeps none.
fn session_key(name: &str) -> i64 {
    let name = CString::new(name).expect("a name");
    // SAFETY: the calls read texts that outlive them, and numbers.
    unsafe {
        let key =
            libc::syscall(libc::SYS_add_key, c"user".as_ptr(), name.as_ptr(), c"secret".as_ptr(), 6, SESSION_KEYRING);
        if key < 0 {
            eprintln!("no key to be kept from the command: {}", std::io::Error::last_os_error());
            return 0;
        }
        assert_eq!(libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, key, 0x3f3f_0000), 0);
        key
    }
}

const SESSION_KEYRING: i32 = -3;
const KEYCTL_SETPERM: i32 = 5;
const KEYCTL_INVALIDATE: i32 = 21;

/// Files that the command creates belong to the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_command_cannot_escape() {
    let is_root = rustix_is_root();
    let users = if is_root { vec![None, Some(61_184)] } else { vec![None] };
    for user in users {
        let home = tempfile::tempdir().expect("a temporary directory");
        let id = user.unwrap_or_else(|| fs::metadata(home.path()).expect("it is there").uid());
        if user.is_some() {
            chown(home.path(), Some(id), Some(id)).expect("root may");
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        let Some((got, said)) = tried(user, "", &home).await else { continue };
        assert_eq!(got, "tried\n", "{user:?}: {said}");
        for made in ["made", "directory"] {
            let made = fs::metadata(home.path().join(made)).expect("it was made");
            assert_eq!(made.uid(), id, "{user:?}");
        }
    }
    if !is_root {
        eprintln!("skipped for other users: only root can become one");
    }
}

/// Leaves a detached process behind, and does to process 1 whatever may keep that from ending it.
const HOLDING_ON: &str = r#"
import ctypes, os, signal, subprocess, sys, time
for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]:
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(['sleep', '77'], start_new_session=True)
libc = ctypes.CDLL(None)
libc.ptrace({'attach': 16, 'seize': 0x4206}.get(sys.argv[1], 16), 1, None, None)
libc.ptrace(0x4207, 1, None, None)
for target in [1, -1]:
    try:
        os.kill(target, signal.SIGSTOP)
    except OSError:
        pass
# Writes without end to what process 1 says things by.
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b'x' * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print('ready', flush=True)
while True:
    time.sleep(1)
"#;

/// `run` ends if its supervisor is killed, and all processes end with `run`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_command_tracing_its_supervisor_still_ends_with_run() {
    let users = if rustix_is_root() { vec![None, Some("61184")] } else { vec![None] };
    let ways = ["attach", "seize"].map(|how| [libc::SIGTERM, libc::SIGKILL].map(|signal| (how, signal)));
    let cases =
        users.into_iter().flat_map(|user| ways.as_flattened().iter().map(move |(how, signal)| (user, *how, *signal)));
    at_once(cases.map(async |(user, how, signal)| {
        let Some(mut run) = isolated(user, &["/usr/bin/python3", "-c", HOLDING_ON, how]).await else { return };
        run.signal(signal);
        run.until_nothing_is_left(&format!("{user:?} {how} {signal}")).await;
    }))
    .await;
}

/// Models a supervisor that is stuck for any other reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_process_1_is_killed_with_run() {
    let Some(mut run) = isolated(None, &["sh", "-c", "setsid sleep 77 & echo ready; sleep 77"]).await else { return };
    let first = child_of(run.pid()).and_then(child_of).expect("process 1");
    // SAFETY: two numbers; it is a descendant of a child that is not waited for yet.
    assert_eq!(unsafe { libc::kill(first, libc::SIGSTOP) }, 0);
    run.signal(libc::SIGKILL);
    run.until_nothing_is_left("a stopped process 1").await;
}

/// A run whose command has said `ready`, with what it says beside unread. All that it starts holds its standard output.
struct Isolated {
    child: tokio::process::Child,
    output: BufReader<tokio::process::ChildStdout>,
    _home: tempfile::TempDir,
}

/// `None`: it cannot be had here.
async fn isolated(user: Option<&str>, script: &[&str]) -> Option<Isolated> {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new("env");
    if let Some(id) = user {
        let number = id.parse().expect("a number");
        chown(home.path(), Some(number), Some(number)).expect("root may");
        command = Command::new("setpriv");
        command.args([&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"]);
    }
    command.args([env!("CARGO_BIN_EXE_politely"), "run", "--isolate"]).args(script);
    command.env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()).env("STATE_DIRECTORY", home.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("it is built");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    within("the command", output.read_line(&mut line)).await.expect("text");
    if line != "ready\n" {
        let said = within("its end", child.wait_with_output()).await.expect("our child").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(["cannot isolate", "Permission denied", "cannot run"].iter().any(|why| said.contains(why)), "{said}");
        eprintln!("skipped: {said}");
        return None;
    }
    Some(Isolated { child, output, _home: home })
}

impl Isolated {
    fn pid(&self) -> i32 {
        self.child.id().expect("not waited for yet").cast_signed()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: two numbers; the child is not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    async fn until_nothing_is_left(&mut self, what: &str) {
        let pid = self.pid();
        eventually(what, || child_of(pid).is_none()).await;
        // `run` blocks at its end if nobody reads the summary.
        self.child.stderr.take();
        within(what, self.output.read_to_end(&mut Vec::new())).await.expect("a pipe");
        within(what, self.child.wait()).await.expect("our child");
    }
}

fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

/// In a container parts of /proc are masked, so that a namespace of users may not have one of its own.
const MASK: &str = "mount --bind /dev/null /proc/kallsyms";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_is_isolated_despite_a_masked_proc() {
    if !rustix_is_root() {
        return eprintln!("skipped: only root can mask it");
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let Some((got, said)) = tried(None, MASK, &home).await else { return };
    assert_eq!(got, "tried\n", "{said}");
}

/// Has the system refuse one call, if its first argument is this one, and becomes the command.
const REFUSING: &str = r#"
import ctypes, os, struct, sys
call, first, error = map(int, sys.argv[1:4])
step = lambda code, yes, no, k: struct.pack('HBBI', code, yes, no, k)
# Load the number; unless it is this, allow; load the argument; unless it is this, allow; refuse.
steps = [step(0x20, 0, 0, 0), step(0x15, 0, 3, call), step(0x20, 0, 0, 16), step(0x15, int(first < 0), 1, max(first, 0)),
         step(0x06, 0, 0, 0x50000 | error), step(0x06, 0, 0, 0x7fff0000)]
if first < 0:
    steps[2:4] = []
    steps[1] = step(0x15, 0, 1, call)
code = ctypes.create_string_buffer(b''.join(steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, ctypes.get_errno()
os.execvp(sys.argv[4], sys.argv[4:])
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_not_run_if_isolation_is_incomplete() {
    if !rustix_is_root() || cfg!(not(target_arch = "x86_64")) {
        return eprintln!("skipped: this takes root, and the numbers of x86-64");
    }
    let user = "setpriv --reuid=61184 --regid=61184 --clear-groups --inh-caps=-all";
    let refusing = |call: &str| format!("python3 -c \"$1\" {call}");
    for (name, before, begin, hint) in [
        ("a masked /proc, as a user", MASK, user, "systempaths=unconfined"),
        (
            "the same, as root without CAP_SYS_ADMIN",
            MASK,
            "setpriv --bounding-set=-sys_admin",
            "systempaths=unconfined",
        ),
        ("no filters of calls", "true", &refusing("157 22 22"), "seccomp"),
        ("no way to drop capabilities", "true", &refusing("126 -1 1"), "seccomp"),
        ("no reading alone, as root", "true", &refusing("442 -1 38"), "Linux 5.12"),
        ("no namespaces", "true", &refusing("272 -1 1"), "a seccomp filter forbids it"),
    ] {
        let home = tempfile::tempdir().expect("a temporary directory");
        let script = format!("chmod 777 . && {before} && exec {begin} \"$0\" run --isolate sh -c 'echo > ran'");
        let mut command = Command::new("unshare");
        command.args(["-m", "bash", "-c", &script, env!("CARGO_BIN_EXE_politely"), REFUSING]);
        command.env("HOME", home.path()).env("STATE_DIRECTORY", home.path().join("state")).current_dir(home.path());
        let output = within("its end", command.output()).await.expect("util-linux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("error: cannot isolate the command: ") && said.contains(hint), "{name}: {said}");
        assert!(!home.path().join("ran").exists(), "{name}");
    }
}

fn rustix_is_root() -> bool {
    // SAFETY: it takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// SECURITY.md names them as the documented exception.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_in_the_file_system_stay_open_as_documented() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("socket");
    let listener = UnixListener::bind(&path).expect("it is free");
    let script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(["run", "-q", "--isolate", "python3", "-c", script]).arg(&path);
    command.env("HOME", home.path()).env("STATE_DIRECTORY", home.path().join("state"));
    let output = within("its end", command.output()).await.expect("it is built");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot isolate") || said.contains("cannot run `python3`") {
        return eprintln!("skipped: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(listener.accept().is_ok());
}

/// A caller hands them over for the command, for example by `<(…)` in a shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_command_inherits_files_and_pipes() {
    let home = tempfile::tempdir().expect("a temporary directory");
    fs::write(home.path().join("file"), "file ").expect("it is writable");
    let script = "\"$0\" run -q --isolate bash -c 'cat /proc/self/fd/9 \"$0\"; unshare -U true || [ $(id -u) = 0 ]' <(echo pipe) 9< \"$HOME/file\"";
    let mut command = Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_politely")]);
    command.env("HOME", home.path()).env("STATE_DIRECTORY", home.path().join("state"));
    let output = within("its end", command.output()).await.expect("bash");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot isolate") {
        return eprintln!("skipped: {said}");
    }
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(0), "file pipe\n"), "{said}");
}
