//! Lists in fields (RFC 9110 §5.6.1, RFC 9651 §3.1). Pure.

/// The members of a comma-separated list, without empty members. Commas within quoted strings do not separate members.
pub fn members(list: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = list.split(move |c| {
        let is_quote = c == '"' && !is_escaped;
        is_quoted ^= is_quote;
        is_escaped = is_quoted && c == '\\' && !is_escaped;
        c == ',' && !is_quoted
    });
    parts.map(str::trim).filter(|member| !member.is_empty())
}
