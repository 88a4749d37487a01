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
    /// The engine cannot continue: its process is replaced.
    Fatal,
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
                let text = format!("{error:?}");
                eprintln!("{text}");
                match is_sticky(&text) {
                    true => Self { kind: ErrorKind::Fatal, message: "the GPU failed; the log says why.".into() },
                    false => Self::internal("the engine failed; its log says why."),
                }
            }
        }
    }
}

/// Errors of a GPU, as cudarc and CubeCL name them, stay with the process: every later call fails too. Memory that runs
/// out does not stay. The same rule as in `engines/contract/errors.py`.
fn is_sticky(text: &str) -> bool {
    let of_gpu = [
        "CUDA error",
        "CUDA_ERROR_",
        "CUBLAS_STATUS_EXECUTION_FAILED",
        "CUBLAS_STATUS_INTERNAL",
        "CUDNN_STATUS_EXECUTION_FAILED",
        "CUDNN_STATUS_INTERNAL",
        "device-side assert",
        "HIP error",
    ];
    let of_memory = ["CUDA_ERROR_OUT_OF_MEMORY", "out of memory"];
    of_gpu.iter().any(|name| text.contains(name)) && !of_memory.iter().any(|name| text.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_stays_with_the_process_ends_it() {
        let kind = |text: &'static str| Failure::from(anyhow::anyhow!(text)).kind;
        assert_eq!(kind("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access\")"), ErrorKind::Fatal);
        assert_eq!(kind("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")"), ErrorKind::Internal);
        assert_eq!(kind("shape mismatch in matmul"), ErrorKind::Internal);
    }
}
