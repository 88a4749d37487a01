//! The decoder of the Llama family (Touvron et al. 2023) for a batch of sequences, on Candle's operations: one matrix
//! product for all tokens of a step, and attention (`attention.rs`) of each over its own sequence.
//!
//! candle-transformers' models have one cache for one sequence, so this is ours; every product, norm, rotation and
//! attention in it is Candle's.

use crate::attention::{Heads, Kept, Needs, is_one_kernel};
use crate::weights::{Format, Linear};
use anyhow::{Context, Result, anyhow, bail};
use candle_core::{D, DType, Device, Module, Tensor};
use candle_nn::{RmsNorm, VarBuilder, rotary_emb};
use enginebench_protocol::{Failure, LlamaConfig, Model, Output, Piece, Rows, Step, most_scores};
use serde_json::Value;

/// Families whose decoder this is; they differ in shapes, biases and norms of the heads.
pub const FAMILIES: [&str; 5] = ["llama", "mistral", "phi3", "qwen2", "qwen3"];

struct Layer {
    attention_norm: RmsNorm,
    queries_keys_values: Linear,
    head_norms: Option<(RmsNorm, RmsNorm)>,
    out: Linear,
    inner_norm: RmsNorm,
    gate_up: Linear,
    down: Linear,
    kept: Kept,
}

pub struct Decoder {
    embeddings: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    heads: Heads,
    /// Of each position: `[context, width / 2]`.
    rotation: (Tensor, Tensor),
    vocabulary: usize,
    device: Device,
    /// Of the sequences that share a tensor.
    rows: Option<Rows>,
    logits: Vec<f32>,
}

impl Decoder {
    pub fn new(config: &Value, weights: VarBuilder, format: Format, context: usize, slots: usize) -> Result<Self> {
        let family = config["model_type"].as_str().unwrap_or_default();
        if !FAMILIES.contains(&family) {
            bail!(Failure::unavailable(format!(
                "candle runs {family} one request at a time; set concurrency=1 (batches: {}).",
                FAMILIES.join(", ")
            )));
        }
        let config: LlamaConfig = serde_json::from_value(config.clone()).context("config.json")?;
        let activation = config.hidden_act.as_deref().unwrap_or("silu");
        if activation != "silu" || config.partial_rotary_factor.is_some_and(|part| part != 1.0) {
            bail!(Failure::unavailable(format!(
                "candle batches {family} only with the activation silu and whole rotary heads; set concurrency=1."
            )));
        }
        let (hidden, inner, vocabulary) = (config.hidden_size, config.intermediate_size, config.vocab_size);
        let heads = Heads { queries: config.num_attention_heads, keys: config.kv_heads(), width: config.head_dim() };
        let epsilon = config.rms_norm_eps;
        let shape = Shape { hidden, inner, heads, epsilon, format, slots };
        let model = weights.pp("model");
        let embeddings = model.get((vocabulary, hidden), "embed_tokens.weight")?;
        let tied = !weights.contains_tensor("lm_head.weight");
        let head = if tied { embeddings.clone() } else { weights.get((vocabulary, hidden), "lm_head.weight")? };
        let layers = (0..config.num_hidden_layers).map(|at| shape.layer(&model.pp("layers").pp(at)));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            norm: candle_nn::rms_norm(hidden, epsilon, model.pp("norm"))?,
            head: Linear::new(head, None, format)?,
            rotation: rotation(&config, context, &embeddings)?,
            rows: (!is_one_kernel(embeddings.device(), embeddings.dtype())).then(|| Rows::new(1)),
            device: embeddings.device().clone(),
            logits: Vec::new(),
            embeddings,
            heads,
            vocabulary,
        })
    }

    /// Keys and values of one token in all layers.
    pub fn cache_bytes_per_token(&self) -> usize {
        2 * self.layers.len() * self.heads.keys * self.heads.width * self.embeddings.dtype().size_in_bytes()
    }

    /// As [`most_scores`].
    pub fn most_scores(&self, free: Option<u64>) -> usize {
        most_scores(free, self.heads.queries, self.embeddings.dtype().size_in_bytes())
    }

    /// `[tokens, hidden]` of a step, before the last norm.
    fn hidden(&mut self, step: &Step) -> Result<Tensor> {
        let positions = Tensor::new(step.positions.as_slice(), &self.device)?;
        let turns = (self.rotation.0.index_select(&positions, 0)?, self.rotation.1.index_select(&positions, 0)?);
        let needs = Needs::of(step, self.heads, &self.embeddings)?;
        let mut x = self.embeddings.index_select(&Tensor::new(step.ids.as_slice(), &self.device)?, 0)?;
        for layer in &mut self.layers {
            let mixed = layer.attend(&layer.attention_norm.forward(&x)?, step, &needs, &turns, self.heads)?;
            x = (x + layer.out.forward(&mixed)?)?;
            let gate_up = layer.gate_up.forward(&layer.inner_norm.forward(&x)?)?;
            let (gate, up) = halves(&gate_up)?;
            x = (x + layer.down.forward(&(gate.silu()? * up)?)?)?;
        }
        Ok(x)
    }
}

