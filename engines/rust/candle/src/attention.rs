//! Attention of a step's tokens over the keys and values that are kept of their sequences.
//!
//! On a CPU with 32-bit floats it is Candle's one kernel, for each sequence over its own cache. Elsewhere a kernel's
//! launch costs more than its work, so that sequences share launches: keys and values of all of them are rows of one
//! tensor, a step gathers the rows of the sequences that are about as long, and these are multiplied together.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::softmax_last_dim;
use enginebench_protocol::Piece;
use std::collections::BTreeMap;

const ROOM: usize = 128; // tokens by which a cache grows, at least

#[derive(Clone, Copy)]
pub struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

/// Whether attention is Candle's one kernel, which is for 32-bit floats on a CPU.
pub fn is_one_kernel(device: &Device, dtype: DType) -> bool {
    device.is_cpu() && dtype == DType::F32
}

/// Consecutive tokens of the sequence in `slot`, of which `start` are known.
#[derive(Clone, Copy)]
struct Part {
    slot: usize,
    start: usize,
    tokens: usize,
}

/// Sequences with as many new tokens each, whose known ones are multiplied together.
struct Group {
    parts: Vec<Part>,
    /// Rows of the known tokens, `[sequences * known]`, and what is added to scores, `[sequences, 1, tokens, known]`.
    /// Both are missing where every sequence has a cache of its own.
    rows: Option<Tensor>,
    mask: Option<Tensor>,
}

/// The tokens of a step, grouped, in the order in which they are computed.
pub struct Step {
    groups: Vec<Group>,
    /// Row of each token and each number of its keys, `[key heads, tokens, width]`, and the rows that there are.
    new_rows: Option<Tensor>,
    rows: usize,
    pub ids: Vec<u32>,
    pub positions: Vec<u32>,
    /// Of each piece, in the order of the batch: where its last token stands among `ids`.
    pub ends: Vec<u32>,
}

/// Which rows the tokens of each slot have.
#[derive(Default)]
pub struct Rows {
    of: BTreeMap<usize, Vec<u32>>,
    free: Vec<u32>,
    count: usize,
}

impl Rows {
    pub fn free(&mut self, slot: usize) {
        self.free.extend(self.of.remove(&slot).unwrap_or_default());
    }

    /// As many new rows for `slot`, which has `start`.
    fn extend(&mut self, Part { slot, start, tokens }: Part) {
        if start == 0 {
            self.free(slot);
        }
        if self.free.len() < tokens {
            // An eighth more at least: growing copies what there is.
            let more = (tokens - self.free.len()).max(self.count / 8).next_multiple_of(ROOM);
            self.free.extend((self.count..self.count + more).rev().map(|row| row as u32));
            self.count += more;
        }
        let taken = self.free.split_off(self.free.len() - tokens);
        self.of.entry(slot).or_default().extend(taken.into_iter().rev());
    }
}

impl Step {
    /// `rows`: where sequences share a tensor, whose numbers are `like` that tensor's.
    pub fn new(batch: &[Piece], rows: Option<&mut Rows>, heads: Heads, like: &Tensor) -> Result<Self> {
        let mut grouped = BTreeMap::<(usize, usize), Vec<usize>>::new();
        for (at, piece) in batch.iter().enumerate() {
            grouped.entry(likeness(at, piece)).or_default().push(at);
        }
        let (mut ids, mut positions, mut ends) = (Vec::new(), Vec::new(), vec![0; batch.len()]);
        let mut groups = Vec::with_capacity(grouped.len());
        for members in grouped.values() {
            let mut parts = Vec::with_capacity(members.len());
            for &at in members {
                let Piece { slot, start, tokens, .. } = batch[at];
                ids.extend_from_slice(tokens);
                positions.extend(start as u32..(start + tokens.len()) as u32);
                ends[at] = ids.len() as u32 - 1;
                parts.push(Part { slot, start, tokens: tokens.len() });
            }
            groups.push(Group { parts, rows: None, mask: None });
        }
        let mut step = Self { groups, new_rows: None, rows: 0, ids, positions, ends };
        if let Some(rows) = rows {
            step.find_rows(rows, heads, like)?;
        }
        Ok(step)
    }

