//! Loads [`Settings`] from files and the environment: reads, checks and derives values.

use std::ffi::OsString;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::display::{Whole, json};
use super::hosts::Hosts;
use super::layers::Layers;
use super::path_places::PathPlaces;
use super::read::environment::{self, KeyArgument};
use super::read::error::{Complaint, ConfigErrors, ConfigPlace, Faults};
use super::read::files::ConfigFiles;
use super::read::sections::Sections;
use super::read::text::read_text;
use super::read::tree::{Value, YamlNode};
use super::schema::defaults::defaults;
use super::schema::values::AccessLog;
use super::settings::Settings;
use super::{validate, warnings};
use crate::robots::ProductToken;

impl Settings {
    /// Reads the file, if given, and its includes, and lays the environment (`std::env::vars_os()`) over them.
    /// Relative paths start at the file's directory.
    ///
    /// # Errors
    /// The faults of the configuration: of each section, the first unreadable value or, if there is none, all invalid combinations of keys.
    pub fn load(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigErrors> {
        Self::load_in_layers(path, environment, &[]).map(|(settings, _)| settings)
    }

    /// Like [`load`](Self::load), with arguments of the command line laid over the environment, in their order. Returns the layers too.
    ///
    /// # Errors
    /// The faults of the configuration: of each section, the first unreadable value or, if there is none, all invalid combinations of keys.
    pub fn load_in_layers(
        path: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        arguments: &[KeyArgument],
    ) -> Result<(Self, Layers), ConfigErrors> {
        let environment: Vec<_> = environment.into_iter().collect();
        let credentials = environment.iter().find(|(name, value)| name == "CREDENTIALS_DIRECTORY" && !value.is_empty());
        let credentials = credentials.map(|(_, directory)| PathBuf::from(directory));
        let (mut variables, strange) = environment::variables(environment, defaults());
        variables.extend_from_slice(arguments);
        let name = path.map_or_else(String::new, |path| path.display().to_string());
        let text = path.map_or_else(|| Ok(String::new()), |path| read_text(path, false));
        let (mut settings, layers) = Self::build(&name, text, &variables, credentials.as_deref())?;
        settings.warnings.extend(strange);
        Ok((settings, layers))
    }

    /// Reads `text` as the file `name`, without the environment.
    ///
    /// # Errors
    /// The faults of the configuration: of each section, the first unreadable value or, if there is none, all invalid combinations of keys.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::build(name, Ok(text.to_owned()), &[], None).map(|(settings, _)| settings)
    }

    /// Reads the output of [`shown`](Self::shown), to evaluate the configuration again. The output has no passwords, so nobody can log in,
    /// and already contains the included files, so `include` is ignored.
    ///
    /// # Errors
    /// This version does not accept the configuration.
    pub fn of_shown(name: &str, shown: &str) -> Result<Self, String> {
        let mut shown: serde_json::Value = serde_json::from_str(shown).map_err(|error| format!("{name}: {error}"))?;
        shown["include"] = serde_json::json!([]);
        for user in shown["access"]["users"].as_array_mut().into_iter().flatten() {
            user["password"] = NOBODYS.into();
        }
        Self::parse(name, &shown.to_string()).map_err(|errors| errors.to_string())
    }

    /// Builds settings and layers. `credentials`: the directory in which systemd puts a service's credentials (`LoadCredential=`).
    fn build(
        name: &str,
        text: Result<String, Complaint>,
        variables: &[KeyArgument],
        credentials: Option<&Path>,
    ) -> Result<(Self, Layers), ConfigErrors> {
        let (mut files, mut layers) = (ConfigFiles::default(), Layers::default());
        let text = text.unwrap_or_else(|complaint| {
            files.faults.push(&ConfigPlace::File(0), complaint);
            String::new()
        });
        let Some(mut root) = files.read(name, text) else { return files.checked((Self::default(), layers)) };
        // A fault in a file is reported even where another file or a variable overrides the value.
        let judge =
            |node: &YamlNode, faults: &mut Faults| Self::read(&mut Sections::new(node.clone(), Path::new(""), faults));
        judge(&root, &mut files.faults);
        layers.stages.push(root.clone());
        let mut overlaid = root.clone();
        environment::overlay(&mut overlaid, variables, defaults(), &mut files.faults);
        let include = judge(&overlaid, &mut files.faults).include;
        let included = files.included(&overlaid, &include);
        included.iter().for_each(|node| drop(judge(node, &mut files.faults)));
        files.join(&mut root, included);
        // The arguments come after the variables.
        let arguments = variables.iter().take_while(|variable| variable.is_of_environment()).count();
        for variables in <[_; 2]>::from(variables.split_at(arguments)) {
            layers.stages.push(root.clone());
            environment::overlay(&mut root, variables, defaults(), &mut files.faults);
        }
        layers.stages.push(root.clone());
        root.each_text(CREDENTIAL, &mut |node| locate_credential(node, credentials, &mut files.faults));

        let base = Path::new(name).parent().unwrap_or(Path::new(""));
        let mut sections = Sections::new(root, base, &mut files.faults);
        let mut settings = Self::read(&mut sections);
        if let AccessLog::File(path) = &mut settings.log.access {
            *path = base.join(&*path);
        }
        validate::check(&settings, &mut sections);
        settings.derive(&mut sections);
        let whole = sections.whole;
        let all = json(&whole);
        settings.warnings = warnings::warnings(&settings, &all);
        settings.whole = Whole::of(all);
        settings.places = PathPlaces::of(&whole, base, &files.sources);
        layers.sources.clone_from(&files.sources);
        files.checked((settings, layers))
    }

    /// Sets the values that are derived from the keys.
    fn derive(&mut self, sections: &mut Sections<'_>) {
        self.listed = self.egress.listed();
        let overrides = take(&mut self.overrides);
        self.hosts = Hosts::build(self.options(), self.intercept.default, overrides, &self.intercept.hosts, sections);
        for user in self.access.users.iter_mut().map(Arc::make_mut) {
            if !user.overrides.is_empty() {
                user.hosts = Some(self.hosts.overlaid(take(&mut user.overrides)));
            }
            if let Some(agent) = user.user_agent.as_ref().filter(|_| user.product_tokens.is_empty()) {
                user.product_tokens = ProductToken::from_user_agent(agent.as_bytes());
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse("", "").expect("the defaults are valid, as a test checks")
    }
}

/// Replaces `credential:NAME` by the path of that credential.
fn locate_credential(node: &mut YamlNode, directory: Option<&Path>, faults: &mut Faults) {
    let Some(name) = node.text().and_then(|text| text.strip_prefix(CREDENTIAL)) else { return };
    let fault = match directory {
        Some(directory) if !name.is_empty() && !name.contains('/') => {
            node.value = Value::Text(directory.join(name).display().to_string());
            return;
        }
        Some(_) => {
            Complaint::new(format!("`credential:{name}` is not the name of a credential"), "write `credential:NAME`")
        }
        None => Complaint::new(
            format!("the credential `{name}` is available only inside the service that has it"),
            format!(
                "add `LoadCredential={name}:PATH` to the unit; elsewhere, set CREDENTIALS_DIRECTORY to the directory with the file"
            ),
        ),
    };
    faults.push(&node.at, fault);
}

const CREDENTIAL: &str = "credential:";
/// A password hash that no password matches.
const NOBODYS: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA";
