//! Members of Proxy-Status (RFC 9209) and Cache-Status (RFC 9211). Members that claim to be from this proxy are removed.

use crate::policy::list::members;
use std::borrow::Cow;

/// The members of a field's value that other proxies have added.
pub(super) fn others(value: &[u8]) -> Cow<'_, str> {
    let value = String::from_utf8_lossy(value);
    if !members(&value).any(is_ours) {
        return value;
    }
    members(&value).filter(|member| !is_ours(member)).collect::<Vec<_>>().join(", ").into()
}

fn is_ours(member: &str) -> bool {
    let name = member.split(';').next().unwrap_or_default().trim();
    name.trim_matches('"').eq_ignore_ascii_case("politely")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_split_at_commas_outside_strings() {
        let list = r#"politely; details="a, \"b, c", other; x="\\", "politely""#;
        let found: Vec<_> = members(list).collect();
        assert_eq!(found, [r#"politely; details="a, \"b, c""#, r#"other; x="\\""#, r#""politely""#]);
        assert_eq!(found.iter().filter(|member| is_ours(member)).count(), 2);
        assert_eq!(others(list.as_bytes()), r#"other; x="\\""#);
    }
}
