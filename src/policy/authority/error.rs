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
    /// There is a space or control character after the host.
    #[error("a URL has no spaces or control characters; a space is written %20")]
    Target,
    /// There is no host.
    #[error("the host is missing")]
    HostMissing,
    /// A byte that no host name has, or a name that IDNA does not allow.
    #[error("the host name has invalid characters")]
    HostCharacters,
    /// A label is empty or over 63 bytes, or the name is over 253.
    #[error("the host name has an empty label, one of over 63 bytes, or more than 253 bytes in all")]
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
