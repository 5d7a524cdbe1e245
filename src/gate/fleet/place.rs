//! An instance's place in its fleet, kept across restarts: its name, and the peak number of connected instances. They are in the file
//! `fleet` of the store's directory, which one process uses at a time; other processes have places that are not kept.

use crate::config::{open_lock_file, private_directory};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A process's place in its fleet.
#[derive(Debug)]
pub(super) struct KeptPlace {
    /// The instance's name, sixteen hexadecimal digits.
    pub name: Box<str>,
    /// The peak number of connected instances; 0: unknown.
    instances: AtomicU32,
    /// The locked file `fleet`. `None`: the place is not kept across restarts.
    file: Option<File>,
}

impl KeptPlace {
    /// Opens the place, or makes one. `directory`: the store's, if there is one.
    pub fn open(directory: Option<&Path>) -> Self {
        let kept = directory.map(lock).transpose().unwrap_or_else(|error| {
            tracing::debug!(%error, "the file `fleet` cannot be used: this instance gets another place in the fleet at each start");
            None
        });
        let (file, kept) = kept.map_or((None, None), |(file, text)| (Some(file), parse(&text)));
        let (name, instances) = kept.unwrap_or_else(|| (format!("{:016x}", fastrand::u64(..)), 0));
        let place = Self { name: name.into(), instances: instances.into(), file };
        place.write(instances);
        place
    }

    pub fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    /// Records the number of connected instances, if it is a new peak.
    pub fn learn(&self, connected: u32) {
        if self.instances.fetch_max(connected, Ordering::Relaxed) < connected {
            self.write(connected);
        }
    }

    fn write(&self, instances: u32) {
        let Some(file) = &self.file else { return };
        // One write of fixed length, so that no partial content is left.
        if let Err(error) = file.write_all_at(format!("{} {instances:010}\n", self.name).as_bytes(), 0) {
            tracing::debug!(%error, "the place in the fleet cannot be written");
        }
    }
}

/// Locks the file and reads its content.
///
/// # Errors
/// The file cannot be opened, or another process has it.
fn lock(directory: &Path) -> io::Result<(File, String)> {
    private_directory(directory)?;
    let file = open_lock_file(&directory.join("fleet"))?;
    file.try_lock()?;
    let mut text = String::new();
    (&file).take(LONGEST).read_to_string(&mut text)?;
    Ok((file, text))
}

fn parse(text: &str) -> Option<(String, u32)> {
    let (name, instances) = text.trim_end().split_once(' ')?;
    let is_name = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((name.to_owned(), instances.parse().ok()?)).filter(|_| is_name)
}

const LONGEST: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_instance_keeps_its_name_and_count() {
        let home = tempfile::tempdir().unwrap();
        let first = KeptPlace::open(Some(home.path()));
        assert_eq!(first.instances(), 0);
        for connected in [2, 12, 3] {
            first.learn(connected);
        }
        let (name, number) = (first.name.clone(), first.instances());
        drop(first);
        let next = KeptPlace::open(Some(home.path()));
        assert_eq!((&next.name, next.instances(), number), (&name, 12, 12));
    }

    #[test]
    fn concurrent_processes_have_different_names() {
        let home = tempfile::tempdir().unwrap();
        let first = KeptPlace::open(Some(home.path()));
        first.learn(3);
        let beside = KeptPlace::open(Some(home.path()));
        assert!(beside.name != first.name);
        beside.learn(7);
        drop((first, beside));
        assert_eq!(KeptPlace::open(Some(home.path())).instances(), 3, "only the first process keeps its count");
    }

    #[test]
    fn damaged_place_file_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        for text in ["", "x", "0123456789abcdef", "0123456789abcdef -1", "../3456789abcdef 0000000003"] {
            std::fs::write(home.path().join("fleet"), text).unwrap();
            let place = KeptPlace::open(Some(home.path()));
            assert_eq!((place.instances(), place.name.len()), (0, 16), "{text:?}");
        }
        std::fs::remove_file(home.path().join("fleet")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", home.path().join("fleet")).unwrap();
        assert_eq!(KeptPlace::open(Some(home.path())).instances(), 0);
        assert_eq!(KeptPlace::open(None).instances(), 0);
    }
}
