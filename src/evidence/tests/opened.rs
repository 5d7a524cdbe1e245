//! A running writer opens only the segments that it writes to, however many there are.

use super::removal::rest;
use super::*;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// Watches which files of a directory are opened.
struct Opened(OwnedFd);

impl Opened {
    fn watch(directory: &Path) -> Self {
        let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&watch, directory, WatchFlags::OPEN).unwrap();
        Opened(watch)
    }

    /// The names of the files, each as often as it was opened since the last call.
    fn take(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let (mut reader, mut names) = (Reader::new(&self.0, &mut buffer), Vec::new());
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names
    }
}

/// A chain that ends with this segment. The segments before it are compressed and unreadable.
fn ending_with(segment: u64) -> TempDir {
    let directory = written(1);
    let path = first(directory.path());
    let (_, time) = path.to_str().unwrap().rsplit_once('-').unwrap();
    for number in 1..segment {
        fs::write(directory.path().join(format!("{number:08}-{time}.gz")), "unreadable").unwrap();
    }
    fs::rename(&path, directory.path().join(format!("{segment:08}-{time}"))).unwrap();
    directory
}

/// The files opened by the hourly search for old segments, and when another day begins.
fn opened_beside(segments: u64) -> [Vec<String>; 2] {
    let directory = ending_with(segments);
    let queue = Arc::new(Queue::new(9 * KEEP));
    let mut writer = writer::Writer::open(directory.path(), queue, "test-1", "{}").unwrap();
    let opened = Opened::watch(directory.path());
    let mut look_after = |now| {
        rest(&mut writer);
        opened.take();
        writer.look_after(now);
        rest(&mut writer);
        opened.take()
    };
    let hourly = look_after(SystemTime::now());
    let rollover = look_after(SystemTime::now() + KEEP);
    assert_eq!(Stored::all(directory.path()).unwrap().len() as u64, segments + 1, "a new segment has begun");
    [hourly, rollover]
}

#[test]
fn maintenance_opens_a_constant_number_of_segments() {
    let [hourly, rollover] = opened_beside(3000);
    assert_eq!(hourly, [""; 0]);
    // Opens the new segment, the segment that has ended, and its compressed form.
    let number = |name: &String| name[..8].parse::<u64>().unwrap();
    assert!(!rollover.is_empty() && rollover.iter().all(|name| [3000, 3001].contains(&number(name))), "{rollover:?}");
    assert_eq!([0, rollover.len()], opened_beside(100).map(|names| names.len()));
}
