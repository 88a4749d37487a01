//! The messages as types, as in `engines/contract/protocol.py` and `engines/contract/base.py`. Unknown fields are ignored.

use crate::failure::{ErrorKind, Failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

pub const VERSION: u32 = 1;

/// Messages of the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ToChild {
    Load(Load),
    Generate {
        id: u64,
        #[serde(flatten)]
        request: Request,
    },
    Cancel {
        id: u64,
    },
    Stats,
}

/// The first line a child gets. `options` is text, as the user typed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    #[serde(default)]
    pub version: u32,
    pub engine: String,
    pub model: Option<ModelOnDisk>,
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl Load {
    /// The option called `name`, or `None` where it is not given or empty.
    pub fn option<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        match self.options.get(name).map(String::as_str) {
            None | Some("" | "none") => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(Failure::bad_request(format!("option `{name}` cannot be `{text}`."))),
            },
        }
    }

    /// The model, or a failure where none was given.
    pub fn model(&self) -> Result<&ModelOnDisk, Failure> {
        self.model.as_ref().ok_or_else(|| Failure::unavailable(format!("{} needs a model.", self.engine)))
    }
}

/// A model on this machine's disk. `folder` holds `config.json`, the tokenizer and safetensors; `gguf` is the file they
/// were converted from, if any. With `random_weights` there is only a configuration and a tokenizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelOnDisk {
    pub name: String,
    pub folder: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gguf: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub random_weights: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub trust_remote_code: bool,
}

/// One prompt. Every engine gets the same `prompt_token_ids`; `prompt` is the same text for those that need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    #[serde(default)]
    pub prompt: String,
    pub prompt_token_ids: Vec<u32>,
    pub max_tokens: usize,
    /// 0 is greedy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub temperature: f32,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub top_p: f32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_eos: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_tokens: usize,
    /// How many alternatives per token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<usize>,
    /// Taken in place of sampled tokens, one after the other (teacher forcing).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced_token_ids: Vec<u32>,
}

/// Messages of the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ToParent {
    Ready { version: u32, info: Info },
    Chunk(Chunk),
    Done { id: u64, finish_reason: FinishReason },
    Error { id: Option<u64>, kind: ErrorKind, message: String },
    Stats(Stats),
}

/// Text that became ready at one moment, and the number of tokens generated for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub id: u64,
    pub text: String,
    pub tokens: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprob>,
}

/// Natural-log probability of one generated token, and of the likeliest alternatives, likeliest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: f32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<(String, f32, Option<Vec<u8>>)>,
    /// Where they are not those of the text: a token may be a part of a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    Stop,
    Length,
    Cancelled,
}

/// How an engine runs its requests: one by one, or joining and leaving a running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Batching {
    None,
    Continuous,
}

/// What a loaded engine is: enough to repeat a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    pub name: String,
    pub version: String,
    pub language: String,
    pub model: String,
    pub dtype: String,
    pub device: String,
    pub batching: Batching,
    pub max_concurrency: usize,
    pub context_length: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
}

/// A snapshot of resource use. Bytes; `kv_cache_usage` from 0 to 1; omitted where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_peak_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_usage: Option<f64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> f32 {
    1.0
}

fn is_one(value: &f32) -> bool {
    *value == 1.0
}
