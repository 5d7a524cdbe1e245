//! In tests, counts the steps that reading a configuration takes. The number of steps must be proportional to the configuration's length,
//! whatever the configuration contains.

/// Counts one step: a value read, a key looked up, or a host compared.
#[cfg(not(test))]
pub(super) fn step() {}

#[cfg(test)]
pub(super) use tests::step;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::config::Settings;
    use crate::tests::memory::{peak, taken as allocated};

    thread_local!(static TAKEN: Cell<u64> = const { Cell::new(0) });

    pub(in crate::config) fn step() {
        TAKEN.set(TAKEN.get() + 1);
    }

    /// The number of steps that reading a file takes, even if the file has faults.
    fn taken(yaml: &str) -> u64 {
        TAKEN.set(0);
        drop(Settings::parse("politely.yaml", yaml));
        TAKEN.get()
    }

    #[test]
    fn reading_a_configuration_takes_linear_steps() {
        const USER: &str = "name: a, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA'";
        let many = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
        let shapes: [(&str, &dyn Fn(usize) -> String); 11] = [
            ("hosts", &|n| format!("hosts:\n{}", many(n, &|i| format!("  h{i}.example: {{ crawl_delay: 1s }}\n")))),
            ("patterns", &|n| format!("hosts:\n{}", many(n, &|i| format!("  '*.h{i}.example': {{ deny: [/x] }}\n")))),
            ("hosts at fault", &|n| format!("hosts:\n{}", many(n, &|i| format!("  h{i}.example: {{ crawl: 1s }}\n")))),
            ("budgets", &|n| {
                format!("hosts:\n{}", many(n, &|i| format!("  h{i}.example: {{ budget: {{ per: day }} }}\n")))
            }),
            ("one key", &|n| many(n, &|_| "mode: report\n".to_owned())),
            ("one host", &|n| format!("hosts:\n{}", many(n, &|i| format!("  H.example{}: {{}}\n", ["", "."][i % 2])))),
            ("unknown keys", &|n| many(n, &|i| format!("key{i}: 1\n"))),
            ("intercepted", &|n| {
                format!("intercept:\n  hosts:\n{}", many(n, &|i| format!("    h{i}.example: tunnel\n")))
            }),
            ("a user's hosts", &|n| {
                let hosts = |delay: &str| many(n, &|i| format!("  h{i}.example: {{ crawl_delay: {delay} }},\n"));
                let (all, own) = (hosts("1s"), hosts("2s"));
                format!("hosts: {{\n{all}  }}\naccess: {{ users: [{{ {USER}, hosts: {{\n{own}  }} }}] }}\n")
            }),
            ("a user's patterns", &|n| {
                let hosts = |delay: &str| many(n, &|i| format!("  '*.h{i}.example': {{ crawl_delay: {delay} }},\n"));
                let (all, own) = (hosts("1s"), hosts("2s"));
                format!("hosts: {{\n{all}  }}\naccess: {{ users: [{{ {USER}, hosts: {{\n{own}  }} }}] }}\n")
            }),
            ("users and hosts", &|n| {
                let all = many(n, &|i| format!("  h{i}.example: {{ deny: [/x] }},\n"));
                let user = |i: usize| {
                    format!(
                        "  {{ {}, hosts: {{ '*': {{ crawl_delay: 2s }} }} }},\n",
                        USER.replace("a,", &format!("a{i},"))
                    )
                };
                format!("hosts: {{\n{all}  }}\naccess: {{ users: [\n{}] }}\n", many(n, &user))
            }),
        ];
        for (name, shape) in shapes {
            let [few, ten_times] = [200, 2000].map(|count| taken(&shape(count)));
            assert!(few >= 200 && ten_times <= 11 * few, "{name}: {few} and {ten_times} steps");
        }
    }

    /// The tree of a large configuration is freed once its settings are built.
    #[test]
    fn host_entry_takes_hundreds_of_bytes_while_loaded_and_fewer_afterwards() {
        drop(Settings::default());
        for count in [100, 1000, 10_000] {
            let hosts = |i| format!("  host-{i}.example: {{ crawl_delay: {}s }}\n", i % 20 + 1);
            let yaml = format!("hosts:\n{}", (0..count).map(hosts).collect::<String>());
            let begin = allocated();
            let (settings, most) = peak(|| Settings::parse("politely.yaml", &yaml).unwrap());
            let kept = allocated() - begin;
            // Memory for the other sections.
            let room = 100_000;
            assert!(kept < 400 * count + room && most < 3000 * count + room, "{count}: {kept}, at most {most}");
            drop(settings);
        }
    }

    /// `Hosts::tls` runs at each start and reload.
    #[test]
    fn tls_terms_of_hosts_take_linear_steps() {
        let taken = |count: usize| {
            let hosts =
                |entry: &str| (0..count).map(|i| format!("  h{i}.example: {{ {entry} }},\n")).collect::<String>();
            let (all, own) = (hosts("deny: [/x]"), hosts("tls: legacy"));
            let user = format!(
                "name: a, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$RdescudvJCsgt3ub+b27rA', hosts: {{\n{own}  }}"
            );
            let yaml = format!("hosts: {{\n{all}  }}\naccess: {{ users: [{{ {user} }}] }}\n");
            let settings = Settings::parse("politely.yaml", &yaml).unwrap();
            TAKEN.set(0);
            assert_eq!(settings.access.users[0].hosts.as_ref().unwrap().tls().count(), 2 * count);
            TAKEN.get()
        };
        let [few, ten_times] = [100, 1000].map(taken);
        assert!(few >= 100 && ten_times <= 11 * few, "{few} and {ten_times} steps");
    }
}
