//! Keys and values of everything that is being written, a slot for each sequence, on whatever device computes.

use crate::attention::{Heads, LayerCache, Turns};
use crate::config::Config;
use crate::linear::on_floats;
use anyhow::Result;
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{ops::softmax_last_dim, rotary_emb::rope_thd};
use enginebench_protocol::Piece;

/// What a step's layers have in common.
pub struct Step<'b> {
    pub batch: &'b [Piece<'b>],
    turns: Turns,
    on_device: Option<(Tensor, Tensor)>, // the turns as tensors, where it is not the CPU that computes
}

impl<'b> Step<'b> {
    pub fn new(batch: &'b [Piece<'b>], frequencies: &[f64], device: &Device, dtype: DType) -> Result<Self> {
        let turns = Turns::of(batch, frequencies);
        let on_device = if device.is_cpu() { None } else { Some(turns_on(&turns, frequencies.len(), device, dtype)?) };
        Ok(Self { batch, turns, on_device })
    }
}

fn turns_on(turns: &Turns, half: usize, device: &Device, dtype: DType) -> Result<(Tensor, Tensor)> {
    let tensor = |numbers: &[f32]| -> Result<Tensor> {
        Ok(Tensor::from_slice(numbers, (numbers.len() / half, half), device)?.to_dtype(dtype)?)
    };
    Ok((tensor(&turns.cosines)?, tensor(&turns.sines)?))
}

/// One layer's cache.
pub enum Cache {
    Cpu(LayerCache),
    Device(Vec<Option<(Tensor, Tensor)>>), // per slot: keys and values, `[key heads, positions, width]`
}

impl Cache {
    pub fn new(device: &Device, slots: usize) -> Self {
        if device.is_cpu() { Self::Cpu(LayerCache::new(slots)) } else { Self::Device(vec![None; slots]) }
    }

    pub fn free(&mut self, slot: usize) {
        match self {
            Self::Cpu(cache) => cache.free(slot),
            Self::Device(slots) => slots[slot] = None,
        }
    }

    /// `rows`: `[tokens, queries | keys | values]` of the step; gives `[tokens, query heads * width]`.
    pub fn attend(&mut self, rows: &Tensor, step: &Step, config: &Config) -> Result<Tensor> {
        let heads = Heads::of(config);
        match self {
            Self::Cpu(cache) => {
                let shape = (rows.dim(0)?, heads.queries * heads.width);
                on_floats(rows, shape, |rows, outputs| {
                    cache.attend(&mut rows.to_vec(), step.batch, &step.turns, heads, outputs);
                })
            }
            Self::Device(slots) => attend_on_device(slots, rows, step, heads),
        }
    }
}

/// The same with candle's own operations, piece by piece.
fn attend_on_device(
    slots: &mut [Option<(Tensor, Tensor)>],
    rows: &Tensor,
    step: &Step,
    heads: Heads,
) -> Result<Tensor> {
    let (tokens, width) = (rows.dim(0)?, heads.width);
    let (cosines, sines) = step.on_device.as_ref().expect("made with the step");
    let part = |from: usize, count: usize| -> Result<Tensor> {
        Ok(rows.narrow(1, from * width, count * width)?.reshape((1, tokens, count, width))?.contiguous()?)
    };
    let queries = rope_thd(&part(0, heads.queries)?, cosines, sines)?.squeeze(0)?;
    let keys = rope_thd(&part(heads.queries, heads.keys)?, cosines, sines)?.squeeze(0)?.transpose(0, 1)?;
    let values = part(heads.queries + heads.keys, heads.keys)?.squeeze(0)?.transpose(0, 1)?;
    let mut outputs = Vec::with_capacity(step.batch.len());
    let mut first = 0;
    for piece in step.batch {
        let count = piece.tokens.len();
        let new = (keys.narrow(1, first, count)?, values.narrow(1, first, count)?);
        let (keys, values) = match &slots[piece.slot] {
            Some(past) if piece.start > 0 => (Tensor::cat(&[&past.0, &new.0], 1)?, Tensor::cat(&[&past.1, &new.1], 1)?),
            _ => (new.0.contiguous()?, new.1.contiguous()?),
        };
        outputs.push(look_back(&queries.narrow(0, first, count)?, &keys, &values, piece.start, heads)?);
        slots[piece.slot] = Some((keys, values));
        first += count;
    }
    Ok(Tensor::cat(&outputs, 0)?)
}