    fn find_rows(&mut self, rows: &mut Rows, heads: Heads, like: &Tensor) -> Result<()> {
        let device = like.device();
        let mut new = Vec::with_capacity(self.ids.len());
        for group in &mut self.groups {
            for &part in &group.parts {
                rows.extend(part);
                new.extend_from_slice(&rows.of[&part.slot][part.start..]);
            }
            let known: Vec<&[u32]> = group.parts.iter().map(|part| rows.of[&part.slot].as_slice()).collect();
            let most = known.iter().map(|rows| rows.len()).max().unwrap_or_default();
            // A shorter sequence is filled up with a row of its own, which the mask hides.
            let filled = known.iter().flat_map(|rows| (0..most).map(|at| *rows.get(at).unwrap_or(&rows[0])));
            group.rows = Some(Tensor::from_iter(filled, device)?);
            group.mask = mask(&group.parts, most, like)?;
        }
        let shape = (heads.keys, new.len(), heads.width);
        self.new_rows =
            Some(Tensor::new(new, device)?.reshape((1, self.ids.len(), 1))?.broadcast_as(shape)?.contiguous()?);
        self.rows = rows.count;
        Ok(())
    }
}

/// Equal for pieces that are computed together: single tokens of sequences whose lengths differ by a factor of four at
/// most, as all are as wide as the longest; a prompt is computed alone.
fn likeness(at: usize, piece: &Piece) -> (usize, usize) {
    match piece.tokens.len() {
        1 => (0, (piece.start + 1).ilog2() as usize / 2),
        _ => (1, at),
    }
}

/// `[sequences, 1, tokens, known]`: minus infinity for what comes after a token; `None` where nothing does.
fn mask(parts: &[Part], known: usize, like: &Tensor) -> Result<Option<Tensor>> {
    let tokens = parts[0].tokens;
    if parts.iter().all(|part| part.tokens == 1 && part.start + 1 == known) {
        return Ok(None);
    }
    let row = |last: usize| (0..known).map(move |at| if at > last { f32::NEG_INFINITY } else { 0.0 });
    let numbers = parts.iter().flat_map(|part| (0..tokens).flat_map(move |at| row(part.start + at)));
    let mask = Tensor::from_iter(numbers, like.device())?.to_dtype(like.dtype())?;
    Ok(Some(mask.reshape((parts.len(), 1, tokens, known))?))
}

/// Keys and values of one layer.
pub enum Kept {
    /// By slot, for the one kernel.
    BySequence(Vec<KvCache>),
    /// Of all sequences, `[key heads, rows, width]` each.
    Shared { keys: Tensor, values: Tensor },
}

impl Kept {
    pub fn new(slots: usize, heads: Heads, dtype: DType, device: &Device) -> Result<Self> {
        if is_one_kernel(device, dtype) {
            return Ok(Self::BySequence((0..slots).map(|_| new_cache()).collect()));
        }
        let none = Tensor::zeros((heads.keys, ROOM, heads.width), dtype, device)?;
        Ok(Self::Shared { keys: none.copy()?, values: none })
    }

    pub fn free(&mut self, slot: usize) {
        if let Self::BySequence(caches) = self {
            caches[slot] = new_cache();
        }
    }

    /// `queries`, `keys` and `values` of a step's tokens: `[1, tokens, heads, width]`; gives `[tokens, query heads *
    /// width]`.
    pub fn attend(&mut self, step: &Step, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (_, tokens, heads, width) = queries.dims4()?;
        let mut outputs = Vec::with_capacity(step.groups.len());
        let mut first = 0;
        match self {
            Self::BySequence(caches) => {
                for part in step.groups.iter().flat_map(|group| &group.parts) {
                    let of = |all: &Tensor| all.narrow(1, first, part.tokens)?.contiguous();
                    let cache = &mut caches[part.slot];
                    if part.start == 0 {
                        *cache = new_cache();
                    }
                    let (keys, values) = cache.append(&of(keys)?, &of(values)?)?;
                    outputs.push(by_one_kernel(&of(queries)?, &keys, &values, part.start)?);
                    first += part.tokens;
                }
            }
            Self::Shared { keys: all_keys, values: all_values } => {
                for (all, new) in [(&mut *all_keys, keys), (&mut *all_values, values)] {
                    write(all, &new.squeeze(0)?, step)?;
                }
                let queries = (queries.squeeze(0)? * (1.0 / (width as f64).sqrt()))?;
                for group in &step.groups {
                    let count = group.parts.len() * group.parts[0].tokens;
                    outputs.push(by_products(&queries.narrow(0, first, count)?, all_keys, all_values, group)?);
                    first += count;
                }
            }
        }
        let output = if outputs.len() == 1 { outputs.remove(0) } else { Tensor::cat(&outputs, 0)? };
        Ok(output.reshape((tokens, heads * width))?)
    }
}

/// Keys and values stand as `[1, tokens, heads, width]` for the one kernel.
fn new_cache() -> KvCache {
    KvCache::new(1, ROOM)
}

