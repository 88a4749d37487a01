//! What every engine written in Rust shares: the lines on the pipes, the loop that serves them, and, for engines that
//! decode token by token, sampling, text, continuous batching and the threads that compute.
//!
//! There are two ways in. A program with a scheduler of its own implements [`Engine`] and calls [`serve`]. A program
//! that is only a model implements [`Model`] (feed tokens, get logits) and calls [`serve_model`].
//! `docs/engine-protocol.md` tells of the lines themselves; `src/bin/enginebench-echo.rs` is the smallest engine.

mod batch;
mod detokenize;
mod failure;
mod message;
mod output;
mod sample;
mod serve;
mod stop;
pub mod team;

pub use batch::{BatchLimits, Loaded, Model, Piece, serve_model};
pub use detokenize::{Vocabulary, end_of_text_ids};
pub use failure::{ErrorKind, Failure};
pub use message::{
    Batching, Chunk, FinishReason, Info, Load, ModelOnDisk, Request, Stats, ToChild, ToParent, TokenLogprob, VERSION,
};
pub use sample::Sampler;
pub use serve::{Answer, Engine, serve};
pub use stop::{Held, until_stop};
