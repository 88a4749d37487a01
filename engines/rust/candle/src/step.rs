//! The tokens of a step: which of them are computed together, and which rows of the shared keys and values are theirs.

use anyhow::Result;
use candle_core::Tensor;
use enginebench_protocol::Piece;
use std::collections::BTreeMap;

pub const ROOM: usize = 128; // tokens by which a cache grows, at least

#[derive(Clone, Copy)]
pub struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

/// Consecutive tokens of the sequence in `slot`, of which `start` are known.
#[derive(Clone, Copy)]
pub struct Part {
    pub slot: usize,
    pub start: usize,
    pub tokens: usize,
}

/// Sequences with as many new tokens each, whose known ones are multiplied together.
pub struct Group {
    pub parts: Vec<Part>,
    /// Rows of the known tokens, `[sequences * known]`, and what is added to scores, `[sequences, 1, tokens, known]`.
    /// Both are missing where every sequence has a cache of its own.
    pub rows: Option<Tensor>,
    pub mask: Option<Tensor>,
}

/// The tokens of a step, grouped, in the order in which they are computed.
pub struct Step {
    pub groups: Vec<Group>,
    /// Row of each token and each number of its keys, `[key heads, tokens, width]`, and the rows that there are.
    pub new_rows: Option<Tensor>,
    pub rows: usize,
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

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    const HEADS: Heads = Heads { queries: 6, keys: 2, width: 16 };

    #[test]
    fn a_step_says_where_the_last_token_of_each_piece_stands() {
        let batch = [
            Piece { slot: 0, start: 0, tokens: &[10, 11, 12], wants_logits: true },
            Piece { slot: 1, start: 70, tokens: &[20], wants_logits: true },
            Piece { slot: 2, start: 6, tokens: &[30], wants_logits: true },
        ];
        let step = Step::new(&batch, None, HEADS, &Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap()).unwrap();
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
