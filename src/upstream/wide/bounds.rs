//! Limits on what an origin may have OpenSSL compute in one go: about ten milliseconds, as other requests wait meanwhile.
//! Diffie-Hellman groups take by far the most (10,000 bits: a second); RSA keys and curves take one or two milliseconds at any size
//! that OpenSSL accepts.

use crate::tls_provider::MAX_CHAIN;
use foreign_types::ForeignTypeRef;
use openssl::nid::Nid;
use openssl::ssl::{SslContextBuilder, SslRef};
use openssl::x509::{X509Ref, X509StoreContextRef, X509VerifyResult};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Rejects larger groups and longer certificate chains, before any computation with them.
pub(super) fn set(context: &mut SslContextBuilder) {
    let context = context.as_ptr().cast();
    // SAFETY: the context is alive, and our function has the signature of the callback that it replaces.
    unsafe {
        SSL_CTX_ctrl(context, SET_MAX_CERT_LIST, MAX_CHAIN as c_long, null_mut());
        if let Some(default) = SSL_CTX_get_security_callback(context) {
            DEFAULT.get_or_init(|| default);
            SSL_CTX_set_security_callback(context, Some(allows));
        }
    }
}

/// Whether the origin has sent close_notify. Without it, its data may have been truncated.
pub fn received_close_notify(ssl: &SslRef) -> bool {
    // SAFETY: only reads a number.
    unsafe { SSL_get_shutdown(ssl.as_ptr().cast()) & RECEIVED_SHUTDOWN != 0 }
}

/// The limits of `tls: legacy`, where OpenSSL has none: RSA keys of at least 1024 bits and equally strong curves, no signature with MD5
/// or older. The self-signature of a root does not count.
pub(super) fn verify_legacy(is_good: bool, context: &mut X509StoreContextRef) -> bool {
    let depth = context.error_depth();
    let is_root = context.chain().is_some_and(|chain| chain.len() == depth as usize + 1);
    let fault = match context.current_cert() {
        Some(shown) if is_good => legacy_fault(shown, depth, is_root),
        _ => None,
    };
    if let Some(fault) = fault {
        context.set_error(fault);
    }
    is_good && fault.is_none()
}

fn legacy_fault(shown: &X509Ref, depth: u32, is_root: bool) -> Option<X509VerifyResult> {
    let key = shown.public_key().map_or(0, |key| key.security_bits());
    let digest = shown.signature_algorithm().object().nid().signature_algorithms().map(|used| used.digest);
    let fault = match depth {
        _ if !is_root && digest.is_some_and(|digest| BROKEN_DIGESTS.contains(&digest)) => CA_MD_TOO_WEAK,
        0 if key < LEGACY_KEY_BITS => EE_KEY_TOO_SMALL,
        _ if key < LEGACY_KEY_BITS => CA_KEY_TOO_SMALL,
        _ => return None,
    };
    // SAFETY: `fault` is one of OpenSSL's constants.
    Some(unsafe { X509VerifyResult::from_raw(fault) })
}

/// `SSL_CTX_set_security_callback(3)`: whether something of this strength may be used.
type SecurityCallback = unsafe extern "C" fn(
    ssl: *const c_void,
    context: *const c_void,
    operation: c_int,
    bits: c_int,
    nid: c_int,
    other: *mut c_void,
    extra: *mut c_void,
) -> c_int;

unsafe extern "C" fn allows(
    ssl: *const c_void,
    context: *const c_void,
    operation: c_int,
    bits: c_int,
    nid: c_int,
    other: *mut c_void,
    extra: *mut c_void,
) -> c_int {
    if operation == TMP_DH && bits > MAX_DH_BITS {
        // SAFETY: without a format, there are no further arguments.
        unsafe {
            ERR_new();
            ERR_set_error(LIBRARY_DH, MODULUS_TOO_LARGE, std::ptr::null());
        }
        return 0;
    }
    match DEFAULT.get() {
        // SAFETY: passes OpenSSL's arguments on to OpenSSL's function that this one replaces.
        Some(default) => unsafe { default(ssl, context, operation, bits, nid, other, extra) },
        None => 0,
    }
}

unsafe extern "C" {
    fn SSL_CTX_ctrl(context: *mut c_void, command: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn SSL_CTX_get_security_callback(context: *const c_void) -> Option<SecurityCallback>;
    fn SSL_CTX_set_security_callback(context: *mut c_void, callback: Option<SecurityCallback>);
    fn SSL_get_shutdown(ssl: *const c_void) -> c_int;
    fn ERR_new();
    fn ERR_set_error(library: c_int, reason: c_int, format: *const c_char, ...);
}

/// OpenSSL's default callback, which implements the security levels.
static DEFAULT: OnceLock<SecurityCallback> = OnceLock::new();

// Constants of OpenSSL's headers.
const RECEIVED_SHUTDOWN: c_int = 2;
const SET_MAX_CERT_LIST: c_int = 51;
const TMP_DH: c_int = 7 | 4 << 16;
const LIBRARY_DH: c_int = 5;
const MODULUS_TOO_LARGE: c_int = 103;
const EE_KEY_TOO_SMALL: c_int = 66;
const CA_KEY_TOO_SMALL: c_int = 67;
const CA_MD_TOO_WEAK: c_int = 68;

/// Bits of strength, as OpenSSL counts: groups of 2048 to 3071 bits. 2048 bits take 7 ms, 4096 take 30.
const MAX_DH_BITS: c_int = 112;
/// As strong as 1024 bits of RSA.
const LEGACY_KEY_BITS: u32 = 80;
const BROKEN_DIGESTS: [Nid; 2] = [Nid::MD5, Nid::MD4];
