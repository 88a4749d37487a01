//! A decoder of the Llama family in Burn's layers and tensors: the same on every device that Burn knows.

use crate::cache::{Cache, mask};
use crate::config::Config;
use crate::kernels::FILL;
use crate::settings::Settings;
use crate::shared::{Gathering, SharedCache};
use crate::weights::Weights;
use anyhow::{Result, anyhow};
use burn::module::Param;
use burn::nn::{Linear, RmsNorm};
use burn::prelude::*;
use burn::tensor::{DType, Int, activation};
use enginebench_protocol::{Failure, Model, Output, Piece, Rows, Step, most_scores};
use std::ops::Range;

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
    kept: Kept,
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

/// Keys and values of earlier tokens.
enum Kept {
    /// By slot and layer. On a CPU, where nothing is gained by computing sequences together.
    BySequence(Vec<Option<Vec<Cache>>>),
    /// By layer.
    Shared(Rows, Vec<SharedCache>),
}

/// What all layers need to know of the tokens of one step.
struct OnDevice<'a> {
    step: &'a Step,
    cosines: Tensor<4>, // token, head (one for all), half, pair
    sines: Tensor<4>,
    masks: Vec<Option<Tensor<3>>>, // of each sequence that has a cache of its own
    gathering: Option<Gathering>,  // where they share
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
        let layers: Vec<Layer> = layers.collect::<Result<_>>()?;
        let norm = norm("model.norm", &config, weights)?;
        let kept = match settings.on_cpu() {
            true => Kept::BySequence((0..settings.slots).map(|_| None).collect()),
            false => Kept::Shared(Rows::new(FILL), (0..layers.len()).map(|_| SharedCache::default()).collect()),
        };
        let (cosines, sines) = turns(&config, context, &device, dtype)?;
        Ok(Self {
            embedding,
            layers,
            norm,
            head: linear(head, None),
            cosines,
            sines,
            kept,
            logits: Vec::new(),
            on_cpu: settings.on_cpu(),
            device,
            dtype,
            config,
        })
    }

    /// Keys and values of one token in all layers.
    pub fn cache_bytes_per_token(&self) -> usize {
        2 * self.layers.len() * self.config.kv_heads() * self.config.head_dim() * self.dtype.size()
    }

    /// As [`most_scores`].
    pub fn most_scores(&self, free: Option<u64>) -> usize {
        most_scores(free, self.config.num_attention_heads, self.dtype.size())
    }

    /// As [`Rows::pretend`], where sequences share.
    pub fn pretend(&mut self, slots: usize, known: usize) {
        if let Kept::Shared(rows, _) = &mut self.kept {
            rows.pretend(slots, known);
        }
    }

    fn on_device<'a>(&self, step: &'a Step) -> OnDevice<'a> {
        let (count, half) = (step.ids.len(), self.config.head_dim() / 2);
        let positions = self.indices(&step.positions);
        let rows = |table: &Tensor<2>| table.clone().select(0, positions.clone()).reshape([count, 1, 2, half]);
        let each = self.config.num_attention_heads / self.config.kv_heads();
        let parts = step.groups.iter().flat_map(|group| &group.parts);
        let (masks, gathering) = match self.kept {
            Kept::BySequence(_) => (parts.map(|part| mask(part, each, &self.device, self.dtype)).collect(), None),
            Kept::Shared(..) => (Vec::new(), Some(Gathering::of(step, &self.device, self.dtype))),
        };
        OnDevice { step, cosines: rows(&self.cosines), sines: rows(&self.sines), masks, gathering }
    }

    fn indices(&self, values: &[u32]) -> Tensor<1, Int> {
        let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), &self.device)
    }

    fn attend(&mut self, at: usize, x: Tensor<2>, of: &OnDevice) -> Tensor<2> {
        let (heads, kv_heads, size) = (self.config.num_attention_heads, self.config.kv_heads(), self.config.head_dim());
        let [count, _] = x.dims();
        let qkv = self.layers[at].qkv.forward(x);
        let turning = heads + kv_heads;
        let qk = qkv.clone().slice([0..count, 0..turning * size]).reshape([count, turning, 2, size / 2]);
        let qk = qk.clone() * of.cosines.clone() + qk.flip([2]) * of.sines.clone();
        let qk = qk.reshape([count, turning, size]);
        let values =
            qkv.slice([0..count, turning * size..(turning + kv_heads) * size]).reshape([count, kv_heads, size]);
        let part = |rows: Range<usize>, heads: Range<usize>| qk.clone().slice([rows, heads, 0..size]);
        let answer = match &mut self.kept {
            Kept::BySequence(slots) => {
                let parts = of.step.groups.iter().flat_map(|group| &group.parts);
                let mut answers = Vec::with_capacity(of.masks.len());
                let mut row = 0;
                for (new, mask) in parts.zip(&of.masks) {
                    let rows = row..row + new.tokens;
                    row = rows.end;
                    let cache = &mut slots[new.slot].as_mut().expect("a piece's slot has caches")[at];
                    let values = values.clone().slice([rows.clone(), 0..kv_heads, 0..size]);
                    cache.append(new.start, part(rows.clone(), heads..turning), values);
                    answers.push(cache.attend(part(rows, 0..heads), mask.as_ref()));
                }
                if answers.len() == 1 { answers.remove(0) } else { Tensor::cat(answers, 0) }
            }
            Kept::Shared(_, layers) => {
                let gathering = of.gathering.as_ref().expect("what is shared is gathered");
                layers[at].append(of.step, gathering, part(0..count, heads..turning), values);
                layers[at].attend(of.step, gathering, part(0..count, 0..heads))
            }
        };
        self.layers[at].output.forward(answer)
    }

    /// The logits, or `None` where no piece wants any.
    fn run(&mut self, pieces: &[Piece]) -> Option<Tensor<2>> {
        let step = match &mut self.kept {
            Kept::Shared(rows, _) => Step::new(pieces, Some(rows)),
            Kept::BySequence(slots) => {
                for piece in pieces.iter().filter(|piece| piece.start == 0) {
                    slots[piece.slot] = Some((0..self.layers.len()).map(|_| Cache::default()).collect());
                }
                Step::new(pieces, None)
            }
        };
        let of = self.on_device(&step);
        let mut x = self.embedding.clone().select(0, self.indices(&step.ids));
        for at in 0..self.layers.len() {
            let normed = self.layers[at].before_attention.forward(x.clone());
            x = x + self.attend(at, normed, &of);
            x = x.clone() + self.layers[at].mlp(x);
        }
        let last = step.last();
        if last.is_empty() {
            return None;
        }
        if !last.iter().copied().eq(0..step.ids.len() as u32) {
            x = x.select(0, self.indices(&last));
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

    fn wait(&mut self) -> Result<()> {
        self.device.sync().map_err(|error| anyhow!("{error:?}"))
    }

    fn free(&mut self, slot: usize) {
        match &mut self.kept {
            Kept::BySequence(slots) => slots[slot] = None,
            Kept::Shared(rows, _) => rows.free(slot),
        }
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

    /// As on a GPU: sequences share their caches.
    fn on_a_gpu(slots: usize, context: usize) -> Decoder {
        let config = r#"{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
            "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":512,
            "rms_norm_eps":1e-5}"#;
        let settings = Settings {
            device: Device::flex(),
            device_name: "a GPU".into(),
            dtype: DType::F32,
            dtype_name: "float32",
            slots,
            context: None,
            step_time: 1.0,
            kv_tokens: None,
        };
        let mut weights = Weights::drawn(&settings.device, settings.dtype);
        Decoder::load(serde_json::from_str(config).unwrap(), &mut weights, context, &settings).unwrap()
    }

    #[test]
    fn kernels_are_made_and_no_sequence_is_left() {
        let mut decoder = on_a_gpu(3, 300);
        let answers = |decoder: &mut Decoder| {
            let piece = |slot, start, tokens| Piece { slot, start, tokens, wants_logits: true };
            let mut all = Vec::new();
            let steps =
                [vec![piece(0, 0, &[5, 6, 7][..]), piece(2, 0, &[9])], vec![piece(2, 1, &[1]), piece(0, 3, &[2])]];
            for step in steps {
                let Output::Logits(logits) = decoder.forward(&step, false).unwrap() else { panic!("they are wanted") };
                all.extend_from_slice(logits);
            }
            (0..3).for_each(|slot| decoder.free(slot));
            all
        };
        let before = answers(&mut decoder);
        crate::kernels::make(&mut decoder, 3, 300, 600).unwrap();
        decoder.wait().unwrap();
        let after = answers(&mut decoder);
        let most = before.iter().zip(&after).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(most < 1e-6 && before.len() == 400, "{most}");
    }

    #[test]
    fn the_likeliest_token_is_found_where_the_logits_are() {
        let rows = [[0f32, 3.0, -1.0], [f32::NEG_INFINITY; 3], [2.0, 1.0, 0.0]];
        let logits = Tensor::from_data(TensorData::new(rows.concat(), [3, 3]), (&Device::flex(), DType::F32));
        assert_eq!(likeliest_of(logits).unwrap(), [Some(1), None, Some(0)]);
    }
}
