//! The Candle engine: Llama-family models on candle-core, requests joining and leaving a running batch.
//!
//! Speaks the protocol of `docs/engine-protocol.md` on its standard input and output; `engines/candle.py` starts it.

mod attention;
mod cache;
mod candles;
mod config;
mod kernels;
mod lanes;
mod linear;
mod llama;
mod matrix;
mod quantised;
mod settings;
mod weights;

use crate::config::Config;
use crate::llama::Llama;
use crate::settings::Settings;
use crate::weights::{Folder, Gguf, Kept, Plan, Random, build};
use anyhow::Context;
use enginebench_protocol::team;
use enginebench_protocol::{
    BatchLimits, Batching, Failure, Info, Load, Loaded, ModelOnDisk, Vocabulary, end_of_text_ids, serve_model,
};
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    serve_model(load)
}

fn load(load: &Load) -> Result<Loaded<Llama>, Failure> {
    let model = load.model()?;
    let settings = Settings::from(load)?;
    let vocabulary = Vocabulary::open(&model.folder)?;
    let (llama, dtype) = read(model, &settings)?;
    let context_length = settings.context.unwrap_or(usize::MAX).min(llama.config.context_length);
    let info = Info {
        name: load.engine.clone(),
        version: CANDLE_VERSION.into(),
        language: "rust".into(),
        model: model.name.clone(),
        dtype,
        device: settings.device_name(),
        batching: Batching::Continuous,
        max_concurrency: settings.slots,
        context_length,
        features: ["seed", "stop", "logprobs", "ignore_eos", "min_tokens"].map(String::from).into(),
        options: [
            ("threads".to_owned(), json!(team::threads())),
            ("step_tokens".to_owned(), json!(settings.step_tokens)),
        ]
        .into(),
        libraries: [
            ("candle-core".to_owned(), CANDLE_VERSION.to_owned()),
            ("build".to_owned(), env!("ENGINEBENCH_BUILD").to_owned()),
        ]
        .into(),
    };
    Ok(Loaded {
        model: llama,
        info,
        limits: BatchLimits { slots: settings.slots, step_tokens: settings.step_tokens },
        vocabulary,
        end_of_text: end_of_text_ids(&model.folder),
    })
}

const CANDLE_VERSION: &str = env!("CANDLE_VERSION");

/// The model, and how its weights are kept, for people.
fn read(model: &ModelOnDisk, settings: &Settings) -> anyhow::Result<(Llama, String)> {
    let plan = |kept| Plan { device: settings.device.clone(), kept, slots: settings.slots };
    let wanted = settings.kept(model)?;
    if model.random_weights {
        let config = Config::from_folder(&model.folder)?;
        let llama = build(config.clone(), &mut Random::new(&config), &plan(wanted))?;
        return Ok((llama, settings::name_of(wanted)));
    }
    let gguf = model.gguf.as_ref().filter(|_| wanted == Kept::AsInFile || !settings::has_safetensors(&model.folder));
    if let Some(path) = gguf {
        let (mut file, config) = Gguf::open(path).context("the GGUF file cannot be read")?;
        let name = if wanted == Kept::AsInFile { file.kind() } else { settings::name_of(wanted) };
        return Ok((build(config, &mut file, &plan(wanted))?, name));
    }
    let llama = build(Config::from_folder(&model.folder)?, &mut Folder::open(&model.folder)?, &plan(wanted))?;
    Ok((llama, settings::name_of(wanted)))
}
