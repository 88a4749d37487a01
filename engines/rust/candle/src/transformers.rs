//! The models of candle-transformers, each with its own cache: one sequence at a time.

use crate::decoder::likeliest_of;
use crate::weights::kind_name;
use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    gemma, gemma2, gemma3, llama, mamba, mistral, phi3, quantized_gemma3, quantized_llama, quantized_phi3,
    quantized_qwen2, quantized_qwen3, qwen2, qwen3,
};
use enginebench_protocol::{Failure, Model, Output, Piece};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

type Forward = Box<dyn FnMut(&Tensor, usize) -> candle_core::Result<Tensor>>;

/// One model and its cache. `forward` takes `[1, tokens]` and the position of the first; at position 0 the cache is new.
pub struct OneSequence {
    forward: Forward,
    vocabulary: usize,
    device: Device,
    logits: Vec<f32>,
    /// The module of candle-transformers.
    pub module: String,
}

impl Model for OneSequence {
    fn vocab_size(&self) -> usize {
        self.vocabulary
    }

    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> Result<Output<'_>> {
        let [piece] = batch else { bail!("one sequence at a time") };
        let tokens = Tensor::new(piece.tokens, &self.device)?.unsqueeze(0)?;
        let logits = (self.forward)(&tokens, piece.start)?;
        self.logits.clear();
        if piece.wants_logits {
            let logits = logits.flatten_all()?;
            anyhow::ensure!(logits.dim(0)? >= self.vocabulary, "the model gave too few logits");
            let logits = logits.narrow(0, 0, self.vocabulary)?; // Mamba's are padded
            if likeliest && !self.device.is_cpu() {
                return Ok(Output::Likeliest(likeliest_of(&logits.unsqueeze(0)?)?));
            }
            self.logits = logits.to_dtype(DType::F32)?.to_vec1()?;
        }
        Ok(Output::Logits(&mut self.logits))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    fn free(&mut self, _: usize) {}
}

/// A model whose `forward` takes tokens and a position, and that forgets with `clear_kv_cache`.
macro_rules! plain {
    ($model:expr) => {{
        let mut model = $model;
        Box::new(move |tokens: &Tensor, start: usize| {
            if start == 0 {
                model.clear_kv_cache();
            }
            model.forward(tokens, start)
        }) as Forward
    }};
}

/// A quantised model, whose own cache is new at position 0.
macro_rules! from_gguf {
    ($model:expr) => {{
        let mut model = $model;
        Box::new(move |tokens: &Tensor, start: usize| model.forward(tokens, start)) as Forward
    }};
}

impl OneSequence {
    pub fn from_config(config: &Value, weights: VarBuilder<'static>) -> Result<Self> {
        let family = config["model_type"].as_str().unwrap_or_default();
        let (device, dtype) = (weights.device().clone(), weights.dtype());
        let flash = cfg!(feature = "flash-attn") && device.is_cuda() && dtype != DType::F32;
        let forward: Forward = match family {
            "llama" => llama_forward(parsed::<llama::LlamaConfig>(config)?.into_config(flash), weights)?,
            "mistral" => plain!(mistral::Model::new(&with_flash(config, flash)?, weights)?),
            "phi3" => plain!(phi3::Model::new(&parsed(config)?, weights)?),
            "qwen2" => plain!(qwen2::ModelForCausalLM::new(&parsed(config)?, weights)?),
            "qwen3" => plain!(qwen3::ModelForCausalLM::new(&parsed(config)?, weights)?),
            "gemma" => plain!(gemma::Model::new(flash, &parsed(config)?, weights)?),
            "gemma2" => plain!(gemma2::Model::new(flash, &parsed(config)?, weights)?),
            "gemma3_text" => plain!(gemma3::Model::new(flash, &parsed(config)?, weights)?),
            "mamba" => mamba_forward(config, weights)?,
            other => bail!("no family {other}"),
        };
        let vocabulary = config["vocab_size"].as_u64().context("config.json has no `vocab_size`")? as usize;
        Ok(Self { forward, vocabulary, device, logits: Vec::new(), module: family.replace("3_text", "3") })
    }

