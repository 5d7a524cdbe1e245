//! The built binary: `serve` as a child process, and any command run to its end.

use super::authority::test_ca;
use super::curl::{Curl, curl};
use super::proxy::{ca_certificate, configuration, prepare};
use std::io::{Seek, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

/// A running `politely serve`; killed if dropped.
pub struct Binary {
    child: Child,
    address: SocketAddr,
    output: Output,
    directory: tempfile::TempDir,
}

/// Builds a library for `LD_PRELOAD` from this C.
pub fn preload(directory: &Path, code: &str) -> PathBuf {
    let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
    std::fs::write(&source, code).expect("room");
    let built =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).status();
    assert!(built.expect("a C compiler, which the build needs as well").success());
    library
}

/// The result of a command that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Binary {
    /// Starts `politely serve` with the tests' configuration and `yaml` laid over it.
    pub async fn serve(yaml: &str) -> Self {
        Self::serve_with(yaml, &[]).await
    }

    /// Like [`serve`](Self::serve), with these environment variables.
    pub async fn serve_with(yaml: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::start(directory, yaml, variables).await
    }

    /// Like [`serve`](Self::serve), in a directory that an earlier process used.
    pub async fn serve_in(directory: tempfile::TempDir, yaml: &str) -> Self {
        Self::start(directory, yaml, &[]).await
    }

    /// Starts `politely serve` with an empty configuration file; everything that a test needs comes from the environment.
    pub async fn serve_empty(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("sh");
        let script = format!("> \"$HOME/politely.yaml\"; exec {} \"$@\"", env!("CARGO_BIN_EXE_politely"));
        command.args(["-c", &script, "sh"]);
        at_home(&mut command, directory.path());
        Self::start_by(command, directory, "", variables).await
    }

    /// Starts `politely serve` with an inherited socket, passed as systemd does, under the name `politely`.
    pub async fn serve_on(socket: &std::net::TcpListener, yaml: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let command = Self::inheriting(socket.as_raw_fd(), directory.path());
        Self::start_by(command, directory, yaml, &[]).await
    }

    /// The end of a `politely serve` that cannot use this inherited socket.
    pub async fn refused_on(socket: &impl AsRawFd, variables: &[(&str, &str)]) -> Ended {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Self::inheriting(socket.as_raw_fd(), directory.path());
        command.arg("serve");
        run_to_end(command, variables, Stdio::null()).await
    }

    fn inheriting(socket: i32, home: &Path) -> Command {
        let binary = env!("CARGO_BIN_EXE_politely");
        // By `exec`, as LISTEN_PID must be the number of the process itself.
        let script = format!("LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=politely exec {binary} \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]);
        at_home(&mut command, home);
        let hand_over = move || {
            // SAFETY: both take integers, and may be called between fork and exec. If the socket is 3 itself, `dup2` leaves it to be closed
            // by exec.
            let is_done = unsafe { libc::dup2(socket, 3) >= 0 && libc::fcntl(3, libc::F_SETFD, 0) >= 0 };
            if is_done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: as above.
        unsafe { command.pre_exec(hand_over) };
        command
    }

    /// Starts `politely serve` with a limit on open files.
    pub async fn serve_with_files(most: usize, yaml: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("prlimit");
        command.args([&format!("--nofile={most}:{most}"), env!("CARGO_BIN_EXE_politely")]);
        at_home(&mut command, directory.path());
        Self::start_by(command, directory, yaml, &[]).await
    }

    /// Starts `politely serve` where names are looked up at this address, port 53. `None`: that takes root, in a mount namespace.
    pub async fn serve_with_resolver(resolver: std::net::IpAddr, yaml: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("resolv.conf");
        std::fs::write(&file, format!("nameserver {resolver}\n")).expect("room");
        Self::serve_in_namespace(directory, &format!("mount --bind {} /etc/resolv.conf", file.display()), yaml).await
    }

    /// Starts `politely serve` in a mount namespace, after this command there. `None`: that takes root.
    pub async fn serve_mounted(mount: &str, yaml: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self::serve_in_namespace(directory, mount, yaml).await
    }

    async fn serve_in_namespace(directory: tempfile::TempDir, mount: &str, yaml: &str) -> Option<Self> {
        let tried = Command::new("unshare").args(["-m", "sh", "-c", mount]).output().await.ok()?;
        if !tried.status.success() {
            return None;
        }
        let mut command = Command::new("unshare");
        let script = format!("{mount} && exec {} \"$@\"", env!("CARGO_BIN_EXE_politely"));
        command.args(["-m", "sh", "-c", &script, "sh"]);
        at_home(&mut command, directory.path());
        Some(Self::start_by(command, directory, yaml, &[]).await)
    }

    async fn start(directory: tempfile::TempDir, yaml: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_by(command(directory.path()), directory, yaml, variables).await
    }

    async fn start_by(
        mut command: Command,
        directory: tempfile::TempDir,
        yaml: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let file = directory.path().join("politely.yaml");
        prepare(directory.path());
        std::fs::write(&file, configuration(directory.path(), yaml)).expect("the directory is writable");
        command.arg("serve").arg("--config").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.envs(variables.iter().copied()).spawn().expect("the binary is built");
        let output = Output::default();
        output.collect(child.stdout.take().expect("piped above"));
        output.collect(child.stderr.take().expect("piped above"));
        let mut address = None;
        super::eventually("the lines `listening on …` to the last", || {
            address = output.listening().filter(|_| output.text().contains("have to trust"));
            address.is_some() || child.try_wait().is_ok_and(|status| status.is_some())
        })
        .await;
        let address = address.unwrap_or_else(|| panic!("serve did not come up: {}", output.text()));
        Self { child, address, output, directory }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The admin address, if the test has enabled it.
    pub fn admin(&self) -> String {
        let text = self.output.text();
        let url = text.lines().find_map(|line| line.split("admin address http://").nth(1)).expect("it is switched on");
        url.split('/').next().expect("the first part").to_owned()
    }

    /// The listening addresses so far, in order.
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.output.all_listening()
    }

    /// Writes another configuration, and runs `politely reload`.
    pub async fn reload(&self, yaml: &str) -> Ended {
        self.write(yaml);
        let token = self.directory.path().join("store/admin-token");
        politely(&["reload", "--admin", &self.admin(), "--token-file", token.to_str().expect("UTF-8")]).await
    }

    /// Runs a command about this proxy as its user would: with its configuration file, and no other information.
    pub async fn asked(&self, command: &[&str], variables: &[(&str, &str)]) -> Ended {
        let (file, state) = (self.directory.path().join("politely.yaml"), self.directory.path().join("state"));
        let [file, state] = [&file, &state].map(|path| path.to_str().expect("UTF-8"));
        politely_with(&[command, &["--config", file]].concat(), &[&[("STATE_DIRECTORY", state)], variables].concat())
            .await
    }

    /// Writes another configuration without reloading it.
    pub fn rewrite(&self, yaml: &str) {
        self.write(yaml);
    }

    /// The directory for its configuration and state.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn ca_pem_path(&self) -> PathBuf {
        ca_certificate(self.directory.path())
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("not waited for yet")
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Whether to stop reading its output.
    pub fn stall(&self, is_stalled: bool) {
        self.output.is_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// The largest resident size so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number of KiB")
    }

    /// The number of open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// curl through it, trusting its authority.
    pub async fn curl(&self, arguments: &[&str]) -> Curl {
        let ca = self.ca_pem_path();
        let ca = ca.to_str().expect("temporary directories have UTF-8 names");
        let url = self.url();
        curl(&[&["-x", &url, "--cacert", ca], arguments].concat()).await
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).expect("a process id");
        // SAFETY: `kill` takes two integers; the child is not waited for yet, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "the child can be signalled");
    }

    /// Writes another configuration, and sends SIGHUP.
    pub fn reconfigure(&self, yaml: &str) {
        self.write(yaml);
        self.signal(libc::SIGHUP);
    }

    fn write(&self, yaml: &str) {
        std::fs::write(self.file(), configuration(self.directory.path(), yaml)).expect("the directory is writable");
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("politely.yaml")
    }

    /// Waits until it ends.
    pub async fn ended(&mut self) -> ExitStatus {
        super::within("the end of serve", self.child.wait()).await.expect("our child")
    }

    /// Sends SIGKILL, so that it cannot clean up. Returns the directory for another process.
    pub async fn kill(mut self) -> tempfile::TempDir {
        self.signal(libc::SIGKILL);
        self.ended().await;
        self.directory
    }

    /// Sends SIGTERM; it must drain and exit 0 without a panic. Returns the directory for another process.
    pub async fn stop(mut self) -> tempfile::TempDir {
        self.signal(libc::SIGTERM);
        let status = self.ended().await;
        let output = self.output.text();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(!output.contains("panicked"), "{output}");
        self.directory
    }
}

