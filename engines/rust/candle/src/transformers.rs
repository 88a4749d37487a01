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
use enginebench_protocol::{Failure, Model, Output, Piece, most_scores};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

const SCORE_BYTES: usize = 4; // Llama's scores have 32 bits in every number format

type Forward = Box<dyn FnMut(&Tensor, usize) -> candle_core::Result<Tensor>>;

/// One model and its cache. `forward` takes `[1, tokens]` and the position of the first; at position 0 the cache is new.
pub struct OneSequence {
    forward: Forward,
    vocabulary: usize,
    device: Device,
    logits: Vec<f32>,
    /// The module of candle-transformers.
    pub module: String,
    /// Whose scores are in memory; `None` where a kernel keeps none, or there is no attention.
    score_heads: Option<usize>,
    /// Whether `forward` takes several tokens after the first call.
    in_pieces: bool,
}

impl Model for OneSequence {
    fn vocab_size(&self) -> usize {
        self.vocabulary
    }

    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> Result<Output<'_>> {
        let [piece] = batch else { bail!("one sequence at a time") };
        if !piece.wants_logits && !self.in_pieces {
            let (module, most) = (&self.module, piece.tokens.len());
            bail!(Failure::bad_request(format!(
                "candle-transformers' {module} reads a prompt in one step, here of at most {most} tokens; \
                 send a shorter one."
            )));
        }
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

/// A quantised model that each answer copies while it is empty: it keeps a mask for every length of a prompt, without
/// end. A copy shares the weights.
macro_rules! copied {
    ($model:expr) => {{
        let empty = $model;
        let mut model = empty.clone();
        Box::new(move |tokens: &Tensor, start: usize| {
            if start == 0 {
                model = empty.clone();
            }
            model.forward(tokens, start)
        }) as Forward
    }};
}

/// One that cannot be copied; its own cache is new at position 0.
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
        // FlashAttention keeps no scores; Phi-3 and Qwen2 do not use it.
        let keeps_scores = family != "mamba" && (!flash || matches!(family, "phi3" | "qwen2"));
        let heads = config["num_attention_heads"].as_u64().filter(|_| keeps_scores);
        Ok(Self {
            forward,
            vocabulary,
            device,
            logits: Vec::new(),
            module: family.replace("3_text", "3"),
            score_heads: heads.map(|heads| heads as usize),
            // Gemma 3's mask is not that of its cache; Qwen2 joins a mask of 32 bits with one of the weights' format.
            in_pieces: !(family == "gemma3_text" || family == "qwen2" && dtype != DType::F32),
        })
    }

    /// As [`most_scores`]: where a prompt cannot be cut, only as many as can be counted.
    pub fn most_scores(&self, free: Option<u64>) -> usize {
        let free = if self.in_pieces { free } else { Some(u64::MAX) };
        self.score_heads.map_or(usize::MAX, |heads| most_scores(free, heads, SCORE_BYTES))
    }

    /// A GGUF file as it is. Also gives the name of its commonest kind of weights, and its context length.
    pub fn from_gguf(path: &Path, device: &Device) -> Result<(Self, String, usize)> {
        let mut file = File::open(path)?;
        let content = gguf_file::Content::read(&mut file)?;
        let text = |key: &str| content.metadata.get(key).and_then(|value| value.to_string().ok()).cloned();
        let family = text("general.architecture").context("the GGUF file does not name its architecture")?;
        let context_length = content.metadata.get(&format!("{family}.context_length"));
        let context_length = context_length.and_then(|value| value.to_u32().ok()).unwrap_or(2048) as usize;
        // candle-transformers' quantised Phi-3 has no sliding window: its context ends where the window would begin.
        let window = content.metadata.get("phi3.attention.sliding_window").and_then(|value| value.to_u32().ok());
        let context_length =
            window.filter(|&size| size > 0).map_or(context_length, |size| context_length.min(size as usize));
        let vocabulary = content.tensor_infos.get("token_embd.weight").context("the GGUF file has no embeddings")?;
        let vocabulary = vocabulary.shape.dims()[0];
        let heads = content.metadata.get(&format!("{family}.attention.head_count"));
        let score_heads = heads.and_then(|value| value.to_u32().ok()).map(|heads| heads as usize);
        let kind = commonest_kind(&content);
        check_gguf(&family, &content)?;
        let forward: Forward = match family.as_str() {
            "llama" => copied!(quantized_llama::ModelWeights::from_gguf(content, &mut file, device)?),
            "phi3" => copied!(quantized_phi3::ModelWeights::from_gguf(false, content, &mut file, device)?),
            "qwen2" => from_gguf!(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, device)?),
            "qwen3" => plain!(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, device)?),
            "gemma3" => copied!(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, device)?),
            other => bail!(Failure::unavailable(format!(
                "candle runs GGUF files of llama, phi3, qwen2, qwen3 and gemma3; this one is {other}."
            ))),
        };
        let module = format!("quantized_{family}");
        let in_pieces = family != "gemma3"; // whose mask hides what is known
        let device = device.clone();
        let model = Self { forward, vocabulary, device, logits: Vec::new(), module, score_heads, in_pieces };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, weights};
    use candle_core::quantized::{GgmlDType, QTensor, gguf_file::Value as Entry};
    use enginebench_protocol::ModelOnDisk;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const TOKENS: [u32; 12] = [5, 90, 17, 33, 64, 2, 71, 8, 45, 99, 12, 50];

    fn new_folder() -> PathBuf {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("enginebench-candle-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Of random weights.
    fn tiny(family: &str, dtype: DType) -> OneSequence {
        let key_heads = if family == "gemma3_text" { 1 } else { 2 }; // its cache takes no more
        let config = serde_json::json!({"model_type": family, "vocab_size": 100, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": key_heads,
            "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
            "rope_local_base_freq": 1e4, "attention_bias": false, "query_pre_attn_scalar": 16, "sliding_window": 64,
            "sliding_window_pattern": 2, "state_size": 16,
            (if family.starts_with("gemma") { "hidden_activation" } else { "hidden_act" }): "silu"});
        let folder = new_folder();
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let config = config::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let model =
            ModelOnDisk { name: family.into(), folder, gguf: None, random_weights: true, trust_remote_code: false };
        OneSequence::from_config(&config, weights::open(&model, dtype, &Device::Cpu).unwrap()).unwrap()
    }

    /// A Llama of the numbers `sin(i)`, in a GGUF file.
    fn tiny_gguf() -> OneSequence {
        let weights = |rows: usize, columns: usize| {
            let numbers = (0..rows * columns).map(|at| (at as f32).sin() * 0.1);
            let tensor = Tensor::from_iter(numbers, &Device::Cpu).unwrap().reshape((rows, columns)).unwrap();
            QTensor::quantize(&tensor, GgmlDType::F32).unwrap()
        };
        let ones = || QTensor::quantize(&Tensor::ones(64, DType::F32, &Device::Cpu).unwrap(), GgmlDType::F32).unwrap();
        let tensors = [
            ("token_embd.weight", weights(100, 64)),
            ("output_norm.weight", ones()),
            ("blk.0.attn_norm.weight", ones()),
            ("blk.0.ffn_norm.weight", ones()),
            ("blk.0.attn_q.weight", weights(64, 64)),
            ("blk.0.attn_k.weight", weights(32, 64)),
            ("blk.0.attn_v.weight", weights(32, 64)),
            ("blk.0.attn_output.weight", weights(64, 64)),
            ("blk.0.ffn_gate.weight", weights(96, 64)),
            ("blk.0.ffn_up.weight", weights(96, 64)),
            ("blk.0.ffn_down.weight", weights(64, 96)),
        ];
        let entries = [
            ("general.architecture", Entry::String("llama".into())),
            ("llama.attention.head_count", Entry::U32(4)),
            ("llama.attention.head_count_kv", Entry::U32(2)),
            ("llama.block_count", Entry::U32(1)),
            ("llama.embedding_length", Entry::U32(64)),
            ("llama.rope.dimension_count", Entry::U32(16)),
            ("llama.attention.layer_norm_rms_epsilon", Entry::F32(1e-5)),
        ];
        let folder = new_folder();
        let path = folder.join("tiny.gguf");
        let entries: Vec<_> = entries.iter().map(|(name, entry)| (*name, entry)).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
        gguf_file::write(&mut File::create(&path).unwrap(), &entries, &tensors).unwrap();
        let (model, kind, _) = OneSequence::from_gguf(&path, &Device::Cpu).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((kind.as_str(), model.score_heads), ("float32", Some(4)));
        model
    }

    /// After the last of pieces that end there.
    fn logits(model: &mut OneSequence, ends: &[usize]) -> Result<Vec<f32>> {
        let mut start = 0;
        for &end in ends {
            let (tokens, wants_logits) = (&TOKENS[start..end], end == TOKENS.len());
            let output = model.forward(&[Piece { slot: 0, start, tokens, wants_logits }], false)?;
            let Output::Logits(logits) = output else { bail!("logits were asked for") };
            if wants_logits {
                return Ok(logits.to_vec());
            }
            start = end;
        }
        bail!("no piece ends with the prompt")
    }

    fn most_apart(one: &[f32], other: &[f32]) -> f32 {
        one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn a_prompt_in_pieces_gives_the_logits_of_the_whole_one() {
        let families = ["llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2", "mamba"];
        let tiny = families.map(|family| (family, tiny(family, DType::F32)));
        for (name, mut model) in tiny.into_iter().chain([("GGUF", tiny_gguf())]) {
            let whole = logits(&mut model, &[12]).unwrap();
            let pieces = logits(&mut model, &[5, 9, 12]).unwrap();
            assert!(most_apart(&whole, &pieces) < 1e-5, "{name}: {}", most_apart(&whole, &pieces));
        }
    }

    /// Those that are computed in 16 bits on a GPU.
    #[test]
    fn what_takes_no_second_piece_refuses_one() {
        for family in ["llama", "mistral", "phi3", "qwen3", "gemma", "gemma2"] {
            logits(&mut tiny(family, DType::BF16), &[5, 12]).unwrap();
        }
        for mut model in [tiny("qwen2", DType::BF16), tiny("gemma3_text", DType::F32)] {
            logits(&mut model, &[12]).unwrap();
            let failure = Failure::from(logits(&mut model, &[5, 12]).unwrap_err());
            assert!(failure.message.contains("in one step, here of at most 5 tokens"), "{}", failure.message);
            assert_eq!(model.most_scores(Some(1)), i32::MAX as usize / 4);
        }
    }

    #[test]
    fn scores_are_bounded_where_there_are_any() {
        assert_eq!(tiny("llama", DType::F32).most_scores(Some(4_800_000)), 10_000);
        assert_eq!(tiny("mamba", DType::F32).most_scores(Some(0)), usize::MAX);
    }
}