    /// A GGUF file as it is. Also gives the name of its commonest kind of weights, and its context length.
    pub fn from_gguf(path: &Path, device: &Device) -> Result<(Self, String, usize)> {
        let mut file = File::open(path)?;
        let content = gguf_file::Content::read(&mut file)?;
        let text = |key: &str| content.metadata.get(key).and_then(|value| value.to_string().ok()).cloned();
        let family = text("general.architecture").context("the GGUF file does not name its architecture")?;
        let context_length = content.metadata.get(&format!("{family}.context_length"));
        let context_length = context_length.and_then(|value| value.to_u32().ok()).unwrap_or(2048) as usize;
        let vocabulary = content.tensor_infos.get("token_embd.weight").context("the GGUF file has no embeddings")?;
        let vocabulary = vocabulary.shape.dims()[0];
        let kind = commonest_kind(&content);
        check_gguf(&family, &content)?;
        let forward: Forward = match family.as_str() {
            "llama" => from_gguf!(quantized_llama::ModelWeights::from_gguf(content, &mut file, device)?),
            "phi3" => from_gguf!(quantized_phi3::ModelWeights::from_gguf(false, content, &mut file, device)?),
            "qwen2" => from_gguf!(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, device)?),
            "qwen3" => plain!(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, device)?),
            "gemma3" => from_gguf!(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, device)?),
            other => bail!(Failure::unavailable(format!(
                "candle runs GGUF files of llama, phi3, qwen2, qwen3 and gemma3; this one is {other}."
            ))),
        };
        let module = format!("quantized_{family}");
        let model = Self { forward, vocabulary, device: device.clone(), logits: Vec::new(), module };
        Ok((model, kind, context_length.min(LONGEST_GGUF)))
    }
}

/// candle-transformers' quantised models have tables of rotary positions of this length.
const LONGEST_GGUF: usize = quantized_llama::MAX_SEQ_LEN;

fn commonest_kind(content: &gguf_file::Content) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for info in content.tensor_infos.values() {
        *counts.entry(kind_name(info.ggml_dtype)).or_default() += info.shape.elem_count();
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(kind, _)| kind).unwrap_or_default();
    match most.as_str() {
        "f32" => "float32".into(),
        "f16" => "float16".into(),
        "bf16" => "bfloat16".into(),
        _ => most,
    }
}

/// candle-transformers ignores these, and the answers would be wrong.
fn check_gguf(family: &str, content: &gguf_file::Content) -> Result<()> {
    let ignored = content.tensor_infos.keys().find(|name| name.starts_with("rope_f"));
    let scaled = content.metadata.get(&format!("{family}.rope.scaling.type"));
    let scaled = scaled.and_then(|value| value.to_string().ok()).filter(|kind| kind.as_str() != "none");
    if ignored.is_some() || scaled.is_some() {
        bail!(Failure::unavailable(
            "candle ignores the rotary scaling of this GGUF file; use dtype=q8_0 or float32, which read config.json."
        ));
    }
    Ok(())
}

fn parsed<C: DeserializeOwned>(config: &Value) -> Result<C> {
    serde_json::from_value(config.clone())
        .map_err(|error| Failure::unavailable(format!("candle cannot read this model's config.json: {error}.")).into())
}

fn with_flash(config: &Value, flash: bool) -> Result<mistral::Config> {
    Ok(mistral::Config { use_flash_attn: flash, ..parsed(config)? })
}

/// Llama keeps its cache outside the model.
fn llama_forward(config: llama::Config, weights: VarBuilder<'static>) -> Result<Forward> {
    let (device, dtype) = (weights.device().clone(), weights.dtype());
    let empty = llama::Cache::new(true, dtype, &config, &device)?;
    let model = llama::Llama::load(weights, &config)?;
    let mut cache = empty.clone();
    Ok(Box::new(move |tokens, start| {
        if start == 0 {
            cache = empty.clone();
        }
        model.forward(tokens, start, &mut cache)
    }))
}

/// Mamba has a state instead of a cache, and takes one token at a time.
fn mamba_forward(config: &Value, weights: VarBuilder<'static>) -> Result<Forward> {
    let number = |key: &str| config[key].as_u64().with_context(|| format!("config.json has no `{key}`"));
    let shape = mamba::Config {
        d_model: number("hidden_size")? as usize,
        n_layer: number("num_hidden_layers")? as usize,
        vocab_size: number("vocab_size")? as usize,
        pad_vocab_size_multiple: 1,
    };
    let (device, dtype) = (weights.device().clone(), weights.dtype());
    let weights = weights.rename_f(|name| format!("backbone.{}", name.replace("embedding.", "embeddings.")));
    let model = mamba::Model::new(&shape, weights)?;
    let mut state = mamba::State::new(1, &shape, dtype, &device)?;
    Ok(Box::new(move |tokens, start| {
        if start == 0 {
            state = mamba::State::new(1, &shape, dtype, &device)?;
        }
        let mut logits = None;
        for at in 0..tokens.dim(1)? {
            logits = Some(model.forward(&tokens.narrow(1, at, 1)?.squeeze(1)?, &mut state)?);
        }
        logits.ok_or_else(|| candle_core::Error::msg("no tokens"))
    }))
}
