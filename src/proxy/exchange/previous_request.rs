//! The previous request on a connection: parsed parts that the next one usually repeats.

use crate::policy::Authority;
use crate::robots::ProductToken;
use std::cell::RefCell;
use std::sync::Arc;

/// Parts of the previous request on a connection: most requests repeat them.
#[derive(Default)]
pub struct PreviousRequest {
    /// The authority as written and as parsed.
    pub(super) located: Option<(Vec<u8>, Authority)>,
    agent: AgentTokens,
}

/// A User-Agent and its product tokens.
type AgentTokens = (Arc<[u8]>, Arc<[ProductToken]>);

impl PreviousRequest {
    /// The User-Agent as text, truncated.
    pub fn agent(&self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.agent.0).chars().take(MAX_AGENT_CHARS).collect::<String>())
            .filter(|agent| !agent.is_empty())
    }

    pub(super) fn tokens(&mut self, agent: &[u8]) -> Arc<[ProductToken]> {
        // Shared by connections, because most clients of one proxy are the same crawler.
        thread_local!(static LAST: RefCell<AgentTokens> = RefCell::default());
        if *self.agent.0 != *agent {
            self.agent = LAST.with_borrow_mut(|last| {
                if *last.0 != *agent {
                    *last = (agent.into(), ProductToken::from_user_agent(agent).into());
                }
                last.clone()
            });
        }
        self.agent.1.clone()
    }
}

/// Maximum length of a User-Agent in logs, in characters.
const MAX_AGENT_CHARS: usize = 200;