impl Model for Decoder {
    fn vocab_size(&self) -> usize {
        self.vocabulary
    }

    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> Result<Output<'_>> {
        let step = Step::new(batch, self.rows.as_mut());
        let (hidden, last) = (self.hidden(&step)?, step.last());
        self.logits.clear();
        if !last.is_empty() {
            let last = hidden.index_select(&Tensor::new(last, &self.device)?, 0)?;
            let logits = self.head.forward(&self.norm.forward(&last)?)?;
            if likeliest && !self.device.is_cpu() {
                return Ok(Output::Likeliest(likeliest_of(&logits)?));
            }
            self.logits = logits.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?;
        }
        Ok(Output::Logits(&mut self.logits))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    fn free(&mut self, slot: usize) {
        self.layers.iter_mut().for_each(|layer| layer.kept.free(slot));
        if let Some(rows) = &mut self.rows {
            rows.free(slot);
        }
    }
}

/// Of each row of logits, found on their device; `None` where no logit is a number.
pub fn likeliest_of(logits: &Tensor) -> Result<Vec<Option<u32>>> {
    let logits = logits.to_dtype(DType::F32)?.contiguous()?;
    let ids: Vec<u32> = logits.argmax(D::Minus1)?.to_vec1()?;
    let most: Vec<f32> = logits.max(D::Minus1)?.to_vec1()?;
    Ok(ids.into_iter().zip(most).map(|(id, most)| most.is_finite().then_some(id)).collect())
}

impl Layer {
    /// `x`: `[tokens, hidden]`; gives `[tokens, query heads * width]`.
    fn attend(
        &mut self,
        x: &Tensor,
        step: &Step,
        needs: &Needs,
        turns: &(Tensor, Tensor),
        heads: Heads,
    ) -> Result<Tensor> {
        let rows = self.queries_keys_values.forward(x)?;
        let tokens = rows.dim(0)?;
        let part = |first: usize, count: usize| -> Result<Tensor> {
            let part = rows.narrow(1, first * heads.width, count * heads.width)?.contiguous()?;
            Ok(part.reshape((1, tokens, count, heads.width))?)
        };
        let (mut queries, mut keys) = (part(0, heads.queries)?, part(heads.queries, heads.keys)?);
        let values = part(heads.queries + heads.keys, heads.keys)?;
        if let Some((query_norm, key_norm)) = &self.head_norms {
            (queries, keys) = (query_norm.forward(&queries)?, key_norm.forward(&keys)?);
        }
        let (queries, keys) = (turned(&queries, turns)?, turned(&keys, turns)?);
        self.kept.attend(step, needs, &queries, &keys, &values)
    }
}

/// Pair `i` of each head is made of the numbers `i` and `i + width / 2`. `x`: `[1, tokens, heads, width]`.
fn turned(x: &Tensor, (cosines, sines): &(Tensor, Tensor)) -> candle_core::Result<Tensor> {
    rotary_emb::rope_thd(x, cosines, sines)
}

fn halves(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let width = x.dim(D::Minus1)? / 2;
    Ok((x.narrow(D::Minus1, 0, width)?.contiguous()?, x.narrow(D::Minus1, width, width)?.contiguous()?))
}

