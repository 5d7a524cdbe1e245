//! Keys set by environment variables: `POLITELY_PACE__MAX_WAIT=10s` is `pace.max_wait`.

use std::ffi::OsString;

use super::error::Complaint;
use super::source::{At, Node, Value};

/// A variable that sets a key.
pub(in crate::config) struct Variable {
    pub name: String,
    /// The keys it names, from the top.
    path: Vec<String>,
    value: String,
}

/// Those of the variables that set keys, sections before the keys in them. Empty ones count as not set.
pub(in crate::config) fn variables(all: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let ours = all.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let keys = name.strip_prefix(PREFIX)?;
        if value.is_empty() || NO_KEYS.contains(&keys) || is_service_link(keys) {
            return None;
        }
        let path = keys.split("__").map(str::to_ascii_lowercase).collect();
        // What is not UTF-8 is a fault of the value, not of the name: it becomes one where the value is read.
        Some(Variable { name, path, value: value.to_string_lossy().into_owned() })
    });
    let mut variables: Vec<Variable> = ours.collect();
    variables.sort_by(|a, b| a.path.cmp(&b.path));
    variables
}

/// A warning of each variable that has our prefix and sets no key, because Kubernetes made it.
pub(in crate::config) fn service_links(all: &[(OsString, OsString)]) -> Vec<Complaint> {
    let names = all.iter().filter_map(|(name, _)| name.to_str());
    let links = names.filter(|name| name.strip_prefix(PREFIX).is_some_and(is_service_link));
    let warning = |name: &str| {
        let what = format!("the environment variable `{name}` is not read");
        let hint =
            "Kubernetes makes it for a service named `politely`; `enableServiceLinks: false` in the pod keeps it away";
        Complaint::new(what, hint)
    };
    links.map(warning).collect()
}

/// Lays the variables over the file.
pub(in crate::config) fn overlay(root: &mut Node, variables: &[Variable], faults: &mut Vec<(At, Complaint)>) {
    for (number, variable) in (0..).zip(variables) {
        let at = At::Variable(number);
        match value(&variable.value) {
            Ok(mut node) => {
                node.place_all(at);
                let path: Vec<&str> = variable.path.iter().map(String::as_str).collect();
                root.put(&path, node);
            }
            Err(error) => faults.push((at, Complaint::new(without_place(&error), VALUE_FORMS))),
        }
    }
}

/// Lists, maps and quoted texts are YAML; of the rest only numbers and words of YAML are told apart, so that a plain text
/// may hold what means something in YAML.
fn value(text: &str) -> Result<Node, serde_yaml::Error> {
    let read = Node::read(text);
    if text.starts_with(['[', '{', '"', '\'']) {
        return read.map(|(node, _)| node);
    }
    Ok(match read {
        Ok((node, _)) if !matches!(node.value, Value::Map(_) | Value::List(_) | Value::Text(_)) => node,
        Ok(_) | Err(_) => Node { at: At::Unwritten, value: Value::Text(text.to_owned()) },
    })
}

fn without_place(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// A Kubernetes service named `politely` puts such variables into every pod of its namespace.
fn is_service_link(keys: &str) -> bool {
    keys == "PORT" || ["PORT_", "SERVICE_HOST", "SERVICE_PORT"].iter().any(|link| keys.starts_with(link))
}

const PREFIX: &str = "POLITELY_";
/// Where the file is: read by the command line.
const NO_KEYS: [&str; 1] = ["CONFIG"];
const VALUE_FORMS: &str = "lists and maps are written `[80, 443]` and `{key: value}`; other values as they are";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, &str)]) -> Vec<String> {
        let all = all.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        variables(all).into_iter().map(|variable| variable.name).collect()
    }

    #[test]
    fn sections_come_before_the_keys_in_them() {
        let all = [("POLITELY_PACE__QUEUE", "1"), ("HOME", "/"), ("POLITELY_PACE", "{queue: 2}")];
        assert_eq!(names(&all), ["POLITELY_PACE", "POLITELY_PACE__QUEUE"]);
    }

    #[test]
    fn the_variables_of_a_kubernetes_service_of_our_name_are_not_keys() {
        let all = [
            ("POLITELY_PORT", "tcp://10.0.0.7:3128"),
            ("POLITELY_PORT_3128_TCP_ADDR", "10.0.0.7"),
            ("POLITELY_SERVICE_HOST", "10.0.0.7"),
            ("POLITELY_SERVICE_PORT_PROXY", "3128"),
            ("POLITELY_CONFIG", "/etc/politely/politely.yaml"),
            ("POLITELY_FLEET", ""),
        ];
        assert_eq!(names(&all), Vec::<String>::new());
    }

    #[test]
    fn the_variables_of_a_kubernetes_service_are_warned_of() {
        let all = [("POLITELY_PORT", "tcp://10.0.0.7:3128"), ("POLITELY_MODE", "report"), ("PORT", "1")];
        let warnings = service_links(&all.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].what, "the environment variable `POLITELY_PORT` is not read");
    }

    #[test]
    fn a_plain_text_may_hold_what_means_something_in_yaml() {
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
