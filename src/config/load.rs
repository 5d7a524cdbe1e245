//! Loads [`Settings`] from files and the environment: reads, checks and derives values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::hosts::Hosts;
use super::read::check::Check;
use super::read::environment::{self, KeyArgument, Variable};
use super::read::error::{Complaint, ConfigErrors, ConfigText};
use super::read::faults::Faults;
use super::read::files::ConfigFiles;
use super::read::reader;
use super::read::text::read_text;
use super::read::tree::{Value, YamlNode};
use super::settings::Settings;
use super::shown::Whole;
use super::validate;
use super::written::defaults::defaults;
use super::written::intercept::CaSource;
use super::written::values::AccessLog;

impl Settings {
    /// Reads the file, if given, and its includes, and lays the environment (`std::env::vars_os()`) over them.
    /// Relative paths start at the file's directory.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigErrors> {
        Self::load_with(path, environment, &[])
    }

    /// Like [`load`](Self::load), with arguments of the command line laid over the environment, in their order.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load_with(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        arguments: &[KeyArgument],
    ) -> Result<Self, ConfigErrors> {
        let environment: Vec<_> = environment.into_iter().collect();
        let credentials = environment.iter().find(|(name, value)| name == "CREDENTIALS_DIRECTORY" && !value.is_empty());
        let credentials = credentials.map(|(_, directory)| PathBuf::from(directory));
        let (mut variables, strange) = environment::variables(environment, defaults());
        variables.extend(arguments.iter().map(Variable::from));
        let over = Over { variables, credentials };
        let mut settings = match path {
            None => Self::build("", "", &over)?,
            Some(path) => {
                let name = path.display().to_string();
                let text = read_text(path, false)
                    .map_err(|fault| ConfigErrors::new(vec![ConfigText::new(&name, "")], vec![fault]))?;
                Self::build(&name, &text, &over)?
            }
        };
        settings.warnings.extend(strange);
        Ok(settings)
    }

    /// Reads `text` as the file `name`, without the environment.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::build(name, text, &Over::default())
    }

    /// Reads a configuration that was shown once, to evaluate it again. It has no passwords, so that nobody can log in, and it is
    /// complete: includes are merged already, and their present content does not matter.
    ///
    /// # Errors
    /// This version does not accept it.
    pub fn of_shown(name: &str, shown: &str) -> Result<Self, String> {
        let mut shown: serde_json::Value = serde_json::from_str(shown).map_err(|error| format!("{name}: {error}"))?;
        shown["include"] = serde_json::json!([]);
        for user in shown["access"]["users"].as_array_mut().into_iter().flatten() {
            user["password"] = NOBODYS.into();
        }
        Self::parse(name, &shown.to_string()).map_err(|errors| errors.to_string())
    }

    fn build(name: &str, text: &str, over: &Over) -> Result<Self, ConfigErrors> {
        let Over { variables, credentials } = over;
        let names: Vec<&str> = variables.iter().map(|variable| &*variable.name).collect();
        let mut files = ConfigFiles::default();
        let Some(mut root) = files.read(name, text) else { return files.check(&names).map(|()| Self::default()) };
        // Faults in a file are reported even if another file or a variable overrides the value.
        let read = |root: &YamlNode, faults: &mut Faults| reader::read::<Self>(root.clone(), defaults(), faults);
        drop(read(&root, &mut files.faults));
        environment::overlay(&mut root, variables, defaults(), |path| path == ["include"], &mut files.faults);
        let include = read(&root, &mut files.faults).0.include;
        files.include(&mut root, &include, |node, faults| drop(read(node, faults)));
        environment::overlay(&mut root, variables, defaults(), |path| path != ["include"], &mut files.faults);
        root.each_value(&mut |node| locate_credential(node, credentials.as_deref(), &mut files.faults));

        let (mut settings, whole) = read(&root, &mut files.faults);
        let mut check = Check::new(&whole, &mut files.faults);
        settings.derive(&mut check);
        validate::check(&settings, &mut check);
        files.check(&names)?;
        settings.whole = Whole::new(&whole);
        settings.warnings = validate::warnings(&settings);
        let signature = &mut settings.identity.signature;
        let place = |path: &[&str]| files.shown_place(&whole, &[&["identity", "signature"], path].concat(), &names);
        let others = (0..signature.other_keys.len()).map(|index| place(&["other_keys", &index.to_string()]));
        signature.places = signature.key.iter().map(|_| place(&["key"])).chain(others).collect();
        Ok(settings.based(Path::new(name).parent()))
    }

    /// Sets the values that follow from the keys.
    fn derive(&mut self, check: &mut Check<'_>) {
        self.listed = self.egress.listed();
        self.hosts =
            Hosts::build(self.options(), self.intercept.default, &self.overrides, &self.intercept.hosts, check);
        for user in self.access.users.iter_mut().map(Arc::make_mut).filter(|user| !user.overrides.is_empty()) {
            user.hosts = Some(self.hosts.overlaid(&user.overrides));
        }
    }

    /// Resolves relative paths against `base`.
    fn based(mut self, base: Option<&Path>) -> Self {
        let Some(base) = base else { return self };
        let mut paths: Vec<&mut PathBuf> = Vec::new();
        for tls in self.listen.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
            paths.extend([&mut tls.certificate, &mut tls.key]);
            paths.extend(tls.client_ca.as_mut());
        }
        match &mut self.intercept.ca {
            CaSource::Directory(directory) => paths.extend(directory.as_mut()),
            CaSource::Files { certificate, key } => paths.extend([certificate, key]),
        }
        paths.extend(self.admin.token_file.as_mut());
        paths.extend(self.identity.signature.key.as_mut());
        paths.extend(&mut self.identity.signature.other_keys);
        paths.extend(self.egress.ca_file.as_mut());
        paths.extend(self.store.directory.as_mut());
        paths.extend(self.evidence.directory.as_mut());
        if let AccessLog::File(path) = &mut self.log.access {
            paths.push(path);
        }
        for path in paths {
            *path = base.join(&*path);
        }
        self.hosts.base(base);
        for hosts in self.access.users.iter_mut().filter_map(|user| Arc::make_mut(user).hosts.as_mut()) {
            hosts.base(base);
        }
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse("", "").expect("the defaults are valid, as a test checks")
    }
}

/// What overrides the files.
#[derive(Default)]
struct Over {
    variables: Vec<Variable>,
    /// Directory of a systemd service's credentials (`LoadCredential=`).
    credentials: Option<PathBuf>,
}

/// Replaces `credential:NAME` by the path of that credential.
fn locate_credential(node: &mut YamlNode, directory: Option<&Path>, faults: &mut Faults) {
    let Some(name) = node.text().and_then(|text| text.strip_prefix("credential:")) else { return };
    let fault = match directory {
        Some(directory) if !name.is_empty() && !name.contains('/') => {
            node.value = Value::Text(directory.join(name).display().to_string());
            return;
        }
        Some(_) => {
            Complaint::new(format!("`credential:{name}` is not the name of a credential"), "write `credential:NAME`")
        }
        None => Complaint::new(
            format!("there is no credential `{name}` outside the service that has it"),
            format!(
                "the unit needs `LoadCredential={name}:PATH`; elsewhere, CREDENTIALS_DIRECTORY names the directory with the file"
            ),
        ),
    };
    faults.push(node.at, fault);
}

/// A password hash that no password matches.
const NOBODYS: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA";
