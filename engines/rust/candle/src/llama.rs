//! The decoder of the Llama family (Touvron et al. 2023): Llama, SmolLM2, Mistral, Phi-3, Qwen2, Qwen3.

use crate::attention::Heads;
use crate::cache::{Cache, Step};
use crate::config::Config;
use crate::linear::{Linear, Weights, rms_norm, swiglu};
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use enginebench_protocol::{Model, Piece};

/// One layer's weights.
pub struct Block {
    pub attention_norm: Tensor,
    pub queries_keys_values: Linear,
    /// Of each query and each key, before they are turned, where a family has that.
    pub head_norms: Option<(Tensor, Tensor)>,
    pub out: Linear,
    pub inner_norm: Tensor,
    pub gate_up: Linear,
    pub down: Linear,
}

pub struct Llama {
    pub config: Config,
    pub device: Device,
    /// In which the layers compute.
    pub dtype: DType,
    /// One row for each token of the vocabulary.
    pub embeddings: Weights,
    pub blocks: Vec<Block>,
    pub norm: Tensor,
    pub head: Weights,
    pub frequencies: Vec<f64>,
    pub caches: Vec<Cache>,
    pub logits: Vec<f32>,
}

impl Model for Llama {
    fn vocab_size(&self) -> usize {
        self.config.vocabulary
    }

    fn forward(&mut self, batch: &[Piece]) -> Result<&mut [f32]> {
        self.logits.clear();
        if let Some(last) = self.last_hidden(batch)? {
            self.head.apply_into(&last, &mut self.logits)?;
        }
        Ok(&mut self.logits)
    }

    fn free(&mut self, slot: usize) {
        self.caches.iter_mut().for_each(|cache| cache.free(slot));
    }
}

impl Llama {
    /// What the logits are made of, `[pieces, hidden]`; `None` when no piece wants any.
    fn last_hidden(&mut self, batch: &[Piece]) -> Result<Option<Tensor>> {
        let step = Step::new(batch, &self.frequencies, &self.device, self.dtype)?;
        let mut x = self.embed(batch)?;
        let epsilon = self.config.norm_epsilon;
        for (block, cache) in self.blocks.iter().zip(&mut self.caches) {
            let normed = rms_norm(&x, &block.attention_norm, epsilon)?;
            let mut rows = block.queries_keys_values.apply(&normed)?;
            if let Some(norms) = &block.head_norms {
                rows = norm_heads(&rows, norms, Heads::of(&self.config), epsilon)?;
            }
            let mixed = cache.attend(&rows, &step, &self.config)?;
            x = (x + block.out.apply(&mixed)?)?;
            let normed = rms_norm(&x, &block.inner_norm, epsilon)?;
            let inner = swiglu(&block.gate_up.apply(&normed)?)?;
            x = (x + block.down.apply(&inner)?)?;
        }
        let last = last_rows(batch);
        if last.is_empty() {
            return Ok(None);
        }
        let last = Tensor::new(last, &self.device)?;
        Ok(Some(rms_norm(&x.index_select(&last, 0)?, &self.norm, epsilon)?))
    }

    fn embed(&self, batch: &[Piece]) -> Result<Tensor> {
        let ids: Vec<u32> = batch.iter().flat_map(|piece| piece.tokens).copied().collect();
        Ok(self.embeddings.look_up(ids, &self.device)?.to_dtype(self.dtype)?)
    }
}

/// `rows`: `[tokens, queries | keys | values]`, and so it stays.
fn norm_heads(rows: &Tensor, norms: &(Tensor, Tensor), heads: Heads, epsilon: f64) -> Result<Tensor> {
    let (tokens, width) = (rows.dim(0)?, heads.width);
    let normed = |from: usize, count: usize, norm: &Tensor| -> Result<Tensor> {
        let part = rows.narrow(1, from * width, count * width)?.contiguous()?.reshape((tokens * count, width))?;
        Ok(rms_norm(&part, norm, epsilon)?.reshape((tokens, count * width))?)
    };
    let values = rows.narrow(1, (heads.queries + heads.keys) * width, heads.keys * width)?;
    let (queries, keys) = (normed(0, heads.queries, &norms.0)?, normed(heads.queries, heads.keys, &norms.1)?);
    Ok(Tensor::cat(&[&queries, &keys, &values], 1)?)
}

/// Where in the step the last tokens stand whose logits are wanted.
fn last_rows(batch: &[Piece]) -> Vec<u32> {
    let mut end = 0;
    let ends = batch.iter().map(|piece| {
        end += piece.tokens.len() as u32;
        (piece.wants_logits, end - 1)
    });
    ends.filter(|(wanted, _)| *wanted).map(|(_, at)| at).collect()
}