/// Cosines and sines of every position.
fn rotation(config: &LlamaConfig, context: usize, like: &Tensor) -> Result<(Tensor, Tensor)> {
    let frequencies = config.inverse_frequencies().map_err(|Failure { message, .. }| anyhow!(message))?;
    // Rounded to 32 bits where models were trained with that: at far positions it is more than the last digit.
    let angles = (0..context).flat_map(|at| frequencies.iter().map(move |&frequency| at as f32 * frequency as f32));
    let angles = Tensor::from_iter(angles, like.device())?.reshape((context, frequencies.len()))?;
    Ok((angles.cos()?.to_dtype(like.dtype())?, angles.sin()?.to_dtype(like.dtype())?))
}

struct Shape {
    hidden: usize,
    inner: usize,
    heads: Heads,
    epsilon: f64,
    format: Format,
    slots: usize,
}

impl Shape {
    fn layer(&self, weights: &VarBuilder) -> Result<Layer> {
        let Self { hidden, inner, heads, epsilon, .. } = *self;
        let (queries, keys) = (heads.queries * heads.width, heads.keys * heads.width);
        let attention = weights.pp("self_attn");
        let norm = |name: &str| candle_nn::rms_norm(hidden, epsilon, weights.pp(name));
        let head_norm = |name: &str| candle_nn::rms_norm(heads.width, epsilon, attention.pp(name));
        let has_head_norms = attention.contains_tensor("q_norm.weight");
        Ok(Layer {
            attention_norm: norm("input_layernorm")?,
            queries_keys_values: self.joined(
                &attention,
                &[("q_proj", queries), ("k_proj", keys), ("v_proj", keys)],
                "qkv_proj",
                hidden,
            )?,
            head_norms: if has_head_norms { Some((head_norm("q_norm")?, head_norm("k_norm")?)) } else { None },
            out: self.joined(&attention, &[("o_proj", hidden)], "o_proj", queries)?,
            inner_norm: norm("post_attention_layernorm")?,
            gate_up: self.joined(
                &weights.pp("mlp"),
                &[("gate_proj", inner), ("up_proj", inner)],
                "gate_up_proj",
                hidden,
            )?,
            down: self.joined(&weights.pp("mlp"), &[("down_proj", hidden)], "down_proj", inner)?,
            kept: Kept::new(self.slots, heads, weights.dtype(), weights.device())?,
        })
    }

    /// Matrices with the same input as one: Phi-3 stores them so, under the name `whole`.
    fn joined(&self, from: &VarBuilder, parts: &[(&str, usize)], whole: &str, width: usize) -> Result<Linear> {
        if from.contains_tensor(&format!("{whole}.weight")) {
            let rows = parts.iter().map(|(_, rows)| rows).sum::<usize>();
            return Linear::new(from.get((rows, width), &format!("{whole}.weight"))?, None, self.format);
        }
        let rows = parts.iter().map(|(name, rows)| from.get((*rows, width), &format!("{name}.weight")));
        let rows = Tensor::cat(&rows.collect::<candle_core::Result<Vec<_>>>()?, 0)?;
        let has_bias = from.contains_tensor(&format!("{}.bias", parts[0].0));
        let bias = parts.iter().filter(|_| has_bias).map(|(name, rows)| from.get(*rows, &format!("{name}.bias")));
        let bias = bias.collect::<candle_core::Result<Vec<_>>>()?;
        Linear::new(rows, if has_bias { Some(Tensor::cat(&bias, 0)?) } else { None }, self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_token_is_found_where_the_logits_are() {
        let rows = Tensor::new(&[[0f32, 3.0, -1.0], [f32::NEG_INFINITY; 3], [2.0, 1.0, 0.0]], &Device::Cpu).unwrap();
        assert_eq!(likeliest_of(&rows).unwrap(), [Some(1), None, Some(0)]);
        let half = rows.to_dtype(DType::BF16).unwrap();
        assert_eq!(likeliest_of(&half).unwrap(), [Some(1), None, Some(0)]);
    }
}
