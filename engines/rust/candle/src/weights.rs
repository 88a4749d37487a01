//! Weights from where they lie: safetensors, a GGUF file, or drawn at random. Matrices that meet the same input are
//! joined, so that a layer has four products instead of seven.

use crate::cache::Cache;
use crate::config::{Config, Scaling};
use crate::linear::{Linear, Weights};
use crate::llama::{Block, Llama};
use crate::matrix::Dense;
use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::safetensors::MmapedSafetensors;
use candle_core::{CpuStorage, DType, Device, Storage, Tensor};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RANDOM_SPREAD: f32 = 0.02; // of drawn weights, as most models begin their training
const RANDOM_SEED: u64 = 0; // everybody measures the same ones
/// Built with a library for matrix products, which then takes those of 32-bit floats on a CPU.
const LIBRARY: bool = cfg!(any(feature = "mkl", feature = "accelerate"));

/// What people call it.
pub fn kind_name(kind: GgmlDType) -> String {
    match kind {
        GgmlDType::F32 => "float32".into(),
        GgmlDType::F16 => "float16".into(),
        GgmlDType::BF16 => "bfloat16".into(),
        other => format!("{other:?}").to_lowercase().replace('k', "_k"),
    }
}

/// How matrices are kept. Norms and biases stay as exact as they come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kept {
    Dense(DType),
    Quantised(GgmlDType),
    /// As the GGUF file has them.
    AsInFile,
}

/// Where to compute, and for how many.
pub struct Plan {
    pub device: Device,
    pub kept: Kept,
    pub slots: usize,
}

impl Plan {
    /// In which the layers compute: quantised products take and give 32-bit floats, and so does our CPU path.
    fn dtype(&self) -> DType {
        match self.kept {
            Kept::Dense(dtype) if !self.device.is_cpu() => dtype,
            _ => DType::F32,
        }
    }
}

/// Tensors by their Hugging Face names.
pub trait Source {
    /// A matrix, ready to be multiplied with; `None` where the model has none of that name.
    fn matrix(&mut self, names: &[String], plan: &Plan) -> Result<Option<Weights>>;
    /// A norm or a bias, or several end to end.
    fn vector(&mut self, names: &[String], plan: &Plan) -> Result<Option<Tensor>>;
}

pub fn build(config: Config, source: &mut dyn Source, plan: &Plan) -> Result<Llama> {
    let embeddings = source.matrix(&["model.embed_tokens".into()], plan)?.context("the model has no embeddings")?;
    let blocks = (0..config.layers).map(|layer| block(source, plan, layer)).collect::<Result<Vec<_>>>()?;
    let head = source.matrix(&["lm_head".into()], plan)?.unwrap_or_else(|| embeddings.clone()); // where they are tied
    Ok(Llama {
        embeddings,
        blocks,
        norm: needed_vector(source, plan, "model.norm")?,
        head,
        frequencies: config.rope.frequencies(config.head_width),
        caches: (0..config.layers).map(|_| Cache::new(&plan.device, plan.slots)).collect(),
        logits: Vec::new(),
        device: plan.device.clone(),
        dtype: plan.dtype(),
        config,
    })
}

fn block(source: &mut dyn Source, plan: &Plan, layer: usize) -> Result<Block> {
    let name = |part: &str| format!("model.layers.{layer}.{part}");
    // Some families keep one matrix where others have several: the first that the model has.
    let mut linear = |ways: &[&[&str]]| -> Result<Linear> {
        for parts in ways {
            let names: Vec<String> = parts.iter().map(|part| name(part)).collect();
            if let Some(weights) = source.matrix(&names, plan)? {
                let biases: Vec<String> = names.iter().map(|name| format!("{name}.bias")).collect();
                return Ok(Linear { weights, bias: source.vector(&biases, plan)? });
            }
        }
        bail!("the model has no {}", name(ways[0][0]))
    };
    Ok(Block {
        queries_keys_values: linear(&[
            &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            &["self_attn.qkv_proj"],
        ])?,
        out: linear(&[&["self_attn.o_proj"]])?,
        gate_up: linear(&[&["mlp.gate_proj", "mlp.up_proj"], &["mlp.gate_up_proj"]])?,
        down: linear(&[&["mlp.down_proj"]])?,
        head_norms: source
            .vector(&[name("self_attn.q_norm.weight")], plan)?
            .zip(source.vector(&[name("self_attn.k_norm.weight")], plan)?),
        attention_norm: needed_vector(source, plan, &name("input_layernorm"))?,
        inner_norm: needed_vector(source, plan, &name("post_attention_layernorm"))?,
    })
}

fn needed_vector(source: &mut dyn Source, plan: &Plan, name: &str) -> Result<Tensor> {
    let found = source.vector(&[format!("{name}.weight")], plan)?;
    found.with_context(|| format!("the model has no {name}"))
}