/// `queries`: `[tokens, query heads, width]`; `keys`, `values`: `[key heads, positions, width]`.
fn look_back(queries: &Tensor, keys: &Tensor, values: &Tensor, start: usize, heads: Heads) -> Result<Tensor> {
    let (tokens, group, width) = (queries.dim(0)?, heads.queries / heads.keys, heads.width);
    #[cfg(feature = "flash-attn")]
    if matches!(queries.dtype(), DType::BF16 | DType::F16) {
        let (keys, values) = (keys.transpose(0, 1)?.unsqueeze(0)?, values.transpose(0, 1)?.unsqueeze(0)?);
        let scale = 1.0 / (width as f32).sqrt();
        let mixed = candle_flash_attn::flash_attn(&queries.unsqueeze(0)?, &keys, &values, scale, true)?;
        return Ok(mixed.reshape((tokens, heads.queries * width))?);
    }
    let queries = queries.reshape((tokens, heads.keys, group, width))?.transpose(0, 1)?.contiguous()?;
    let queries = (queries.reshape((heads.keys, tokens * group, width))? * (1.0 / (width as f64).sqrt()))?;
    let mut scores = queries.matmul(&keys.transpose(1, 2)?.contiguous()?)?;
    if tokens > 1 {
        scores = scores.broadcast_add(&future(tokens, group, start, &scores)?)?;
    }
    let scores = softmax_last_dim(&scores.to_dtype(DType::F32)?)?.to_dtype(values.dtype())?;
    let mixed = scores.matmul(values)?.reshape((heads.keys, tokens, group, width))?;
    Ok(mixed.transpose(0, 1)?.contiguous()?.reshape((tokens, heads.queries * width))?)
}

/// Minus infinity where a query may not look: `[tokens * group, positions]`.
fn future(tokens: usize, group: usize, start: usize, scores: &Tensor) -> Result<Tensor> {
    let positions = scores.dim(D::Minus1)?;
    let row =
        |query: usize| (0..positions).map(move |at| if at > start + query / group { f32::NEG_INFINITY } else { 0.0 });
    let mask: Vec<f32> = (0..tokens * group).flat_map(row).collect();
    Ok(Tensor::from_vec(mask, (tokens * group, positions), scores.device())?.to_dtype(scores.dtype())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { queries: 6, keys: 2, width: 24 };

    /// Both ways over the same sequences, in pieces: they need no device of their own to be held against each other.
    #[test]
    fn devices_do_what_the_cpu_does() {
        let (mut on_cpu, mut on_device) = (LayerCache::new(3), vec![None, None, None]);
        let frequencies: Vec<f64> = (0..HEADS.width / 2).map(|pair| 0.5f64.powi(pair as i32)).collect();
        let tokens = [0u32; 64];
        let mut random = fastrand::Rng::with_seed(1);
        for pieces in
            [vec![(0, 0, 40), (2, 0, 1)], vec![(2, 1, 1), (0, 40, 1)], vec![(1, 0, 17), (2, 2, 30), (0, 41, 2)]]
        {
            let piece = |(slot, start, count): (usize, usize, usize)| Piece {
                slot,
                start,
                tokens: &tokens[..count],
                wants_logits: true,
            };
            let batch: Vec<Piece> = pieces.into_iter().map(piece).collect();
            let count: usize = batch.iter().map(|piece| piece.tokens.len()).sum();
            let rows: Vec<f32> = (0..count * HEADS.row()).map(|_| random.f32() * 2.0 - 1.0).collect();
            let turns = Turns::of(&batch, &frequencies);
            let mut expected = vec![0f32; count * HEADS.queries * HEADS.width];
            on_cpu.attend(&mut rows.clone(), &batch, &turns, HEADS, &mut expected);

            let tensors = turns_on(&turns, frequencies.len(), &Device::Cpu, DType::F32).unwrap();
            let step = Step { batch: &batch, turns, on_device: Some(tensors) };
            let rows = Tensor::from_vec(rows, (count, HEADS.row()), &Device::Cpu).unwrap();
            let got = attend_on_device(&mut on_device, &rows, &step, HEADS).unwrap();
            for (got, expected) in got.flatten_all().unwrap().to_vec1::<f32>().unwrap().iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-5, "{got} is not {expected}");
            }
        }
    }
}
