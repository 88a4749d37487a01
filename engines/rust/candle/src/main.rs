//! The Candle engine: the models of candle-transformers, one request at a time; or, where a batch is asked for, a
//! decoder on Candle's operations whose requests join and leave a running batch.
//!
//! Speaks the protocol of `docs/engine-protocol.md` on its standard input and output; `engines/rust/engines.py` starts it.

mod attention;
mod config;
mod decoder;
mod settings;
mod transformers;
mod weights;

use crate::decoder::Decoder;
use crate::settings::Settings;
use crate::transformers::OneSequence;
use crate::weights::Format;
use anyhow::Result;
use enginebench_protocol::{
    BatchLimits, Batching, Failure, Info, Load, Loaded, Model, Output, Piece, Vocabulary, cache_tokens,
    end_of_text_ids, serve_model,
};
use serde_json::json;
use std::process::ExitCode;

const CANDLE_VERSION: &str = env!("CANDLE_VERSION");

fn main() -> ExitCode {
    serve_model(load)
}

/// What runs the model.
enum Runner {
    OneSequence(OneSequence),
    Batch(Decoder),
}

struct Opened {
    runner: Runner,
    dtype: String,
    context_length: usize,
}

impl Model for Runner {
    fn vocab_size(&self) -> usize {
        match self {
            Self::OneSequence(model) => model.vocab_size(),
            Self::Batch(model) => model.vocab_size(),
        }
    }

    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> Result<Output<'_>> {
        match self {
            Self::OneSequence(model) => model.forward(batch, likeliest),
            Self::Batch(model) => model.forward(batch, likeliest),
        }
    }

    fn wait(&mut self) -> Result<()> {
        match self {
            Self::OneSequence(model) => model.wait(),
            Self::Batch(model) => model.wait(),
        }
    }

    fn free(&mut self, slot: usize) {
        match self {
            Self::OneSequence(model) => model.free(slot),
            Self::Batch(model) => model.free(slot),
        }
    }
}

fn load(load: &Load) -> Result<Loaded<Runner>, Failure> {
    let model = load.model()?;
    let settings = Settings::from(load)?;
    let vocabulary = Vocabulary::open(&model.folder)?;
    let Opened { runner, dtype, context_length } = open(load, &settings)?;
    let context_length = settings.context.unwrap_or(usize::MAX).min(context_length);
    let free = settings.free_memory();
    let (limits, batching, decoder) = match &runner {
        Runner::OneSequence(one) => {
            let name = format!("candle-transformers {}", one.module);
            (BatchLimits::one_sequence(one.most_scores(free)), Batching::None, name)
        }
        Runner::Batch(decoder) => {
            let slots = settings.concurrency;
            let fit = cache_tokens(free, decoder.cache_bytes_per_token(), slots, context_length);
            let kv_tokens = settings.kv_tokens.unwrap_or(fit).min(slots * context_length);
            let scores = decoder.most_scores(free);
            let limits = BatchLimits { slots, step_time: Some(settings.step_time), kv_tokens, scores };
            (limits, Batching::Continuous, "enginebench's, on Candle's operations".to_owned())
        }
    };
    let mut options = vec![("decoder".to_owned(), json!(decoder))];
    if batching == Batching::Continuous {
        options.push(("scheduler".to_owned(), json!("enginebench's")));
        options.push(("kv_tokens".to_owned(), json!(limits.kv_tokens)));
    }
    let info = Info {
        name: load.engine.clone(),
        version: CANDLE_VERSION.into(),
        language: "rust".into(),
        model: model.name.clone(),
        dtype,
        device: settings.device_name(),
        batching,
        max_concurrency: limits.slots,
        context_length: context_length.min(limits.kv_tokens),
        features: ["seed", "stop", "logprobs", "ignore_eos", "min_tokens", "forced"].map(String::from).into(),
        options: options.into_iter().collect(),
        libraries: [
            ("candle-core".to_owned(), CANDLE_VERSION.to_owned()),
            ("build".to_owned(), env!("ENGINEBENCH_BUILD").to_owned()),
        ]
        .into(),
    };
    Ok(Loaded { model: runner, info, limits, vocabulary, end_of_text: end_of_text_ids(&model.folder) })
}

fn open(load: &Load, settings: &Settings) -> Result<Opened> {
    let model = load.model()?;
    let format = settings.format(model)?;
    let Some(format) = format else {
        if settings.concurrency > 1 {
            return Err(Failure::bad_request(
                "candle serves a GGUF file as it is one request at a time; set concurrency=1, or dtype=q8_0 …",
            )
            .into());
        }
        let path = model.gguf.as_ref().ok_or_else(|| anyhow::anyhow!("no GGUF file"))?;
        let (one, dtype, context_length) = OneSequence::from_gguf(path, &settings.device)?;
        return Ok(Opened { runner: Runner::OneSequence(one), dtype, context_length });
    };
    let config = config::read(&model.folder)?;
    let weights = weights::open(model, format.float(), &settings.device)?;
    let context_length = config::context_length(&config);
    let runner = match format {
        Format::Float(_) if settings.concurrency == 1 => {
            Runner::OneSequence(OneSequence::from_config(&config, weights)?)
        }
        _ => {
            let context = settings.context.unwrap_or(usize::MAX).min(context_length);
            Runner::Batch(Decoder::new(&config, weights, format, context, settings.concurrency)?)
        }
    };
    Ok(Opened { runner, dtype: format.name(), context_length })
}
