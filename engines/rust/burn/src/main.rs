//! The Burn engine: Llama-family models on any device that Burn supports, requests joining and leaving a running batch.
//!
//! Implements the protocol of `docs/engine-protocol.md` on its standard input and output; `engines/rust/engines.py` starts it.

mod cache;
mod config;
mod kernels;
mod model;
mod settings;
mod shared;
mod weights;

use enginebench_protocol::{
    BatchLimits, Batching, Failure, Info, Load, Loaded, Vocabulary, cache_tokens, end_of_text_ids, serve_model,
};
use model::Decoder;
use serde_json::json;
use settings::Settings;
use std::process::ExitCode;
use weights::Weights;

const FEATURES: [&str; 6] = ["seed", "stop", "logprobs", "ignore_eos", "min_tokens", "forced"];
const BURN_VERSION: &str = env!("BURN_VERSION");

fn main() -> ExitCode {
    serve_model(load)
}

fn load(load: &Load) -> Result<Loaded<Decoder>, Failure> {
    let model = load.model()?;
    let settings = Settings::from(load)?;
    let vocabulary = Vocabulary::open(&model.folder)?;
    let config = config::read(&model.folder)?;
    let context_length = settings.context.unwrap_or(usize::MAX).min(config.max_position_embeddings);
    let unusable = |error: anyhow::Error| {
        eprintln!("{error:?}");
        Failure::unavailable(format!("the weights of {} cannot be used: {error}.", model.name))
    };
    let mut weights = match model.random_weights {
        true => Weights::drawn(&settings.device, settings.dtype),
        false => Weights::open(&model.folder, &settings.device, settings.dtype).map_err(unusable)?,
    };
    let mut decoder = Decoder::load(config, &mut weights, context_length, &settings).map_err(unusable)?;
    let per_token = decoder.cache_bytes_per_token();
    let cached = || {
        let fit = || cache_tokens(settings.free_memory(), per_token, settings.slots, context_length);
        settings.kv_tokens.unwrap_or_else(fit).min(settings.slots * context_length)
    };
    if !settings.on_cpu() {
        kernels::make(&mut decoder, settings.slots, context_length, cached()).map_err(unusable)?;
    }
    let kv_tokens = cached();
    let scores = decoder.most_scores(settings.free_memory());
    let info = Info {
        name: load.engine.clone(),
        version: BURN_VERSION.into(),
        language: "rust".into(),
        model: model.name.clone(),
        dtype: settings.dtype_name.into(),
        device: settings.device_name.clone(),
        batching: Batching::Continuous,
        max_concurrency: settings.slots,
        context_length: context_length.min(kv_tokens),
        features: FEATURES.map(String::from).into(),
        options: [
            ("threads".to_owned(), json!(rayon::current_num_threads())),
            ("decoder".to_owned(), json!("enginebench's, on Burn's operations")),
            ("scheduler".to_owned(), json!("enginebench's")),
            ("kv_tokens".to_owned(), json!(kv_tokens)),
        ]
        .into(),
        libraries: [
            ("burn".to_owned(), BURN_VERSION.to_owned()),
            ("build".to_owned(), env!("ENGINEBENCH_BUILD").to_owned()),
        ]
        .into(),
    };
    Ok(Loaded {
        model: decoder,
        info,
        limits: BatchLimits { slots: settings.slots, step_time: Some(settings.step_time), kv_tokens, scores },
        vocabulary,
        end_of_text: end_of_text_ids(&model.folder),
    })
}
