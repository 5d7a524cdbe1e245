//! Keys set by environment variables (`POLITELY_PACE__MAX_WAIT=10s` is `pace.max_wait`) and by arguments (`--set
//! pace.max_wait=10s`).

use std::ffi::{OsStr, OsString};

use super::error::{Complaint, ConfigPlace, Faults, nearest};
use super::key_kind::KeyKind;
use super::text::without_place;
use super::tree::{Value, YamlNode};

/// An argument of the command line, or a variable, that sets a key.
#[derive(Clone, Debug)]
pub struct KeyArgument {
    /// The name in errors, such as `--min-delay`.
    pub name: String,
    /// The full key, such as `pace.min_delay`.
    pub key: String,
    /// The value, in the form used in the environment.
    pub value: String,
}

impl KeyArgument {
    /// The keys that lead to the value, from the top.
    fn path(&self) -> Vec<&str> {
        self.key.split('.').collect()
    }

    /// Whether this is a variable, not an argument.
    pub(in crate::config) fn is_of_environment(&self) -> bool {
        self.name.starts_with(PREFIX)
    }

    /// The keys up to this depth, as a variable or argument would name them.
    fn section(&self, depth: usize) -> String {
        let keys = self.path()[..depth].join(".");
        match self.is_of_environment() {
            true => format!("{PREFIX}{}", keys.replace('.', "__").to_ascii_uppercase()),
            false => format!("--set {keys}"),
        }
    }
}

/// Whether the variable has our prefix.
pub(in crate::config) fn has_prefix(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
}

/// Whether the variable sets no key, but is read by the command line.
pub(in crate::config) fn sets_no_key(name: &OsStr) -> bool {
    name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|keys| NO_KEYS.contains(&keys))
}

/// Returns the variables that set keys, sorted so that a section comes before its keys; and a warning for each variable with our prefix
/// that names no key. Empty variables count as not set. `all_keys`: a configuration with every key.
pub(in crate::config) fn variables(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    all_keys: &YamlNode,
) -> (Vec<KeyArgument>, Vec<Complaint>) {
    let (mut variables, mut warnings) = (Vec::new(), Vec::new());
    for (name, value) in all {
        let Ok(name) = name.into_string() else { continue };
        let Some(keys) = name.strip_prefix(PREFIX).filter(|keys| !value.is_empty() && !NO_KEYS.contains(keys)) else {
            continue;
        };
        let key = keys.to_ascii_lowercase().replace("__", ".");
        match unknown(all_keys, &key) {
            // Where a value is not UTF-8, it gets replacement characters, which `overlay` refuses.
            None => variables.push(KeyArgument { value: value.to_string_lossy().into_owned(), name, key }),
            Some(hint) => {
                let hint = if is_service_link(keys) { SERVICE_LINK.to_owned() } else { hint };
                warnings.push(Complaint::new(format!("the environment variable `{name}` is not a setting"), hint));
            }
        }
    }
    variables.sort_by(|a, b| a.path().cmp(&b.path()));
    warnings.sort_by(|a, b| a.what.cmp(&b.what));
    (variables, warnings)
}

/// The hint for a variable that names no key. `None`: the variable names a key, or reading the section will tell whether it does.
fn unknown(mut section: &YamlNode, key: &str) -> Option<String> {
    let mut path: Vec<&str> = key.split('.').collect();
    for depth in 0..path.len() {
        let keys = match &section.value {
            Value::Map(keys) => keys,
            // This section is not set by default: reading it reports an unknown key.
            Value::Null if SECTIONS.contains(&&*path[..depth].join(".")) => return None,
            _ => return Some(format!("there are no keys below `{}`", path[..depth].join("."))),
        };
        // A variable's name cannot contain a key such as a host: `overlay` reports such a variable as an error.
        if keys.is_empty() {
            return None;
        }
        let Some(value) = keys.get(path[depth]).map(|entry| &entry.1) else {
            let known: Vec<&str> = keys.keys().map(String::as_str).collect();
            let Some(key) = nearest(path[depth], &known) else {
                return Some(format!("each key is `{PREFIX}` and its name, with `__` between section and key"));
            };
            path[depth] = key;
            return Some(format!("did you mean `{PREFIX}{}`?", path.join("__").to_ascii_uppercase()));
        };
        section = value;
    }
    None
}

/// Lays the variables over the file. `all_keys`: as for [`variables`].
pub(in crate::config) fn overlay(
    root: &mut YamlNode,
    variables: &[KeyArgument],
    all_keys: &YamlNode,
    faults: &mut Faults,
) {
    for variable in variables {
        let (at, path) = (ConfigPlace::Variable(variable.name.as_str().into()), variable.path());
        if variable.value.contains(char::REPLACEMENT_CHARACTER) {
            faults.push(&at, Complaint::new("the value is not UTF-8, or contains U+FFFD", "write it in UTF-8"));
            continue;
        }
        let open = (1..path.len())
            .find(|depth| matches!(&all_keys.along(&path[..*depth]).value, Value::Map(keys) if keys.is_empty()));
        if let Some(depth) = open {
            let section = variable.section(depth);
            let (noun, map) = KeyKind::at(path[depth - 1]).example();
            let hint = format!(
                "the name of a key or variable cannot contain a {noun}: set the whole map in one value, such as `{section}='{map}'`"
            );
            faults.push(&at, Complaint::new(format!("a {noun} cannot be named below `{section}`"), hint));
            continue;
        }
        match value(&variable.value, path[path.len() - 1], &at, faults) {
            Ok(node) => root.set(&path, node),
            Err(error) => faults.push(&at, Complaint::new(without_place(&error.to_string()), VALUE_FORMS)),
        }
    }
}

