//! docs/configuration.md: made of the file that is shipped, and of what the program itself says of each key.
//! `UPDATE=1 cargo test --test it config::reference` writes it again.

use super::*;

/// Facts about a key, found by parsing configurations with it.
struct Key {
    kind: String,
    needs_restart: bool,
}

#[test]
fn configuration_reference_matches_file_and_program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let made = reference(CONF);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, &made).unwrap();
    }
    let there = fs::read_to_string(&page).unwrap_or_default();
    let differs = made.lines().zip(there.lines()).find(|(made, there)| made != there);
    assert!(made == there, "UPDATE=1 cargo test --test it config::reference writes docs/configuration.md: {differs:?}");
}

fn reference(file: &str) -> String {
    let mut out = String::from(HEAD);
    let (mut path, mut comment, mut section, mut is_head) = (Vec::<String>::new(), Vec::new(), String::new(), true);
    // With an end to the last key's comments.
    for line in file.lines().chain([""]) {
        let text = line.trim_start();
        if let Some(said) = text.strip_prefix('#') {
            comment.push(said.strip_prefix(' ').unwrap_or(said));
            continue;
        }
        if text.is_empty() {
            put_comment(&mut out, &mut comment, &[]);
            is_head = false;
            continue;
        }
        assert!(!is_head, "the head of the file ends with an empty line");
        let item = text.strip_prefix("- ").unwrap_or(text);
        let depth = if path.first().is_some_and(|first| first == "listen") && item != line {
            1
        } else {
            (line.len() - item.len()) / 2
        };
        let (name, default) = item.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        path.truncate(depth);
        path.push(name.to_owned());
        put_key(&mut out, &path, default.trim(), &mut comment, &mut section);
    }
    out
}

/// A key's heading, what it does, its facts. A section has keys of its own in their place.
fn put_key(out: &mut String, path: &[String], default: &str, comment: &mut Vec<&str>, section: &mut String) {
    let is_section = default.is_empty();
    if is_section || path.len() == 1 {
        *section = comment.join(" ");
    }
    let is_of_list = path[0] == "listen" && path.len() > 1;
    let name = if is_of_list { format!("listen[].{}", path[1..].join(".")) } else { path.join(".") };
    let level = if path.len() == 1 { "##" } else { "###" };
    let shown = if is_section { name } else { format!("{name}: {default}") };
    *out += &format!("\n{level} `{shown}`\n");
    let words = match is_section {
        true => Vec::new(),
        false => {
            let key = ask(path);
            let words: Vec<String> = key.kind.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            let said = format!("{} {section}", comment.join(" "));
            let is_said = |word: &String| {
                said.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c)).any(|said| said == word)
            };
            let has_example = comment.iter().any(|line| line.contains(['[', '{']) && !line.starts_with("[]"));
            put_facts(out, default, &key, has_example || !words.is_empty() && words.iter().all(is_said));
            words
        }
    };
    put_comment(out, comment, &words);
    match (path[0].as_str(), path.len()) {
        ("access", 2) if path[1] == "users" => {
            let entry = |keys: &str| format!("access: {{ users: [{{ {keys} }}] }}");
            put_entry(out, keys(entry));
        }
        ("hosts", 1) => {
            let at = |key: &str| format!("hosts: {{ a.example: {{ {key} }} }}");
            put_entry(out, keys(at));
        }
        _ => {}
    }
}

/// The type, where neither default nor comment show it, and whether a change needs a restart.
fn put_facts(out: &mut String, default: &str, key: &Key, is_said: bool) {
    let kind = match (default, key.kind.as_str()) {
        _ if is_said => String::new(),
        ("{}", "map of keys") => "map of entries".to_owned(),
        ("{}", each) => format!("map to {each}"),
        ("null" | "[]" | "\"\"", kind) => kind.to_owned(),
        (_, kind) if kind.contains('`') && !["true", "false"].contains(&default) => kind.to_owned(),
        _ => String::new(),
    };
    let change = if key.needs_restart { "needs a restart" } else { "" };
    let facts: Vec<&str> = [kind.as_str(), change].into_iter().filter(|fact| !fact.is_empty()).collect();
    if !facts.is_empty() {
        *out += &format!("\n{}\n", facts.join("; "));
    }
}

/// The keys that an entry of a list or a map has.
fn put_entry(out: &mut String, keys: BTreeSet<String>) {
    let keys: Vec<String> = keys.into_iter().map(|key| format!("`{key}`")).collect();
    *out += &format!("\nKeys of an entry: {}.\n", keys.join(", "));
}

/// Writes a comment as Markdown: paragraphs, the values of a key as a list, and indented text unchanged.
fn put_comment(out: &mut String, comment: &mut Vec<&str>, words: &[String]) {
    let (mut is_literal, mut is_open) = (false, false);
    for line in comment.drain(..) {
        let value = line.split(':').next().filter(|value| words.iter().any(|word| word == value));
        let goes_on = words.iter().any(|word| line.starts_with(&" ".repeat(word.len() + 1))) && !is_literal && is_open;
        match (line.starts_with(' ') && !goes_on, value) {
            (true, _) => {
                *out += if is_literal { "" } else { "\n```\n" };
                (is_literal, is_open) = (true, false);
                *out += &format!("{}\n", line.strip_prefix("  ").unwrap_or(line.trim_start()));
                continue;
            }
            (false, Some(value)) => {
                *out += if is_open { "" } else { "\n" };
                *out += &format!("- `{value}`:{}\n", &line[value.len() + 1..].replace("  ", " "));
                is_open = true;
                continue;
            }
            (false, None) => {}
        }
        if is_literal {
            *out += "```\n";
            is_literal = false;
        }
        *out += match (line.is_empty(), is_open) {
            (true, _) | (false, true) => "",
            (false, false) => "\n",
        };
        is_open = !line.is_empty();
        if is_open {
            *out += &format!("{}{}\n", if goes_on { "  " } else { "" }, line.trim_start());
        }
    }
    if is_literal {
        *out += "```\n";
    }
}

