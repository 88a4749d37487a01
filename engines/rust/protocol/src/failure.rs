//! Errors of an engine.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    BadRequest,
    Unavailable,
    Internal,
}

/// An error with one sentence for the client: no paths, no stack trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: String,
}

impl Failure {
    /// The request asks for something this engine cannot do, or makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::BadRequest, message: message.into() }
    }

    /// The engine cannot run here: a missing model, device or feature.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unavailable, message: message.into() }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Internal, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A `Failure` is passed on by `?`; any other error goes to the log in full, and the client is told only that the engine
/// failed.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => failure,
            Err(error) => {
                eprintln!("{error:?}");
                Self::internal("the engine failed; its log says why.")
            }
        }
    }
}
