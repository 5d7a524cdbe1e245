//! Default directories.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// The directory for state that must survive a restart: systemd's `StateDirectory=`, else the user's, else the machine's.
pub fn state_directory() -> PathBuf {
    choose(|name| env::var_os(name), rustix::process::geteuid().is_root())
}

/// The directory for data that can be recreated: the user's cache.
pub fn cache_directory() -> PathBuf {
    choose_cache(|name| env::var_os(name))
}

/// Creates the directory, mode 0700, and its parents, if missing.
///
/// # Errors
/// The directory cannot be created.
pub fn private_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for made in missing.iter().rev() {
        give_to_owner(&File::open(made)?, &made.parent().map_or_else(PathBuf::new, |above| above.join(".")))?;
    }
    Ok(())
}

/// Gives a file that root created to the owner of its directory, such as a service's user, who must be able to read it.
///
/// # Errors
/// The directory cannot be inspected, or the system does not let root change owners.
pub fn give_to_owner(file: &File, directory: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let directory = fs::metadata(directory)?;
    fchown(file, Some(directory.uid()), Some(directory.gid()))
}

fn choose_cache(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("politely")
}

fn choose(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> PathBuf {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Several are separated by colons; the first is used.
    let systemd = variable("STATE_DIRECTORY").and_then(|all| env::split_paths(&all).find(|path| path.is_absolute()));
    let users = || absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    match systemd {
        Some(directory) => directory,
        None if root => PathBuf::from(MACHINE),
        None => users().map_or_else(|| PathBuf::from(MACHINE), |data| data.join("politely")),
    }
}

const MACHINE: &str = "/var/lib/politely";

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], root: bool) -> PathBuf {
        choose(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()), root)
    }

    /// A service may first be tried with sudo.
    #[test]
    fn a_directory_that_root_makes_is_its_owners_who_has_the_one_above() {
        let home = tempfile::tempdir().unwrap();
        let made = home.path().join("one/two");
        private_directory(&made).unwrap();
        private_directory(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home.path(), Some(61_184), Some(61_185)).unwrap();
            let made = home.path().join("three/four");
            private_directory(&made).unwrap();
            for made in [made.parent().unwrap(), &made] {
                let made = fs::metadata(made).unwrap();
                assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (61_184, 61_185, 0o700));
            }
        }
    }

    #[test]
    fn the_cache_is_the_users() {
        let home = |name: &str| (name == "HOME").then(|| "/home/a".into());
        assert_eq!(choose_cache(home), PathBuf::from("/home/a/.cache/politely"));
        let both = |name: &str| Some(OsString::from(if name == "HOME" { "/home/a" } else { "/cache" }));
        assert_eq!(choose_cache(both), PathBuf::from("/cache/politely"));
    }

    #[test]
    fn systemd_overrides_the_user_and_root_has_the_machines() {
        let user = [("HOME", "/home/a"), ("XDG_DATA_HOME", "/home/a/data")];
        assert_eq!(
            chosen(&[("STATE_DIRECTORY", "/var/lib/x:/var/lib/y"), user[0]], false),
            PathBuf::from("/var/lib/x")
        );
        assert_eq!(chosen(&user, true), PathBuf::from("/var/lib/politely"));
        assert_eq!(chosen(&user, false), PathBuf::from("/home/a/data/politely"));
        assert_eq!(chosen(&user[..1], false), PathBuf::from("/home/a/.local/share/politely"));
        assert_eq!(chosen(&[("XDG_DATA_HOME", "relative")], false), PathBuf::from("/var/lib/politely"));
    }
}
