//! A decoder of the Llama family in Burn's layers and tensors: the same on every device that Burn knows.

use crate::cache::Cache;
use crate::config::Config;
use crate::settings::Settings;
use crate::weights::Weights;
use anyhow::{Result, anyhow};
use burn::module::Param;
use burn::nn::{Linear, RmsNorm};
use burn::prelude::*;
use burn::tensor::{DType, Int, activation};
use enginebench_protocol::{Failure, Model, Output, Piece};

pub struct Decoder {
    config: Config,
    device: Device,
    dtype: DType,
    embedding: Tensor<2>,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    cosines: Tensor<2>, // one row per position
    sines: Tensor<2>,   // the first half of a row negated: what turns a pair of values is (-sin, sin)
    slots: Vec<Option<Vec<Cache>>>,
    logits: Vec<f32>,
    on_cpu: bool,
}

struct Layer {
    before_attention: RmsNorm,
    qkv: Linear,
    output: Linear,
    before_mlp: RmsNorm,
    gate_up: Linear,
    down: Linear,
}

/// What all layers need to know of the tokens of one step.
struct Step<'a> {
    pieces: &'a [Piece<'a>],
    cosines: Tensor<4>, // token, head (one for all), half, pair
    sines: Tensor<4>,
    masks: Vec<Option<Tensor<3>>>, // of each piece: minus infinity where a token would look ahead
}

impl Decoder {
    /// `context`: the most tokens that a sequence will hold.
    pub fn load(config: Config, weights: &mut Weights, context: usize, settings: &Settings) -> Result<Self> {
        let (device, dtype) = (weights.device.clone(), weights.dtype);
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        let embedding = weights.rows("model.embed_tokens.weight", [vocabulary, hidden])?;
        let head = match !config.tie_word_embeddings && weights.has("lm_head.weight") {
            true => weights.columns("lm_head.weight", [vocabulary, hidden])?,
            false => embedding.clone().transpose(), // a view, so that the table is in memory once
        };
        let layers = (0..config.num_hidden_layers).map(|at| Layer::load(at, &config, weights));
        let layers = layers.collect::<Result<_>>()?;
        let norm = norm("model.norm", &config, weights)?;
        let (cosines, sines) = turns(&config, context, &device, dtype)?;
        Ok(Self {
            embedding,
            layers,
            norm,
            head: linear(head, None),
            cosines,
            sines,
            slots: (0..settings.slots).map(|_| None).collect(),
            logits: Vec::new(),
            on_cpu: settings.device_name.starts_with("cpu"),
            device,
            dtype,
            config,
        })
    }

    /// Keys and values of one token in all layers.
    pub fn cache_bytes_per_token(&self) -> usize {
        2 * self.layers.len() * self.config.kv_heads() * self.config.head_dim() * self.dtype.size()
    }