/// Runs `politely ARGUMENTS` to its end, with temporary home and cache directories.
pub async fn politely(arguments: &[&str]) -> Ended {
    politely_with(arguments, &[]).await
}

/// Like [`politely`], with these variables set.
pub async fn politely_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run(arguments, variables, Stdio::null()).await
}

/// Like [`politely`], with this standard input.
pub async fn politely_reading(arguments: &[&str], input: &[u8]) -> Ended {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(input).and_then(|()| file.rewind()).expect("the file is writable");
    run(arguments, &[], file.into()).await
}

/// Like [`politely`], on a terminal of 80 columns for both outputs.
pub async fn politely_on_a_terminal(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let quoted = arguments.iter().map(|argument| format!(" '{argument}'")).collect::<String>();
    let shell = format!("stty cols 80; exec {}{quoted}", env!("CARGO_BIN_EXE_politely"));
    let mut command = Command::new("script");
    command.args(["-qec", &shell, "/dev/null"]).env("TERM", "xterm");
    run_to_end(command, variables, Stdio::null()).await
}

/// Like [`politely`], with a limit on open files.
pub async fn politely_with_files(most: usize, arguments: &[&str]) -> Ended {
    let mut command = Command::new("prlimit");
    command.args([&format!("--nofile={most}:{most}"), env!("CARGO_BIN_EXE_politely")]).args(arguments);
    run_to_end(command, &[], Stdio::null()).await
}

