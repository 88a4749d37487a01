//! The decoder of the Llama family (Touvron et al. 2023): Llama, SmolLM2, Mistral, Qwen2.

use crate::cache::{Cache, Step};
use crate::config::Config;
use crate::linear::{Linear, Weights, rms_norm, swiglu};
use crate::quantised::Blocks;
use anyhow::Result;
use candle_core::quantized::QTensor;
use candle_core::{DType, Device, Tensor};
use enginebench_protocol::{Model, Piece};
use std::sync::Arc;

/// One row for each token of the vocabulary.
pub enum Embeddings {
    Dense(Tensor),
    Quantised(Arc<QTensor>),
    QuantisedOnCpu(Arc<dyn Blocks>),
}

/// One layer's weights.
pub struct Block {
    pub attention_norm: Tensor,
    pub queries_keys_values: Linear,
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
    pub embeddings: Embeddings,
    pub blocks: Vec<Block>,
    pub norm: Tensor,
    pub head: Linear,
    pub frequencies: Vec<f64>,
    pub caches: Vec<Cache>,
    pub logits: Vec<f32>,
}

impl Model for Llama {
    fn vocab_size(&self) -> usize {
        self.config.vocabulary
    }

    fn forward(&mut self, batch: &[Piece]) -> Result<&mut [f32]> {
        let logits = self.logits_of(batch)?;
        self.logits = match logits {
            Some(logits) => logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?,
            None => Vec::new(),
        };
        Ok(&mut self.logits)
    }

    fn free(&mut self, slot: usize) {
        self.caches.iter_mut().for_each(|cache| cache.free(slot));
    }
}

impl Llama {
    /// `None` when no piece wants any.
    fn logits_of(&mut self, batch: &[Piece]) -> Result<Option<Tensor>> {
        let step = Step::new(batch, &self.frequencies, &self.device, self.dtype)?;
        let mut x = self.embed(batch)?;
        let epsilon = self.config.norm_epsilon;
        for (block, cache) in self.blocks.iter().zip(&mut self.caches) {
            let normed = rms_norm(&x, &block.attention_norm, epsilon)?;
            let mixed = cache.attend(&block.queries_keys_values.apply(&normed)?, &step, &self.config)?;
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
        let x = rms_norm(&x.index_select(&last, 0)?, &self.norm, epsilon)?;
        Ok(Some(self.head.apply(&x)?))
    }

    fn embed(&self, batch: &[Piece]) -> Result<Tensor> {
        let ids: Vec<u32> = batch.iter().flat_map(|piece| piece.tokens).copied().collect();
        let tensor = |ids: Vec<u32>| Tensor::new(ids, &self.device);
        let rows = match &self.embeddings {
            Embeddings::Dense(rows) => rows.index_select(&tensor(ids)?, 0)?,
            Embeddings::Quantised(rows) => rows.embedding(&tensor(ids)?)?,
            Embeddings::QuantisedOnCpu(rows) => {
                let shape = (ids.len(), rows.width());
                Tensor::from_vec(ids.iter().flat_map(|&id| rows.row(id as usize)).collect(), shape, &self.device)?
            }
        };
        Ok(rows.to_dtype(self.dtype)?)
    }
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

impl Linear {
    pub fn plain(weights: Weights) -> Self {
        Self { weights, bias: None }
    }
}