/// Parses a value. A list, map or quoted text is read as YAML. Any other value is a YAML number or word, or else a plain text, which may
/// contain characters that are special in YAML.
fn value(text: &str, key: &str, at: &ConfigPlace, faults: &mut Faults) -> Result<YamlNode, serde_yaml::Error> {
    if text.starts_with(['[', '{', '"', '\'']) {
        return YamlNode::read(text, key, &|_| at.clone(), faults);
    }
    Ok(match YamlNode::read(text, key, &|_| at.clone(), &mut Faults::default()) {
        Ok(node) if !matches!(node.value, Value::Map(_) | Value::List(_) | Value::Text(_)) => node,
        Ok(_) | Err(_) => YamlNode::new(at.clone(), Value::Text(text.to_owned())),
    })
}

/// Whether Kubernetes sets this variable, as it does in every pod of a namespace with a service named `politely`.
fn is_service_link(keys: &str) -> bool {
    keys == "PORT" || ["PORT_", "SERVICE_HOST", "SERVICE_PORT"].iter().any(|link| keys.starts_with(link))
}

/// Sections that are not set by default.
const SECTIONS: [&str; 3] = ["pace.adaptive", "pace.breaker", "pace.budget"];
const PREFIX: &str = "POLITELY_";
/// Variables that set no key: `POLITELY_CONFIG`, the path of the configuration file, which the command line reads.
const NO_KEYS: [&str; 1] = ["CONFIG"];
const SERVICE_LINK: &str =
    "Kubernetes sets it for a service named `politely`; `enableServiceLinks: false` in the pod prevents this";
const VALUE_FORMS: &str = "lists and maps are written `[80, 443]` and `{key: value}`; other values as they are";

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of variables that set keys, and the warnings.
    fn read(all: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let all = all.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let keys = "pace: { queue: 1, max_wait: 1s, budget: null }\nhosts: {}\nmode: enforce\nfleet: null\n";
        let keys = YamlNode::read(keys, "", &|_| ConfigPlace::Unwritten, &mut Faults::default()).unwrap();
        let (variables, warnings) = variables(all, &keys);
        let warning = |warning: Complaint| format!("{} | {}", warning.what, warning.hint);
        (variables.into_iter().map(|variable| variable.name).collect(), warnings.into_iter().map(warning).collect())
    }

    #[test]
    fn sections_come_before_the_keys_in_them() {
        let all = [("POLITELY_PACE__QUEUE", "1"), ("HOME", "/"), ("POLITELY_PACE", "{queue: 2}")];
        assert_eq!(read(&all).0, ["POLITELY_PACE", "POLITELY_PACE__QUEUE"]);
    }

    #[test]
    fn unknown_politely_variable_causes_a_warning() {
        for (name, hint) in [
            ("POLITELY_PACE__MAX_WIAT", "did you mean `POLITELY_PACE__MAX_WAIT`?"),
            ("POLITELY_PAEC__MAX_WAIT", "did you mean `POLITELY_PACE__MAX_WAIT`?"),
            ("POLITELY_MODE__X", "there are no keys below `mode`"),
            ("POLITELY_FLEET__X", "there are no keys below `fleet`"),
            ("POLITELY_HOME", "each key is `POLITELY_` and its name, with `__` between section and key"),
            ("POLITELY_PORT", SERVICE_LINK),
            ("POLITELY_PORT_3128_TCP_ADDR", SERVICE_LINK),
            ("POLITELY_SERVICE_HOST", SERVICE_LINK),
            ("POLITELY_SERVICE_PORT_PROXY", SERVICE_LINK),
        ] {
            let warning = format!("the environment variable `{name}` is not a setting | {hint}");
            assert_eq!(read(&[(name, "1")]), (vec![], vec![warning]));
        }
    }

    #[test]
    fn empty_and_foreign_variables_are_ignored() {
        let all = [("POLITELY_CONFIG", "/etc/politely/politely.yaml"), ("POLITELY_FLEET", ""), ("PORT", "1")];
        assert_eq!(read(&all), (vec![], vec![]));
        for name in ["POLITELY_HOSTS__EXAMPLE", "POLITELY_PACE__BUDGET__REQUESTS"] {
            assert_eq!(read(&[(name, "{robots: ignore}")]), (vec![name.to_owned()], vec![]));
        }
    }

    #[test]
    fn plain_values_may_contain_yaml_syntax() {
        let value = |text| value(text, "", &ConfigPlace::Unwritten, &mut Faults::default());
        for text in ["a: b", "*", "https://a.example/ # b", "@x", "10s", "- x", "!t"] {
            assert_eq!(value(text).unwrap().text(), Some(text));
        }
        assert!(matches!(value("443").unwrap().value, Value::Unsigned(443)));
        assert!(matches!(value("[80, 443]").unwrap().value, Value::List(_)));
        assert!(matches!(value("null").unwrap().value, Value::Null));
        assert_eq!(value("\"443\"").unwrap().text(), Some("443"));
        assert!(value("[80").is_err());
    }
}
