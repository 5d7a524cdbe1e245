//! Applies the settings of a reload: settings that need a restart keep their old value. Lists the changed keys.

use serde::Serialize;
use serde_json::Value;

use super::comparison::{key_path, plain};
use super::display::Whole;
use super::settings::Settings;

/// The keys that a reload changed, such as `pace.max_wait`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Keys whose new value is in force.
    pub changed: Vec<String>,
    /// Keys whose new value needs a restart.
    pub needs_restart: Vec<String>,
}

impl Settings {
    /// Replaces the settings `before` of a running proxy; settings that need a restart keep their old value. `may_join_fleet`: whether the
    /// proxy was started in a fleet.
    pub fn in_place_of(mut self, before: &Self, may_join_fleet: bool) -> (Self, Changes) {
        // `disk: 0` means that there is no store, which a reload can neither create nor remove.
        let is_disk_fixed = (self.store.disk == 0) != (before.store.disk == 0);
        // A reload can change or drop a fleet's servers, but neither begin a fleet nor switch between one server and two.
        let (now, then) = (&self.fleet, &before.fleet);
        let is_split = now.copies_apart().is_some() != then.copies_apart().is_some() && now.paces().is_some();
        let is_fleet_fixed = !may_join_fleet || is_split;
        let fixed = [
            (&["admin", "address"][..], keep(&mut self.admin.address, &before.admin.address)),
            (&["admin", "token_file"], keep(&mut self.admin.token_file, &before.admin.token_file)),
            (&["identity", "instance"], keep(&mut self.identity.instance, &before.identity.instance)),
            (&["store", "directory"], keep(&mut self.store.directory, &before.store.directory)),
            (&["store", "disk"], is_disk_fixed && keep(&mut self.store.disk, &before.store.disk)),
            // With a new key, the delays owed to hosts would be lost, and requests in flight would count for the old key.
            (&["pace", "key"], keep(&mut self.pace.key, &before.pace.key)),
            (&["cache", "directory"], keep(&mut self.cache.directory, &before.cache.directory)),
            (&["evidence", "directory"], keep(&mut self.evidence.directory, &before.evidence.directory)),
            (&["fleet", "url"], is_fleet_fixed && keep(&mut self.fleet.url, &before.fleet.url)),
            (&["fleet", "pace"], is_fleet_fixed && keep(&mut self.fleet.pace, &before.fleet.pace)),
            (&["fleet", "copies"], is_fleet_fixed && keep(&mut self.fleet.copies, &before.fleet.copies)),
        ];
        let fixed: Vec<_> = fixed.into_iter().filter(|(_, is_different)| *is_different).map(|(path, _)| path).collect();
        let (mut all, earlier) = (self.whole.all(), before.whole.all());
        for path in &fixed {
            *path.iter().fold(&mut all, |value, key| &mut value[key]) =
                path.iter().fold(&earlier, |value, key| &value[key]).clone();
        }
        let mut changed = Vec::new();
        compare(&earlier, &all, "", &mut changed);
        self.whole = Whole::of(all);
        let needs_restart = fixed.iter().map(|path| path.join(".")).collect();
        (self, Changes { changed, needs_restart })
    }
}

/// Restores the old value. Returns whether it was different.
fn keep<T: PartialEq + Clone>(now: &mut T, before: &T) -> bool {
    let is_different = now != before;
    if is_different {
        now.clone_from(before);
    }
    is_different
}

