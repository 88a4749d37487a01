//! A Llama-family decoder in Burn, behind the line protocol. See `docs/engine-protocol.md`.

mod cache;
mod config;
mod device;
mod model;
mod projection;
mod weights;

use config::Config;
use enginebench_protocol::{
    BatchLimits, Batching, Failure, Info, Load, Loaded, Vocabulary, end_of_text_ids, serve_model,
};
use model::Decoder;
use std::process::ExitCode;
use weights::Weights;

const SLOTS: usize = 32;
const STEP_TOKENS: usize = 256;
const FEATURES: [&str; 5] = ["seed", "stop", "logprobs", "ignore_eos", "min_tokens"];

fn load(load: &Load) -> Result<Loaded<Decoder>, Failure> {
    let model = load.model()?;
    let config = Config::read(&model.folder)?;
    let threads = load.option::<usize>("threads")?;
    let slots = load.option::<usize>("max_concurrency")?.unwrap_or(SLOTS);
    let step_tokens = load.option::<usize>("step_tokens")?.unwrap_or(STEP_TOKENS);
    if threads == Some(0) || slots == 0 || step_tokens == 0 {
        return Err(Failure::bad_request("threads, max_concurrency and step_tokens are 1 or more."));
    }
    if let Some(threads) = threads {
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    let (device, device_name) = device::choose(load.option::<String>("device")?.as_deref())?;
    let (dtype, dtype_name) = device::dtype(load.option::<String>("dtype")?.as_deref(), &device, &device_name)?;
    let unreadable = |error: anyhow::Error| {
        eprintln!("{error:?}");
        Failure::unavailable(format!("the weights of {} cannot be used: {error}.", model.name))
    };
    let mut weights = match model.random_weights {
        true => Weights::drawn(&device, dtype),
        false => Weights::open(&model.folder, &device, dtype).map_err(unreadable)?,
    };
    let in_blocks = device_name == "cpu";
    let context_length = config.max_position_embeddings;
    let decoder = Decoder::load(config, &mut weights, slots, in_blocks).map_err(unreadable)?;
    let info = Info {
        name: load.engine.clone(),
        version: BURN_VERSION.into(),
        language: "rust".into(),
        model: model.name.clone(),
        dtype: dtype_name.into(),
        device: device_name,
        batching: Batching::Continuous,
        max_concurrency: slots,
        context_length,
        features: FEATURES.map(String::from).into(),
        options: load.options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect(),
        libraries: [("burn".to_owned(), BURN_VERSION.to_owned())].into(),
    };
    Ok(Loaded {
        model: decoder,
        info,
        limits: BatchLimits { slots, step_tokens },
        vocabulary: Vocabulary::open(&model.folder)?,
        end_of_text: end_of_text_ids(&model.folder),
    })
}

const BURN_VERSION: &str = "0.22.1";

fn main() -> ExitCode {
    serve_model(load)
}
