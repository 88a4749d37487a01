//! Attention of a step's tokens over the keys and values that are kept of their sequences.
//!
//! On a CPU with 32-bit floats each sequence has a cache of its own: a single token is Candle's one kernel over it, and a
//! piece of a prompt two products and a softmax, as that kernel takes a prompt token by token. Elsewhere sequences share
//! the launches of products and softmax.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::softmax_last_dim;
use enginebench_protocol::{Group, Step};

const ROOM: usize = 128; // tokens by which a sequence's own cache grows

#[derive(Clone, Copy)]
pub struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

/// Whether single tokens are computed by Candle's one kernel, which is for 32-bit floats on a CPU.
pub fn is_one_kernel(device: &Device, dtype: DType) -> bool {
    device.is_cpu() && dtype == DType::F32
}

/// What a step needs on its device, once for all layers.
pub struct Needs {
    /// Of each group: `[sequences, 1, tokens, known]`.
    masks: Vec<Option<Tensor>>,
    /// Where keys and values are shared.
    gathering: Option<Gathering>,
}

struct Gathering {
    /// Row of each new token and each number of its keys, `[key heads, tokens, width]`.
    new_rows: Tensor,
    /// Of each group, those of its known tokens.
    rows: Vec<Tensor>,
}

impl Needs {
    /// With numbers `like` those of keys and values.
    pub fn of(step: &Step, heads: Heads, like: &Tensor) -> Result<Self> {
        let mask = |group: &Group, numbers: &Vec<f32>| {
            let mask = Tensor::new(numbers.as_slice(), like.device())?.to_dtype(like.dtype())?;
            mask.reshape((group.parts.len(), 1, group.tokens(), group.known))
        };
        let of = |group: &Group| group.mask.as_ref().map(|numbers| mask(group, numbers)).transpose();
        let is_shared = !step.new_rows.is_empty();
        Ok(Self {
            masks: step.groups.iter().map(of).collect::<candle_core::Result<_>>()?,
            gathering: is_shared.then(|| Gathering::of(step, heads, like.device())).transpose()?,
        })
    }
}

impl Gathering {
    fn of(step: &Step, heads: Heads, device: &Device) -> Result<Self> {
        let tokens = step.ids.len();
        let new_rows = Tensor::new(step.new_rows.as_slice(), device)?.reshape((1, tokens, 1))?;
        let rows = step.groups.iter().map(|group| Tensor::new(group.rows.as_slice(), device));
        Ok(Self {
            new_rows: new_rows.broadcast_as((heads.keys, tokens, heads.width))?.contiguous()?,
            rows: rows.collect::<candle_core::Result<_>>()?,
        })
    }
}

/// Keys and values of one layer.
pub enum Kept {
    /// By slot, `[1, tokens, key heads, width]` each, as the one kernel takes them.
    BySequence(Vec<KvCache>),
    /// Of all sequences, `[key heads, rows, width]` each.
    Shared { keys: Tensor, values: Tensor },
}

impl Kept {
    pub fn new(slots: usize, heads: Heads, dtype: DType, device: &Device) -> Result<Self> {
        if is_one_kernel(device, dtype) {
            return Ok(Self::BySequence((0..slots).map(|_| new_cache()).collect()));
        }
        let none = || Tensor::zeros((heads.keys, 1, heads.width), dtype, device);
        Ok(Self::Shared { keys: none()?, values: none()? })
    }

    pub fn free(&mut self, slot: usize) {
        if let Self::BySequence(caches) = self {
            caches[slot] = new_cache();
        }
    }

