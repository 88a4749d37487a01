//! Shared by the engines written in Rust: the protocol, its main loop, and, for engines that decode token by token,
//! sampling, detokenising and continuous batching, and what attention over a batch has to keep.
//!
//! A program with a scheduler of its own implements [`Engine`] and calls [`serve`]. A program that is only a model
//! implements [`Model`] (tokens in, logits out) and calls [`serve_model`]. `docs/engine-protocol.md` describes the
//! protocol; `src/bin/enginebench-echo.rs` is the smallest engine.

mod batch;
mod detokenize;
mod failure;
mod llama;
mod memory;
mod message;
mod output;
mod sample;
mod serve;
mod step;
mod stop;

pub use batch::{BatchLimits, Loaded, Model, Output, Piece, serve_model};
pub use detokenize::{Vocabulary, end_of_text_ids};
pub use failure::{ErrorKind, Failure};
pub use llama::LlamaConfig;
pub use memory::{cache_tokens, free_gpu_memory, free_memory, has_bfloat16, most_scores};
pub use message::{
    Batching, Chunk, FinishReason, Info, Load, ModelOnDisk, Request, Stats, ToChild, ToParent, TokenLogprob, VERSION,
};
pub use sample::Sampler;
pub use serve::{Answer, Engine, serve};
pub use step::{Group, Part, Rows, Step};
pub use stop::{Held, until_stop};
