//! `politely run --isolate`: the command in a network of its own, of which nothing leads out but the proxy's socket, and with nothing
//! left that opens another: no capabilities, no other process in sight. The socket is opened inside, and handed to the proxy outside.

use super::bounds;
use super::hand_over::{INSIDE, hand_over};
use super::namespaces::{self, Fork};
use super::processes::end_with_parent;
use crate::cli::CommandError;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Goes on in there. `Some`: in the process that stayed outside; it is the exit code of what was inside.
pub(super) fn enter(control: &UnixStream) -> Result<Option<u8>, CommandError> {
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::usage(format!("cannot isolate the command: {error}"), hint(Path::new("/proc")))
    };
    let kind = namespaces::enter().map_err(|error| failed(&error))?;
    hand_over(control, &TcpListener::bind(INSIDE)?)?;
    if kind.has_processes() {
        // Process 1 of a namespace takes all others with it.
        match namespaces::fork()? {
            Fork::Parent(child) => return Ok(Some(namespaces::exit_code(child))),
            Fork::Child => {
                end_with_parent(libc::SIGKILL)?;
                namespaces::own_proc().map_err(|error| failed(&error))?;
            }
        }
    }
    bounds::close_descriptors();
    bounds::drop_capabilities().map_err(|error| failed(&error))?;
    bounds::refuse_calls();
    // Where there is no terminal that goes by groups, nothing inside can name the group outside.
    if fs::File::open("/dev/tty").is_err() {
        rustix::process::setpgid(None, None).map_err(std::io::Error::from)?;
    }
    Ok(None)
}

/// What stands in the way, as far as it shows, and what to do. `proc`: where that is mounted.
fn hint(proc: &Path) -> String {
    let is = |file: &str, value: &str| fs::read_to_string(proc.join(file)).is_ok_and(|text| text.trim() == value);
    let without = "without --isolate the command only gets the proxy variables";
    let why = if is("sys/user/max_user_namespaces", "0") {
        "`user.max_user_namespaces` is 0 on this system; `sysctl -w user.max_user_namespaces=15000` allows it"
            .to_owned()
    } else if is("sys/kernel/unprivileged_userns_clone", "0") {
        "`kernel.unprivileged_userns_clone` is 0 on this system; `sysctl -w kernel.unprivileged_userns_clone=1` allows it"
            .to_owned()
    } else if is("sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        let program = std::env::current_exe().unwrap_or_default();
        format!(
            "AppArmor keeps users from creating namespaces (`kernel.apparmor_restrict_unprivileged_userns` is 1); give {} a \
             profile with `userns`, as docs/troubleshooting.md shows, or run it as root",
            program.display()
        )
    } else if fs::read_to_string(proc.join("self/status")).is_ok_and(|text| text.contains("Seccomp:\t2")) {
        "a seccomp filter forbids it, as in a container; Docker allows it with `--security-opt seccomp=unconfined`, Kubernetes \
         with `seccompProfile: { type: Unconfined }`"
            .to_owned()
    } else {
        "this takes a kernel with user and network namespaces".to_owned()
    };
    format!("{why}; {without}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_what_stands_in_the_way() {
        for (file, value, part) in [
            ("sys/user/max_user_namespaces", "0\n", "sysctl -w user.max_user_namespaces=15000"),
            ("sys/kernel/unprivileged_userns_clone", "0\n", "sysctl -w kernel.unprivileged_userns_clone=1"),
            ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "a profile with `userns`"),
            ("self/status", "Name:\tx\nSeccomp:\t2\n", "seccomp=unconfined"),
            ("sys/user/max_user_namespaces", "15000\n", "a kernel with user and network namespaces"),
        ] {
            let proc = tempfile::tempdir().unwrap();
            let file = proc.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, value).unwrap();
            let hint = hint(proc.path());
            assert!(hint.contains(part) && hint.ends_with("proxy variables"), "{hint}");
        }
    }
}