    /// `queries`, `keys` and `values` of a step's tokens: `[1, tokens, heads, width]`; gives `[tokens, query heads *
    /// width]`.
    pub fn attend(
        &mut self,
        step: &Step,
        needs: &Needs,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<Tensor> {
        let (_, tokens, heads, width) = queries.dims4()?;
        let mut outputs = Vec::with_capacity(step.groups.len());
        let mut first = 0;
        match self {
            Self::BySequence(caches) => {
                let parts = step.groups.iter().zip(&needs.masks).flat_map(|(group, mask)| {
                    group.parts.iter().map(move |part| (group, mask, part)) // where there is a mask, one part
                });
                for (group, mask, part) in parts {
                    let of = |all: &Tensor| all.narrow(1, first, part.tokens)?.contiguous();
                    let cache = &mut caches[part.slot];
                    if part.start == 0 {
                        *cache = new_cache();
                    }
                    let (keys, values) = cache.append(&of(keys)?, &of(values)?)?;
                    let queries = of(queries)?;
                    outputs.push(if mask.is_some() {
                        by_products(&scaled(&queries)?, &by_head(&keys)?, &by_head(&values)?, mask.as_ref(), group)?
                    } else {
                        by_one_kernel(&queries, &keys, &values, part.start)?
                    });
                    first += part.tokens;
                }
            }
            Self::Shared { keys: all_keys, values: all_values } => {
                let gathering = needs.gathering.as_ref().expect("what is shared is gathered");
                for (all, new) in [(&mut *all_keys, keys), (&mut *all_values, values)] {
                    write(all, &new.squeeze(0)?, step.room, &gathering.new_rows)?;
                }
                let queries = scaled(queries)?;
                for ((group, mask), rows) in step.groups.iter().zip(&needs.masks).zip(&gathering.rows) {
                    let count = group.parts.len() * group.tokens();
                    let known = |all: &Tensor| all.index_select(rows, 1);
                    let queries = queries.narrow(0, first, count)?;
                    outputs.push(by_products(&queries, &known(all_keys)?, &known(all_values)?, mask.as_ref(), group)?);
                    first += count;
                }
            }
        }
        let output = if outputs.len() == 1 { outputs.remove(0) } else { Tensor::cat(&outputs, 0)? };
        Ok(output.reshape((tokens, heads * width))?)
    }
}

fn new_cache() -> KvCache {
    KvCache::new(1, ROOM)
}

/// `new`: `[tokens, heads, width]`.
fn write(all: &mut Tensor, new: &Tensor, room: usize, rows: &Tensor) -> Result<()> {
    let (heads, there, width) = all.dims3()?;
    if there < room {
        let more = Tensor::zeros((heads, room - there, width), all.dtype(), all.device())?;
        *all = Tensor::cat(&[&*all, &more], 1)?.contiguous()?;
    }
    Ok(all.scatter_set(rows, &new.transpose(0, 1)?.contiguous()?, 1)?)
}

/// `[1, tokens, heads, width]` as `[tokens, heads, width]`, so that its products with keys are scores.
fn scaled(queries: &Tensor) -> candle_core::Result<Tensor> {
    let queries = queries.squeeze(0)?;
    let width = queries.dim(2)?;
    queries * (1.0 / (width as f64).sqrt())
}

/// `[1, tokens, heads, width]` as `[heads, tokens, width]`.
fn by_head(all: &Tensor) -> candle_core::Result<Tensor> {
    all.squeeze(0)?.transpose(0, 1)?.contiguous()
}

/// Causal attention of tokens that begin at position `start`; `[tokens, heads, width]`.
fn by_one_kernel(queries: &Tensor, keys: &Tensor, values: &Tensor, start: usize) -> Result<Tensor> {
    let (_, tokens, heads, width) = queries.dims4()?;
    let scale = 1.0 / (width as f32).sqrt();
    let mask = AttnMask::Causal { kv_offset: start };
    let output = flash_attn::<f32>(queries, keys, values, scale, mask, None, None)?;
    Ok(output.reshape((heads, tokens, width))?.transpose(0, 1)?.contiguous()?)
}

/// The same by products and a softmax, of a group's sequences together. `queries`: `[sequences * tokens, heads, width]`,
/// scaled, as the result; `keys` and `values`: `[key heads, sequences * known, width]`.
///
/// On CUDA that softmax indexes with 32 bits. Scores of a prompt are fewer than 2³¹ by `most_scores`; those of single
/// tokens are, as each stands for a key of many bytes in all layers.
fn by_products(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    mask: Option<&Tensor>,
    group: &Group,
) -> Result<Tensor> {
    let (count, heads, width) = queries.dims3()?;
    let (key_heads, sequences, tokens, known) = (keys.dim(0)?, group.parts.len(), group.tokens(), group.known);
    let each = heads / key_heads;
    let of = |all: &Tensor| all.reshape((key_heads * sequences, known, width));
    // The queries of a key's heads stand below each other, so that keys and values need not be repeated.
    let queries = queries.reshape((sequences, tokens, key_heads, each, width))?.permute((2, 0, 3, 1, 4))?;
    let queries = queries.contiguous()?.reshape((key_heads * sequences, each * tokens, width))?;
    let mut scores = queries.matmul(&of(keys)?.transpose(1, 2)?)?;
    if let Some(mask) = mask {
        scores = scores.reshape((key_heads, sequences, each, tokens, known))?.broadcast_add(mask)?;
    }
    let weights = softmax_last_dim(&scores)?.reshape((key_heads * sequences, each * tokens, known))?;
    let mixed = weights.matmul(&of(values)?)?.reshape((key_heads, sequences, each, tokens, width))?;
    Ok(mixed.permute((1, 3, 0, 2, 4))?.contiguous()?.reshape((count, heads, width))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use enginebench_protocol::{Piece, Rows};

    const HEADS: Heads = Heads { queries: 6, keys: 2, width: 16 };

    fn random(tokens: usize, heads: usize) -> Tensor {
        Tensor::randn(0f32, 1.0, (1, tokens, heads, HEADS.width), &Device::Cpu).unwrap()
    }

    fn most(of: &Tensor) -> f32 {
        of.abs().unwrap().max_all().unwrap().to_scalar().unwrap()
    }

    /// Prompts in pieces, sequences of one length and of others, slots that are used again, in more rows than there were
    /// at first.
    #[test]
    fn both_ways_of_attention_agree() {
        let like = random(1, 1);
        let none = || Tensor::zeros((HEADS.keys, 1, HEADS.width), DType::F32, &Device::Cpu).unwrap();
        let mut shared = Kept::Shared { keys: none(), values: none() };
        let mut own = Kept::BySequence((0..4).map(|_| new_cache()).collect());
        let mut rows = Rows::new(1);
        let steps: [&[(usize, usize, usize)]; 7] = [
            &[(0, 0, 5)],
            &[(0, 5, 1), (1, 0, 150)],
            &[(2, 0, 6), (0, 6, 1), (1, 150, 1)],
            &[(0, 7, 1), (2, 6, 1), (1, 151, 1)],
            &[(1, 152, 1), (0, 8, 1), (3, 0, 1)],
            &[(0, 0, 1), (3, 1, 1), (2, 7, 40)],
            &[(0, 1, 1), (3, 2, 1)],
        ];
        for pieces in steps {
            let tokens = [7; 150];
            let batch: Vec<Piece> = pieces
                .iter()
                .map(|&(slot, start, count)| Piece { slot, start, tokens: &tokens[..count], wants_logits: true })
                .collect();
            let count = pieces.iter().map(|(_, _, count)| count).sum();
            let (queries, keys, values) =
                (random(count, HEADS.queries), random(count, HEADS.keys), random(count, HEADS.keys));
            let step = Step::new(&batch, None);
            let needs = Needs::of(&step, HEADS, &like).unwrap();
            let expected = own.attend(&step, &needs, &queries, &keys, &values).unwrap();
            let step = Step::new(&batch, Some(&mut rows));
            let needs = Needs::of(&step, HEADS, &like).unwrap();
            let found = shared.attend(&step, &needs, &queries, &keys, &values).unwrap();
            assert!(most(&(expected - found).unwrap()) < 1e-5, "{pieces:?}");
        }
    }

    #[test]
    fn a_prompt_by_products_agrees_with_the_one_kernel() {
        let tokens = [7; 40];
        let step = Step::new(&[Piece { slot: 0, start: 5, tokens: &tokens, wants_logits: true }], None);
        let (queries, keys, values) = (random(40, HEADS.queries), random(45, HEADS.keys), random(45, HEADS.keys));
        let masks = Needs::of(&step, HEADS, &queries).unwrap().masks;
        let (scaled, by_head) = (scaled(&queries).unwrap(), |all| by_head(all).unwrap());
        let mask = masks[0].as_ref();
        let found = by_products(&scaled, &by_head(&keys), &by_head(&values), mask, &step.groups[0]).unwrap();
        let expected = by_one_kernel(&queries, &keys, &values, 5).unwrap();
        assert!(mask.is_some() && most(&(expected - found).unwrap()) < 1e-5);
    }
}