/// Like [`politely`], as `"$0" "$@"` of a shell's script.
pub async fn politely_in_shell(script: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_politely")]).args(arguments);
    run_to_end(command, &[], Stdio::null()).await
}

async fn run(arguments: &[&str], variables: &[(&str, &str)], input: Stdio) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    command.args(arguments);
    run_to_end(command, variables, input).await
}

async fn run_to_end(mut command: Command, variables: &[(&str, &str)], input: Stdio) -> Ended {
    let home = tempfile::tempdir().expect("a temporary directory");
    at_home(&mut command, home.path());
    command.envs(variables.iter().copied()).stdin(input);
    let output = super::within("the end of the command", command.output()).await.expect("the binary is built");
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The variables that allow reaching the tests' origins.
pub fn open() -> Vec<(&'static str, &'static str)> {
    vec![
        ("POLITELY_EGRESS__ALLOW", "[127.0.0.0/8]"),
        ("POLITELY_EGRESS__PORTS", "[\"1-65535\"]"),
        ("POLITELY_EGRESS__CA_FILE", test_ca().pem_file().to_str().expect("a UTF-8 path")),
    ]
}

fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_politely"));
    at_home(&mut command, home);
    command
}

fn at_home(command: &mut Command, home: &Path) {
    command.kill_on_drop(true).env("HOME", home).env("XDG_CACHE_HOME", home).env("NO_COLOR", "1");
    // For root, the default would be the machine's directory.
    command.env("STATE_DIRECTORY", home.join("state"));
    for (name, _) in std::env::vars() {
        let proxy = name.to_ascii_lowercase().ends_with("_proxy");
        if proxy || name.starts_with("POLITELY_") || name.starts_with("XDG_DATA") || name.starts_with("XDG_CONFIG") {
            command.env_remove(name);
        }
    }
}

#[derive(Clone, Default)]
struct Output {
    text: Arc<Mutex<String>>,
    is_stalled: Arc<AtomicBool>,
}

impl Output {
    fn collect(&self, stream: impl AsyncRead + Unpin + Send + 'static) {
        let output = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                {
                    let mut text = output.text.lock().expect("nobody panics with it in hand");
                    text.push_str(&line);
                    text.push('\n');
                }
                while output.is_stalled.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }

    fn text(&self) -> String {
        self.text.lock().expect("nobody panics with it in hand").clone()
    }

    fn listening(&self) -> Option<SocketAddr> {
        self.all_listening().first().copied()
    }

    fn all_listening(&self) -> Vec<SocketAddr> {
        let text = self.text();
        let lines = text.lines().filter(|line| !line.contains("no longer listening on "));
        let address = |line: &str| {
            let rest = line.split("listening on ").nth(1)?;
            let is_in = |c: &char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']');
            rest.chars().take_while(is_in).collect::<String>().parse().ok()
        };
        lines.filter_map(address).collect()
    }
}
