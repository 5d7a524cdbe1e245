//! Why a text is not a valid authority.

/// Why a text is not a valid authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The scheme is neither `http` nor `https`.
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    /// The text contains user information: `user@host`, `user:password@host`.
    #[error("a user name or password before the host is not accepted")]
    Userinfo,
    /// The text has a space or control character after the host.
    #[error("a URL has no spaces or control characters; a space is written %20")]
    Target,
    /// The text has no host.
    #[error("the host is missing")]
    HostMissing,
    /// The host has a byte that is not allowed in host names, or IDNA does not allow the name.
    #[error("the host name has invalid characters")]
    HostCharacters,
    /// A label is empty or longer than 63 bytes, or the name is longer than 253 bytes.
    #[error("the host name has an empty label, a label over 63 bytes, or more than 253 bytes in all")]
    HostLength,
    /// The last label is a number, and the host is not an IPv4 address.
    #[error("the host is not a valid IPv4 address")]
    Ipv4,
    /// The host has brackets or colons, and is not an IPv6 address.
    #[error("the host is not a valid IPv6 address")]
    Ipv6,
    /// `fe80::1%eth0`: a zone is meaningful only on one machine (RFC 9844).
    #[error("an IPv6 address with a zone is not accepted")]
    Zone,
    /// The port is not a decimal number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// A CONNECT target has no port.
    #[error("the port is missing")]
    PortMissing,
}
