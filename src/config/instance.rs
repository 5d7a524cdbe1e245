//! What this instance is called in Via: as configured, or by a name that is made once and kept.

use super::admin_token::write_once;
use super::written::values::InstanceName;
use super::{Settings, state_directory};
use std::path::PathBuf;
use std::{fs, io};

/// By these settings; a new one where none is kept.
pub fn instance_name(settings: &Settings) -> String {
    let kept = || fs::read_to_string(path(settings)).ok().and_then(|name| InstanceName::parse(name.trim()).ok());
    let name = settings.identity.instance.clone().or_else(kept);
    name.map_or_else(made_up, |name| name.as_ref().to_owned())
}

/// Keeps a name for the starts to come, unless there is one.
///
/// # Errors
/// It cannot be written.
pub fn keep_instance_name(settings: &Settings) -> io::Result<()> {
    let path = path(settings);
    if settings.identity.instance.is_some() || path.exists() {
        return Ok(());
    }
    write_once(&path, &made_up()).map(drop)
}

fn made_up() -> String {
    format!("politely-{:08x}", fastrand::u32(..))
}

fn path(settings: &Settings) -> PathBuf {
    settings.store.directory.clone().unwrap_or_else(state_directory).join("instance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once_and_one_of_yours_goes_first() {
        let home = tempfile::tempdir().unwrap();
        let settings = |more: &str| {
            let yaml = format!("store: {{ directory: {} }}\n{more}", home.path().join("new").display());
            Settings::parse("", &yaml).unwrap()
        };
        assert_ne!(instance_name(&settings("")), instance_name(&settings("")), "nothing is made by looking");
        keep_instance_name(&settings("")).unwrap();
        let name = instance_name(&settings(""));
        keep_instance_name(&settings("")).unwrap();
        assert_eq!(instance_name(&settings("")), name);
        assert!(name.starts_with("politely-") && name.len() == 17, "{name}");
        assert_eq!(instance_name(&settings("identity: { instance: crawl3.example.com }")), "crawl3.example.com");
    }
}
