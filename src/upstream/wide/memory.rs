//! Which kind of TLS a place was last seen to speak, for a while: somebody on the way may have made a handshake fail once.

use crate::upstream::dial_error::DialError;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// What is known of one place. Empty where the usual TLS is spoken, and at first.
#[derive(Debug, Default)]
pub(in crate::upstream) struct TlsMemory(Mutex<Option<Box<TlsSpoken>>>);

#[derive(Debug)]
enum TlsSpoken {
    /// The wider TLS alone.
    Wide { since: Instant },
    /// Neither kind; why the wider one failed.
    Neither { since: Instant, error: DialError },
}

impl TlsMemory {
    /// Whether to begin with the wider TLS.
    pub fn needs_wide(&self) -> bool {
        matches!(self.0.lock().as_deref(), Some(TlsSpoken::Wide { since }) if since.elapsed() < KEEP_WIDE)
    }

    /// Why the wider TLS failed too, if that was lately.
    pub fn refusal(&self) -> Option<DialError> {
        match self.0.lock().as_deref() {
            Some(TlsSpoken::Neither { since, error }) if since.elapsed() < KEEP_REFUSAL => Some(error.clone()),
            _ => None,
        }
    }

    pub fn note_wide(&self) {
        *self.0.lock() = Some(Box::new(TlsSpoken::Wide { since: Instant::now() }));
    }

    pub fn note_refusal(&self, error: DialError) {
        *self.0.lock() = Some(Box::new(TlsSpoken::Neither { since: Instant::now(), error }));
    }

    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

const KEEP_WIDE: Duration = Duration::from_secs(3600);
/// Short: a server that is being restarted refuses both as well.
const KEEP_REFUSAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::DialFault;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn what_is_known_ends() {
        let memory = TlsMemory::default();
        let error = DialError::new(DialFault::Alert, "refused");
        memory.note_refusal(error.clone());
        assert_eq!((memory.needs_wide(), memory.refusal()), (false, Some(error.clone())));
        sleep(KEEP_REFUSAL).await;
        assert_eq!(memory.refusal(), None);
        memory.note_wide();
        assert_eq!((memory.needs_wide(), memory.refusal()), (true, None));
        sleep(KEEP_WIDE).await;
        assert!(!memory.needs_wide());
    }
}