/// Keep a matrix as the plan says.
fn keep(rows: Tensor, plan: &Plan) -> Result<Weights> {
    match plan.kept {
        Kept::Quantised(kind) if rows.dim(1)? % kind.block_size() == 0 => {
            Weights::quantised(QTensor::quantize_onto(&rows.to_dtype(DType::F32)?, kind, &plan.device)?)
        }
        Kept::Dense(dtype) => dense(rows, dtype, plan),
        _ => dense(rows, DType::F32, plan),
    }
}

fn dense(rows: Tensor, dtype: DType, plan: &Plan) -> Result<Weights> {
    let rows = rows.to_dtype(dtype)?;
    if !plan.device.is_cpu() || (LIBRARY && dtype == DType::F32) {
        return Ok(Weights::Dense(rows.to_device(&plan.device)?));
    }
    let (rows, width) = (rows.contiguous()?, rows.dim(1)?);
    let (storage, layout) = rows.storage_and_layout();
    let range = layout.start_offset()..layout.start_offset() + rows.elem_count();
    Ok(Weights::OnCpu(match &*storage {
        Storage::Cpu(CpuStorage::F32(all)) => Arc::new(Dense::of(&all[range], width)),
        Storage::Cpu(CpuStorage::BF16(all)) => Arc::new(Dense::of(&all[range], width)),
        _ => bail!("weights on a CPU are float32 or bfloat16"),
    }))
}

/// A folder of safetensors, in one file or many.
pub struct Folder(MmapedSafetensors);

impl Folder {
    pub fn open(folder: &Path) -> Result<Self> {
        let entries = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|kind| kind == "safetensors")).collect();
        if files.is_empty() {
            bail!("there are no safetensors");
        }
        // SAFETY: the file is only read, and nobody changes a model while it is served.
        Ok(Self(unsafe { MmapedSafetensors::multi(&files)? }))
    }

    /// Rows of several tensors, one after the other. They stay where they are until they are kept.
    fn joined(&self, names: &[String]) -> Result<Option<Tensor>> {
        if names.iter().any(|name| self.0.get(name).is_err()) {
            return Ok(None);
        }
        let parts = names.iter().map(|name| self.0.load(name, &Device::Cpu)).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(if parts.len() == 1 { parts[0].clone() } else { Tensor::cat(&parts, 0)? }))
    }
}

impl Source for Folder {
    fn matrix(&mut self, names: &[String], plan: &Plan) -> Result<Option<Weights>> {
        let names: Vec<String> = names.iter().map(|name| format!("{name}.weight")).collect();
        self.joined(&names)?.map(|rows| keep(rows, plan)).transpose()
    }

    fn vector(&mut self, names: &[String], plan: &Plan) -> Result<Option<Tensor>> {
        let joined = self.joined(names)?;
        joined.map(|one| Ok(one.to_dtype(plan.dtype())?.to_device(&plan.device)?)).transpose()
    }
}

/// Weights drawn at random, for speed alone.
pub struct Random {
    shape: Config,
    random: fastrand::Rng,
}

impl Random {
    pub fn new(shape: &Config) -> Self {
        Self { shape: shape.clone(), random: fastrand::Rng::with_seed(RANDOM_SEED) }
    }

    fn rows(&self, name: &str) -> (usize, usize) {
        let shape = &self.shape;
        let (queries, keys) = (shape.heads * shape.head_width, shape.kv_heads * shape.head_width);
        match name.rsplit('.').next().unwrap_or(name) {
            "q_proj" => (queries, shape.hidden),
            "k_proj" | "v_proj" => (keys, shape.hidden),
            "o_proj" => (shape.hidden, queries),
            "gate_proj" | "up_proj" => (shape.inner, shape.hidden),
            "down_proj" => (shape.hidden, shape.inner),
            _ => (shape.vocabulary, shape.hidden),
        }
    }

    fn draw(&mut self, rows: usize, width: usize) -> Result<Tensor> {
        // Even, not normal, with the same spread: as good for a clock, and much faster to draw.
        let reach = RANDOM_SPREAD * 3f32.sqrt();
        let numbers: Vec<f32> = (0..rows * width).map(|_| (self.random.f32() * 2.0 - 1.0) * reach).collect();
        Ok(Tensor::from_vec(numbers, (rows, width), &Device::Cpu)?)
    }
}

impl Source for Random {
    fn matrix(&mut self, names: &[String], plan: &Plan) -> Result<Option<Weights>> {
        if names == ["lm_head"] {
            return Ok(None); // tied
        }
        let rows = names.iter().map(|name| self.rows(name).0).sum();
        let width = self.rows(&names[0]).1;
        Ok(Some(keep(self.draw(rows, width)?, plan)?))
    }

    fn vector(&mut self, names: &[String], plan: &Plan) -> Result<Option<Tensor>> {
        if !names[0].ends_with("norm.weight") || names[0].contains("self_attn") {
            return Ok(None);
        }
        Ok(Some(Tensor::ones(self.shape.hidden, plan.dtype(), &plan.device)?))
    }
}