/// Collects the keys that differ; a list is one value.
fn compare(before: &Value, now: &Value, path: &str, into: &mut Vec<String>) {
    let (Value::Object(before), Value::Object(now)) = (before, now) else {
        if plain(before) != plain(now) {
            into.push(path.to_owned());
        }
        return;
    };
    let new = now.keys().filter(|key| !before.contains_key(*key));
    for key in before.keys().chain(new) {
        let path = key_path(path, key);
        let (before, now) = (before.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null));
        compare(before, now, &path, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &str, now: &str) -> (Settings, Changes) {
        let settings = |text| Settings::parse("test.yaml", text).unwrap();
        settings(now).in_place_of(&settings(before), false)
    }

    fn changed(before: &str, now: &str) -> Vec<String> {
        let (_, Changes { changed, needs_restart }) = changes(before, now);
        assert!(needs_restart.is_empty(), "{needs_restart:?}");
        changed
    }

    #[test]
    fn each_changed_key_is_named() {
        assert_eq!(changed("", ""), Vec::<String>::new());
        assert_eq!(
            changed("", "pace: { max_wait: 60s, queue: 10 }\nmode: report"),
            ["mode", "pace.queue"].map(String::from)
        );
        let hosts = "hosts: { '*.a.example': { crawl_delay: 1s } }";
        assert_eq!(changed("", hosts), ["hosts[\"*.a.example\"]"]);
        assert_eq!(changed(hosts, ""), ["hosts[\"*.a.example\"]"]);
        assert_eq!(changed("egress: { ports: [80] }", "egress: { ports: [443] }"), ["egress.ports"]);
    }

    #[test]
    fn same_value_in_another_unit_is_not_a_change() {
        let before =
            "pace: { max_wait: 60s }\nstore: { memory: 1MiB, disk: 1024 }\nhosts: { a.example: { crawl_delay: 0 } }";
        let now =
            "pace: { max_wait: 1m }\nstore: { memory: 1024KiB, disk: 1KiB }\nhosts: { a.example: { crawl_delay: 0s } }";
        assert_eq!(changed(before, now), Vec::<String>::new());
        assert_eq!(changed(before, &now.replace("1m", "61s")), ["pace.max_wait"]);
        let list = |ports| format!("egress: {{ ports: {ports} }}");
        assert_eq!(changed(&list("[80, 443]"), &list("[443, 80]")), ["egress.ports"]);
    }

    #[test]
    fn hidden_password_change_is_reported() {
        let user = |salt: &str| {
            format!(
                "access: {{ users: [{{ name: a, password: '$argon2id$v=19$m=8,t=1,p=1${salt}$AAAAAAAAAAAAAAAAAAAAAA' }}] }}"
            )
        };
        assert_eq!(changed(&user("c29tZXNhbHQ"), &user("b3RoZXJzYWx0")), ["access.users"]);
    }

    #[test]
    fn changing_the_number_of_fleet_servers_requires_a_restart() {
        let settings = |text| Settings::parse("test.yaml", text).unwrap();
        let fixed = |before, now| settings(now).in_place_of(&settings(before), true).1.needs_restart;
        let [one, two, other] = [
            "url: 'redis://a/'",
            "pace: 'redis://a/', copies: 'redis://b/'",
            "pace: 'redis://b/', copies: 'redis://c/'",
        ]
        .map(|fleet| format!("fleet: {{ {fleet} }}"));
        assert_eq!(fixed(&one, &two), ["fleet.url", "fleet.pace", "fleet.copies"]);
        assert_eq!(fixed(&two, &one), ["fleet.url", "fleet.pace", "fleet.copies"]);
        for (before, now) in [(&two, &other), (&two, &String::new()), (&one, &String::new())] {
            assert!(fixed(before, now).is_empty(), "{before} {now}");
        }
    }

    #[test]
    fn settings_that_require_a_restart_are_kept_and_listed() {
        let now = "admin: { address: '127.0.0.1:9' }\nintercept: { ca: { directory: /x } }\n\
             store: { directory: /y, disk: 0, memory: 2MiB }\ncache: { directory: /c, size: 2MiB }\n\
             evidence: { directory: /z, keep: 1d }\nfleet: redis://127.0.0.1:1/";
        let (settings, Changes { changed, needs_restart }) = changes("", now);
        assert_eq!(changed, ["cache.size", "evidence.keep", "intercept.ca.directory", "store.memory"]);
        assert_eq!(
            needs_restart,
            ["admin.address", "store.directory", "store.disk", "cache.directory", "evidence.directory", "fleet.url"]
        );
        let before = Settings::default();
        assert_eq!(settings.admin, before.admin);
        assert_eq!((settings.fleet.paces().is_none(), settings.store.disk), (true, before.store.disk));
        for key in ["admin", "fleet"] {
            assert_eq!(settings.shown()[key], before.shown()[key], "{key}");
        }
        assert_eq!(settings.shown()["store"]["memory"], "2MiB");
    }
}