    fn step<'a>(&self, pieces: &'a [Piece]) -> Step<'a> {
        let positions: Vec<i32> = pieces
            .iter()
            .flat_map(|piece| (piece.start..piece.start + piece.tokens.len()).map(|at| at as i32))
            .collect();
        let (count, half) = (positions.len(), self.config.head_dim() / 2);
        let positions = self.indices(positions);
        let rows = |table: &Tensor<2>| table.clone().select(0, positions.clone()).reshape([count, 1, 2, half]);
        Step {
            pieces,
            cosines: rows(&self.cosines),
            sines: rows(&self.sines),
            masks: pieces.iter().map(|piece| self.mask(piece)).collect(),
        }
    }

    /// Rows: the piece's tokens, once for each query head of a group. Columns: everything up to the last of them.
    fn mask(&self, piece: &Piece) -> Option<Tensor<3>> {
        let count = piece.tokens.len();
        if count == 1 {
            return None;
        }
        let (groups, end) = (self.config.num_attention_heads / self.config.kv_heads(), piece.start + count);
        let row = |at: usize| (0..end).map(move |other| if other > at { f32::NEG_INFINITY } else { 0.0 });
        let values: Vec<f32> = (0..groups).flat_map(|_| (piece.start..end).flat_map(row)).collect();
        Some(Tensor::from_data(TensorData::new(values, [1, groups * count, end]), (&self.device, self.dtype)))
    }

    fn indices(&self, values: Vec<i32>) -> Tensor<1, Int> {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), &self.device)
    }

    fn attend(&mut self, at: usize, x: Tensor<2>, step: &Step) -> Tensor<2> {
        let (heads, kv_heads, size) = (self.config.num_attention_heads, self.config.kv_heads(), self.config.head_dim());
        let [count, _] = x.dims();
        let qkv = self.layers[at].qkv.forward(x);
        let turning = heads + kv_heads;
        let qk = qkv.clone().slice([0..count, 0..turning * size]).reshape([count, turning, 2, size / 2]);
        let qk = qk.clone() * step.cosines.clone() + qk.flip([2]) * step.sines.clone();
        let qk = qk.reshape([count, turning, size]);
        let values =
            qkv.slice([0..count, turning * size..(turning + kv_heads) * size]).reshape([count, kv_heads, size]);
        let mut answers = Vec::with_capacity(step.pieces.len());
        let mut row = 0;
        for (piece, mask) in step.pieces.iter().zip(&step.masks) {
            let rows = row..row + piece.tokens.len();
            row = rows.end;
            let cache = &mut self.slots[piece.slot].as_mut().expect("a piece's slot has caches")[at];
            let keys = qk.clone().slice([rows.clone(), heads..turning, 0..size]);
            cache.append(piece.start, keys, values.clone().slice([rows.clone(), 0..kv_heads, 0..size]));
            answers.push(cache.attend(qk.clone().slice([rows, 0..heads, 0..size]), mask.as_ref()));
        }
        let answer = if answers.len() == 1 { answers.remove(0) } else { Tensor::cat(answers, 0) };
        self.layers[at].output.forward(answer)
    }

    /// The logits, or `None` where no piece wants any.
    fn run(&mut self, pieces: &[Piece]) -> Option<Tensor<2>> {
        for piece in pieces.iter().filter(|piece| piece.start == 0) {
            self.slots[piece.slot] = Some((0..self.config.num_hidden_layers).map(|_| Cache::default()).collect());
        }
        let ids = pieces.iter().flat_map(|piece| piece.tokens.iter().map(|&id| id as i32)).collect();
        let mut x = self.embedding.clone().select(0, self.indices(ids));
        let step = self.step(pieces);
        for at in 0..self.layers.len() {
            let normed = self.layers[at].before_attention.forward(x.clone());
            x = x + self.attend(at, normed, &step);
            x = x.clone() + self.layers[at].mlp(x);
        }
        let mut end = 0;
        let mut last = Vec::new();
        for piece in pieces {
            end += piece.tokens.len();
            if piece.wants_logits {
                last.push(end as i32 - 1);
            }
        }
        if last.is_empty() {
            return None;
        }
        if last.len() < end {
            x = x.select(0, self.indices(last));
        }
        Some(self.head.forward(self.norm.forward(x)))
    }
}

impl Model for Decoder {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> Result<Output<'_>> {
        self.logits = match on_best_thread(self.on_cpu, || self.run(batch)) {
            None => Vec::new(),
            Some(logits) if likeliest && !self.on_cpu => return Ok(Output::Likeliest(likeliest_of(logits)?)),
            Some(logits) => {
                let data = logits.try_into_data_as::<f32>().map_err(|error| anyhow!("{error:?}"))?;
                data.try_into_vec().map_err(|error| anyhow!("{error:?}"))?
            }
        };
        Ok(Output::Logits(&mut self.logits))
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}

/// On a CPU one of Flex's threads: to hand it a product from outside takes longer than some products do. On a GPU always
/// the caller's: Burn gives each thread a stream of its own there, and a cache that changes streams is copied.
fn on_best_thread<T: Send>(on_cpu: bool, run: impl FnOnce() -> T + Send) -> T {
    if on_cpu { rayon::scope(|_| run()) } else { run() }
}

/// Of each row of logits, found on their device; `None` where no logit is a number.
fn likeliest_of(logits: Tensor<2>) -> Result<Vec<Option<u32>>> {
    let (most, ids) = logits.max_dim_with_indices(1);
    let ids = ids.try_into_data_as::<i64>().map_err(|error| anyhow!("{error:?}"))?;
    let most = most.try_into_data_as::<f32>().map_err(|error| anyhow!("{error:?}"))?;
    let ids: Vec<i64> = ids.try_into_vec().map_err(|error| anyhow!("{error:?}"))?;
    let most: Vec<f32> = most.try_into_vec().map_err(|error| anyhow!("{error:?}"))?;
    Ok(ids.into_iter().zip(most).map(|(id, most)| most.is_finite().then_some(id as u32)).collect())
}

