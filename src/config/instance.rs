//! The name of this instance in Via: configured, or generated once and stored.

use super::schema::values::InstanceName;
use super::{Settings, as_line, is_ours, read_file, write_once};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The configured or stored name, or else a new one.
pub fn instance_name(settings: &Settings) -> String {
    let path = path(settings);
    let read = || read_file(&path).and_then(|name| as_line(&name)).ok();
    let kept = || InstanceName::parse(&Some(&path).filter(|path| is_own(path)).and_then(|_| read())?).ok();
    let name = settings.identity.instance.clone().or_else(kept);
    name.map_or_else(made_up, |name| name.as_ref().to_owned())
}

/// Generates and stores a name for later starts, unless a name is configured or stored.
///
/// # Errors
/// The file cannot be written.
pub fn keep_instance_name(settings: &Settings) -> io::Result<()> {
    let path = path(settings);
    if settings.identity.instance.is_some() || path.exists() {
        return Ok(());
    }
    write_once(&path, format!("{}\n", made_up()).as_bytes()).map(drop)
}

/// Whether the file is ours and not a link. Another user may have put a link to a secret of ours there, whose content would be sent to
/// sites as the name.
fn is_own(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(path);
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.nlink() == 1 && is_ours(&file, directory))
}

fn made_up() -> String {
    format!("politely-{:08x}", fastrand::u32(..))
}

fn path(settings: &Settings) -> PathBuf {
    settings.store.place().join("instance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_name_is_created_once_and_a_configured_one_wins() {
        let home = tempfile::tempdir().unwrap();
        let settings = |more: &str| {
            let yaml = format!("store: {{ directory: {} }}\n{more}", home.path().join("new").display());
            Settings::parse("", &yaml).unwrap()
        };
        assert_ne!(instance_name(&settings("")), instance_name(&settings("")), "reading the name does not store it");
        keep_instance_name(&settings("")).unwrap();
        let name = instance_name(&settings(""));
        keep_instance_name(&settings("")).unwrap();
        assert_eq!(instance_name(&settings("")), name);
        assert!(name.starts_with("politely-") && name.len() == 17, "{name}");
        assert_eq!(instance_name(&settings("identity: { instance: crawl3.example.com }")), "crawl3.example.com");
    }

    #[test]
    fn pipe_in_place_of_the_instance_name_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let settings = Settings::parse("", &format!("store: {{ directory: {} }}", home.path().display())).unwrap();
        let path = path(&settings);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(instance_name(&settings).starts_with("politely-"));
        std::fs::remove_file(&path).unwrap();
        let secret = home.path().join("admin-token");
        std::fs::write(&secret, "7f129edd692d5f34").unwrap();
        for link in [std::os::unix::fs::symlink::<&Path, &Path>, std::fs::hard_link::<&Path, &Path>] {
            link(&secret, &path).unwrap();
            assert!(instance_name(&settings).starts_with("politely-"), "a secret would be sent to sites");
            std::fs::remove_file(&path).unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(instance_name(&settings).starts_with("politely-"));
        keep_instance_name(&settings).unwrap();
    }
}