/// Finds out about a key by parsing configurations with it.
fn ask(path: &[String]) -> Key {
    let at = |value: &str| {
        let mut yaml = value.to_owned();
        for (depth, key) in path.iter().enumerate().rev() {
            yaml = match (path[0].as_str(), depth) {
                ("listen", 1) if key == "tls" => format!("[{{ address: 127.0.0.1:1, tls: {yaml} }}]"),
                // Without a key there is nothing to publish.
                ("listen", 1) if key == "directory" => {
                    yaml = format!("[{{ address: 127.0.0.1:1, directory: {yaml} }}]");
                    return format!(
                        "listen: {yaml}\nidentity: {{ signature: {{ key: /x, agent: 'https://a.example' }} }}"
                    );
                }
                ("listen", 1) => format!("[{{ {key}: {yaml} }}]"),
                (_, 0) => format!("{key}: {yaml}"),
                // The one is nothing without the other.
                ("intercept", 2) if key == "certificate" => format!("{{ certificate: {yaml}, key: /x }}"),
                ("intercept", 2) if key == "key" => format!("{{ certificate: /x, key: {yaml} }}"),
                ("fleet", 1) if key == "pace" => format!("{{ pace: {yaml}, copies: 'redis://192.0.2.2/0' }}"),
                ("fleet", 1) if key == "copies" => format!("{{ pace: 'redis://192.0.2.2/0', copies: {yaml} }}"),
                // Without an agent nobody could find them.
                ("identity", 1) if key == "addresses" => {
                    format!("{{ signature: {{ key: /x, agent: 'https://a.example' }}, {key}: {yaml} }}")
                }
                ("identity", 2) if key == "key" => format!("{{ key: {yaml}, agent: 'https://a.example' }}"),
                ("identity", 2) if key == "agent" => format!("{{ key: /x, agent: {yaml} }}"),
                ("identity", 2) => format!("{{ key: /x, agent: 'https://a.example', {key}: {yaml} }}"),
                _ => format!("{{ {key}: {yaml} }}"),
            };
        }
        yaml
    };
    let kind = kind(at);
    let words: Vec<String> = kind.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let words = words.iter().map(String::as_str);
    let values = VALUES.into_iter().chain(words).filter_map(|value| Settings::parse("test.yaml", &at(value)).ok());
    let mut changes = values.map(|settings| settings.in_place_of(&Settings::default(), false).1);
    let change = changes.find(|change| !change.changed.is_empty() || !change.needs_restart.is_empty());
    // `include` itself is not a change, only the settings of the included file.
    assert!(change.is_some() || path == ["include"], "no value that changes {path:?} is known here");
    let needs_restart = change.is_some_and(|change| !change.needs_restart.is_empty());
    Key { kind, needs_restart }
}

/// The kind of value that the program expects, by its error message.
fn kind(at: impl Fn(&str) -> String) -> String {
    let ask = |value: &str| -> (String, String) {
        let all = short(&at(value));
        let said = all.iter().find(|said| said.contains("expected ") || said.contains("keys here"));
        let (what, hint) = said.and_then(|said| said.split_once(" | ")).unwrap_or_else(|| panic!("{value}: {all:?}"));
        let what = what.split_once("expected ").map_or("", |(_, what)| what);
        (what.split(", found").next().unwrap().to_owned(), hint.to_owned())
    };
    let (what, hint) = ask("{ qqqqqqqq: 1 }");
    match what.as_str() {
        "one word" => hint.trim_start_matches("write ").to_owned(),
        "a list" => match at("[{ qqqqqqqq: 1 }]") {
            entry if short(&entry).iter().any(|said| said.contains("keys here")) => "list of entries".to_owned(),
            _ => format!("list, each {}", ask("[{ qqqqqqqq: 1 }]").0),
        },
        // A map: of the keys named in the hint, or of any keys.
        "" => hint.replace("the keys here are ", "map of "),
        what => without_article(what).to_owned(),
    }
}

fn without_article(text: &str) -> &str {
    text.strip_prefix("a ").or(text.strip_prefix("an ")).unwrap_or(text)
}

/// Values to try: each key accepts one of them, or one of its own words, that is not its default.
const VALUES: [&str; 26] = [
    "7s",
    "7h",
    "7MiB",
    "700KiB",
    "7",
    "451",
    "403",
    "true",
    "/x",
    "[/x]",
    "[x]",
    "[GET]",
    "[10.0.0.0/8]",
    "[81]",
    "off",
    "127.0.0.1:9",
    "x",
    "http://192.0.2.1:3128",
    "https://192.0.2.1",
    "redis://192.0.2.1/0",
    "{ certificate: /x, key: /x }",
    "{}",
    "{ ai-train: [x] }",
    "{ a.example: tunnel }",
    "{ a.example: { intercept: tunnel } }",
    "[{ name: a, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA' }]",
];

const HEAD: &str = "# Configuration reference\n\n\
    <!-- Made of conf/politely.yaml by `UPDATE=1 cargo test --test it config::reference`: change that file. -->\n\n\
    A change takes effect on reload, unless it needs a restart.\n";