/// A GGUF file. Its llama family keeps the two numbers of a rotary pair side by side; their rows are moved back, so
/// that there is one rotation for all.
pub struct Gguf {
    content: Content,
    file: File,
    shape: Config,
    interleaved: bool,
}

impl Gguf {
    pub fn open(path: &Path) -> Result<(Self, Config)> {
        let mut file = File::open(path)?;
        let content = Content::read(&mut file)?;
        let shape = Config::from_gguf(&content)?;
        let family = content.metadata.get("general.architecture").and_then(|value| value.to_string().ok());
        let interleaved = family.is_some_and(|family| family == "llama");
        let mut gguf = Self { content, file, shape, interleaved };
        if let Some(factors) = gguf.raw("rope_freqs.weight")? {
            gguf.shape.rope.scaling = Scaling::Each(factors.floats()?.to_vec1()?);
        }
        let shape = gguf.shape.clone();
        Ok((gguf, shape))
    }

    /// How the file's matrices are kept, the commonest first named: "q4_1".
    pub fn kind(&self) -> String {
        let mut counts: std::collections::BTreeMap<String, usize> = Default::default();
        for info in self.content.tensor_infos.values() {
            *counts.entry(kind_name(info.ggml_dtype)).or_default() += info.shape.elem_count();
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map_or_else(String::new, |(kind, _)| kind)
    }

    /// One tensor, its rows in our order. Bytes and shape, so that quantised rows can be moved and joined too.
    fn raw(&mut self, name: &str) -> Result<Option<Raw>> {
        if !self.content.tensor_infos.contains_key(name) {
            return Ok(None);
        }
        let tensor = self.content.tensor(&mut self.file, name, &Device::Cpu)?;
        let (kind, shape) = (tensor.dtype(), tensor.shape().dims().to_vec());
        let mut bytes = tensor.data()?.into_owned();
        let turned = name.contains("attn_q.") || name.contains("attn_k.");
        if turned && self.interleaved {
            bytes = half_split(&bytes, bytes.len() / shape[0], self.shape.head_width);
        }
        Ok(Some(Raw { kind, bytes, shape }))
    }
}

/// A tensor as it lies in the file.
struct Raw {
    kind: GgmlDType,
    bytes: Vec<u8>,
    shape: Vec<usize>,
}

impl Raw {
    fn on(self, device: &Device) -> Result<QTensor> {
        Ok(QTensor::new(QStorage::from_data(Cow::Owned(self.bytes), device, self.kind)?, self.shape)?)
    }

    fn floats(self) -> Result<Tensor> {
        Ok(self.on(&Device::Cpu)?.dequantize(&Device::Cpu)?)
    }

    fn stays_as_it_is(&self, plan: &Plan) -> bool {
        plan.kept == Kept::AsInFile && self.kind.block_size() > 1
    }

    fn matrix(self, plan: &Plan) -> Result<Weights> {
        if self.stays_as_it_is(plan) { Weights::quantised(self.on(&plan.device)?) } else { keep(self.floats()?, plan) }
    }
}

/// Rows 0 1 2 3 … of each head become 0 2 4 … 1 3 5 …
fn half_split(bytes: &[u8], row: usize, head: usize) -> Vec<u8> {
    let order = (0..head).step_by(2).chain((1..head).step_by(2));
    let heads = bytes.chunks_exact(row * head);
    heads.flat_map(|rows| order.clone().flat_map(move |at| &rows[at * row..][..row])).copied().collect()
}

fn gguf_name(name: &str) -> String {
    let renamed = [
        ("model.embed_tokens", "token_embd"),
        ("lm_head", "output"),
        ("model.norm", "output_norm"),
        ("model.layers.", "blk."),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"),
    ];
    renamed.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

impl Source for Gguf {
    fn matrix(&mut self, names: &[String], plan: &Plan) -> Result<Option<Weights>> {
        let mut parts = Vec::new();
        for name in names {
            match self.raw(&format!("{}.weight", gguf_name(name)))? {
                Some(part) => parts.push(part),
                None => return Ok(None),
            }
        }
        if parts.iter().all(|part| part.kind == parts[0].kind) {
            let shape = vec![parts.iter().map(|part| part.shape[0]).sum(), parts[0].shape[1]];
            let kind = parts[0].kind;
            let bytes = parts.into_iter().flat_map(|part| part.bytes).collect();
            return Ok(Some(Raw { kind, bytes, shape }.matrix(plan)?));
        }
        let parts = parts.into_iter().map(|part| part.matrix(plan));
        Ok(Some(Weights::Several(parts.collect::<Result<_>>()?)))
    }

    fn vector(&mut self, names: &[String], plan: &Plan) -> Result<Option<Tensor>> {
        let mut parts = Vec::new();
        for name in names {
            let Some(part) = self.raw(&gguf_name(name))? else { return Ok(None) };
            parts.push(part.floats()?);
        }
        Ok(Some(Tensor::cat(&parts, 0)?.to_dtype(plan.dtype())?.to_device(&plan.device)?))
    }
}