impl Layer {
    fn load(at: usize, config: &Config, weights: &mut Weights) -> Result<Self> {
        let name = |part: &str| format!("model.layers.{at}.{part}");
        let (hidden, inner, size) = (config.hidden_size, config.intermediate_size, config.head_dim());
        let (q, kv) = (config.num_attention_heads * size, config.kv_heads() * size);
        let outputs =
            [("q", q), ("k", kv), ("v", kv)].map(|(part, size)| (name(&format!("self_attn.{part}_proj")), size));
        let qkv = outputs.iter().map(|(part, size)| weights.columns(&format!("{part}.weight"), [*size, hidden]));
        let qkv = qkv.collect::<Result<_>>()?;
        let bias = match config.has_qkv_bias() {
            true => {
                let parts = outputs.iter().map(|(part, size)| weights.factors(&format!("{part}.bias"), *size));
                Some(Tensor::cat(parts.collect::<Result<_>>()?, 0))
            }
            false => None,
        };
        let gate_up = ["gate", "up"].map(|part| name(&format!("mlp.{part}_proj.weight")));
        let gate_up = gate_up.iter().map(|part| weights.columns(part, [inner, hidden])).collect::<Result<_>>()?;
        let (output, down) = (name("self_attn.o_proj.weight"), name("mlp.down_proj.weight"));
        Ok(Self {
            before_attention: norm(&name("input_layernorm"), config, weights)?,
            qkv: linear(Tensor::cat(qkv, 1), bias),
            output: linear(weights.columns(&output, [hidden, q])?, None),
            before_mlp: norm(&name("post_attention_layernorm"), config, weights)?,
            gate_up: linear(Tensor::cat(gate_up, 1), None),
            down: linear(weights.columns(&down, [hidden, inner])?, None),
        })
    }

    fn mlp(&self, x: Tensor<2>) -> Tensor<2> {
        let both = self.gate_up.forward(self.before_mlp.forward(x));
        let [count, width] = both.dims();
        let gate = both.clone().slice([0..count, 0..width / 2]);
        let up = both.slice([0..count, width / 2..width]);
        self.down.forward(activation::silu(gate) * up)
    }
}

fn norm(name: &str, config: &Config, weights: &mut Weights) -> Result<RmsNorm> {
    let gamma = weights.factors(&format!("{name}.weight"), config.hidden_size)?;
    Ok(RmsNorm { gamma: Param::from_tensor(gamma), epsilon: config.rms_norm_eps })
}

/// `weight`: one column per output.
fn linear(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Linear {
    Linear { weight: Param::from_tensor(weight), bias: bias.map(Param::from_tensor) }
}

/// The rotary embedding's tables, computed in 64 bits: cosines, and sines with the first half of each row negated.
fn turns(config: &Config, positions: usize, device: &Device, dtype: DType) -> Result<(Tensor<2>, Tensor<2>)> {
    let frequencies = config.inverse_frequencies().map_err(|Failure { message, .. }| anyhow!(message))?;
    let size = config.head_dim();
    let mut cosines = Vec::with_capacity(positions * size);
    let mut sines = Vec::with_capacity(positions * size);
    for position in 0..positions {
        for sign in [-1.0, 1.0] {
            for frequency in &frequencies {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                cosines.push(cosine as f32);
                sines.push((sign * sine) as f32);
            }
        }
    }
    let table = |values| Tensor::from_data(TensorData::new(values, [positions, size]), (device, dtype));
    Ok((table(cosines), table(sines)))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn only_a_cpu_is_asked_from_another_thread() {
        let caller = std::thread::current().id();
        for on_cpu in [true, false] {
            assert_eq!(on_best_thread(on_cpu, || std::thread::current().id()) == caller, !on_cpu);
        }
    }

    #[test]
    fn the_likeliest_token_is_found_where_the_logits_are() {
        let rows = [[0f32, 3.0, -1.0], [f32::NEG_INFINITY; 3], [2.0, 1.0, 0.0]];
        let logits = Tensor::from_data(TensorData::new(rows.concat(), [3, 3]), (&Device::flex(), DType::F32));
        assert_eq!(likeliest_of(logits).unwrap(), [Some(1), None, Some(0)]);
    }
}
