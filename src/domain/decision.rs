//! What follows from an outcome for one call.

/// What is done with a call in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The leaf is asked.
    Probe,
    /// The same request with the same key is sent again.
    Resend,
    /// It waits for somebody to say what is true.
    Park,
}

impl Policy {
    /// The policy for one call: the leaf's own word, else by what the leaf and the method offer.
    #[must_use]
    pub fn for_call(configured: Option<Self>, has_probe: bool, dedups: bool, method: &str) -> Self {
        if let Some(policy) = configured {
            policy
        } else if has_probe {
            Self::Probe
        } else if dedups || is_idempotent(method) {
            Self::Resend
        } else {
            Self::Park
        }
    }
}

/// Whether sending it twice does what sending it once does (RFC 9110 section 9.2.2).
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT" | "DELETE")
}

/// Whether it changes nothing at the leaf (RFC 9110 section 9.2.1).
#[must_use]
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}