/// `new`: `[tokens, heads, width]`.
fn write(all: &mut Tensor, new: &Tensor, step: &Step) -> Result<()> {
    let (heads, there, width) = all.dims3()?;
    if there < step.rows {
        let more = Tensor::zeros((heads, step.rows - there, width), all.dtype(), all.device())?;
        *all = Tensor::cat(&[&*all, &more], 1)?.contiguous()?;
    }
    let rows = step.new_rows.as_ref().expect("sequences that share a tensor have rows");
    Ok(all.scatter_set(rows, &new.transpose(0, 1)?.contiguous()?, 1)?)
}

/// Causal attention of tokens that begin at position `start`; `[tokens, heads, width]`.
fn by_one_kernel(queries: &Tensor, keys: &Tensor, values: &Tensor, start: usize) -> Result<Tensor> {
    let (_, tokens, heads, width) = queries.dims4()?;
    let scale = 1.0 / (width as f32).sqrt();
    let mask = AttnMask::Causal { kv_offset: start };
    let by_head = flash_attn::<f32>(queries, keys, values, scale, mask, None, None)?;
    Ok(by_head.reshape((heads, tokens, width))?.transpose(0, 1)?.contiguous()?)
}

/// The same by products and a softmax, of a group's sequences together. `queries`: `[sequences * tokens, heads, width]`,
/// scaled, as the result.
fn by_products(queries: &Tensor, keys: &Tensor, values: &Tensor, group: &Group) -> Result<Tensor> {
    let (count, heads, width) = queries.dims3()?;
    let (key_heads, sequences) = (keys.dim(0)?, group.parts.len());
    let (tokens, each) = (count / sequences, heads / key_heads);
    let rows = group.rows.as_ref().expect("sequences that share a tensor have rows");
    let known = rows.dim(0)? / sequences;
    let of = |all: &Tensor| all.index_select(rows, 1)?.reshape((key_heads * sequences, known, width));
    // The queries of a key's heads stand below each other, so that keys and values need not be repeated.
    let queries = queries.reshape((sequences, tokens, key_heads, each, width))?.permute((2, 0, 3, 1, 4))?;
    let queries = queries.contiguous()?.reshape((key_heads * sequences, each * tokens, width))?;
    let mut scores = queries.matmul(&of(keys)?.transpose(1, 2)?)?;
    if let Some(mask) = &group.mask {
        scores = scores.reshape((key_heads, sequences, each, tokens, known))?.broadcast_add(mask)?;
    }
    let weights = softmax_last_dim(&scores)?.reshape((key_heads * sequences, each * tokens, known))?;
    let mixed = weights.matmul(&of(values)?)?.reshape((key_heads, sequences, each, tokens, width))?;
    Ok(mixed.permute((1, 3, 0, 2, 4))?.contiguous()?.reshape((count, heads, width))?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let none = Tensor::zeros((HEADS.keys, 1, HEADS.width), DType::F32, &Device::Cpu).unwrap();
        let mut shared = Kept::Shared { keys: none.copy().unwrap(), values: none };
        let mut own = Kept::BySequence((0..4).map(|_| new_cache()).collect());
        let mut rows = Rows::default();
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
            let one = Step::new(&batch, None, HEADS, &like).unwrap();
            let together = Step::new(&batch, Some(&mut rows), HEADS, &like).unwrap();
            assert_eq!((&one.positions, &one.ends), (&together.positions, &together.ends));
            let expected = own.attend(&one, &queries, &keys, &values).unwrap();
            let found = shared.attend(&together, &queries, &keys, &values).unwrap();
            assert!(most(&(expected - found).unwrap()) < 1e-5, "{pieces:?}");
        }
    }

    #[test]
    fn a_step_says_where_the_last_token_of_each_piece_stands() {
        let batch = [
            Piece { slot: 0, start: 0, tokens: &[10, 11, 12], wants_logits: true },
            Piece { slot: 1, start: 70, tokens: &[20], wants_logits: true },
            Piece { slot: 2, start: 6, tokens: &[30], wants_logits: true },
        ];
        let step = Step::new(&batch, None, HEADS, &random(1, 1)).unwrap();
        let last: Vec<u32> = step.ends.iter().map(|&at| step.ids[at as usize]).collect();
        assert_eq!(last, [12, 20, 30]);
        assert_eq!(step.groups.len(), 3); // 71 tokens are too many beside 7
    }

    #[test]
    fn the_rows_of_a_sequence_that_ended_are_taken_again() {
        let mut rows = Rows::default();
        for round in 0..5 {
            for slot in 0..3 {
                rows.extend(Part { slot, start: 0, tokens: 40 });
                rows.extend(Part { slot, start: 40, tokens: 1 });
            }
            assert_eq!(rows.count, ROOM, "{round}");
            (0..3).for_each(|slot| rows.free(slot));
        }
    }
}
