//! Attention over ragged slots on a CPU: each piece of a step looks back over its own slot's keys and values, however
//! many there are. Causal, with several query heads to one key/value head (Ainslie et al. 2023).

use crate::config::Config;
use crate::kernels::{Sums, blocks, exp, put, sum, tile};
use crate::lanes::{LANES, Lanes, TOKENS};
use enginebench_protocol::Piece;
use enginebench_protocol::team::{Shared, share};
use std::cell::RefCell;
use std::ops::Range;

/// Queries that walk along the keys together: they share what is read.
const QUERIES: usize = TOKENS;

/// The shape of one layer's heads.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

impl Heads {
    pub fn of(config: &Config) -> Self {
        Self { queries: config.heads, keys: config.kv_heads, width: config.head_width }
    }

    /// Numbers in a token's row: queries, then keys, then values.
    pub fn row(&self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }

    fn group(&self) -> usize {
        self.queries / self.keys
    }
}

/// Sines and cosines of a step's positions: `[tokens, width / 2]`.
pub struct Turns {
    pub cosines: Vec<f32>,
    pub sines: Vec<f32>,
}

impl Turns {
    pub fn of(batch: &[Piece], frequencies: &[f64]) -> Self {
        let positions = batch.iter().flat_map(|piece| piece.start..piece.start + piece.tokens.len());
        // Rounded where models were trained with rounding: at far positions it is more than the last digit.
        let angles = positions.flat_map(|at| frequencies.iter().map(move |&frequency| at as f32 * frequency as f32));
        let (sines, cosines) =
            angles.map(|angle| f64::from(angle).sin_cos()).map(|(s, c)| (s as f32, c as f32)).unzip();
        Self { cosines, sines }
    }

    /// Turn each head of a token's row: pair `i` is made of the numbers `i` and `i + width / 2`.
    fn apply(&self, token: usize, heads: &mut [f32], width: usize) {
        let half = width / 2;
        let (cosines, sines) = (&self.cosines[token * half..][..half], &self.sines[token * half..][..half]);
        for head in heads.chunks_exact_mut(width) {
            let (first, second) = head.split_at_mut(half);
            for (((a, b), cosine), sine) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
            }
        }
    }
}

/// The keys and values of one layer, grown as needed, laid out as the tiles of `kernels` want their weights: the scores
/// are a product with the keys, the answer is one with the values.
pub struct LayerCache {
    slots: Vec<Slot>,
}

/// What is remembered of one sequence.
#[derive(Default)]
struct Slot {
    /// For each key head, positions in groups of `LANES`, the last one filled up with zeros: `[width, LANES]` each.
    keys: Vec<Vec<f32>>,
    /// For each key head and each `LANES` of a value's numbers, the last ones filled up with zeros: `[positions, LANES]`.
    values: Vec<Vec<f32>>,
}

impl Slot {
    /// `keys`, `values`: those of one token's heads.
    fn remember(&mut self, position: usize, keys: &[f32], values: &[f32], heads: Heads) {
        let (group, lane) = (position / LANES * heads.width * LANES, position % LANES);
        for (kept, key) in self.keys.iter_mut().zip(keys.chunks_exact(heads.width)) {
            kept.resize(group + heads.width * LANES, 0.0);
            key.iter().enumerate().for_each(|(at, number)| kept[group + at * LANES + lane] = *number);
        }
        let parts = values.chunks_exact(heads.width).flat_map(|value| value.chunks(LANES));
        for (kept, part) in self.values.iter_mut().zip(parts) {
            kept.truncate(position * LANES);
            kept.extend_from_slice(part);
            kept.resize((position + 1) * LANES, 0.0);
        }
    }
}

/// Queries of one piece that share a key head.
struct Task<'c> {
    slot: &'c Slot,
    start: usize,       // position of the piece's first token
    first_token: usize, // of the piece, in the step
    key_head: usize,
    queries: Range<usize>, // counted over the piece's tokens, then over the heads of the group
}

impl LayerCache {
    pub fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// The sequence is over. Its memory goes back, so that short answers after a long one do not keep it.
    pub fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// `rows`: `[tokens, heads.row()]`, not yet turned; `outputs`: `[tokens, query heads * width]`.
    pub fn attend(&mut self, rows: &mut [f32], batch: &[Piece], turns: &Turns, heads: Heads, outputs: &mut [f32]) {
        let (row, width) = (heads.row(), heads.width);
        let turned = (heads.queries + heads.keys) * width;
        for (token, numbers) in rows.chunks_exact_mut(row).enumerate() {
            turns.apply(token, &mut numbers[..turned], width);
        }
        self.remember(rows, batch, heads);
        let tasks = self.tasks(batch, heads);
        let (rows, outputs) = (&*rows, Shared::new(outputs));
        share(tasks.len(), |range| {
            for task in &tasks[range] {
                task.run(rows, heads, &outputs);
            }
        });
    }

    fn remember(&mut self, rows: &[f32], batch: &[Piece], heads: Heads) {
        let (from, size) = (heads.queries * heads.width, heads.keys * heads.width);
        let mut rows = rows.chunks_exact(heads.row());
        for piece in batch {
            let slot = &mut self.slots[piece.slot];
            if piece.start == 0 {
                *slot = Slot {
                    keys: vec![Vec::new(); heads.keys],
                    values: vec![Vec::new(); heads.keys * heads.width.div_ceil(LANES)],
                };
            }
            for (position, numbers) in (piece.start..).zip(rows.by_ref().take(piece.tokens.len())) {
                let (keys, values) = numbers[from..].split_at(size);
                slot.remember(position, keys, values, heads);
            }
        }
    }

    fn tasks(&self, batch: &[Piece], heads: Heads) -> Vec<Task<'_>> {
        let mut tasks = Vec::new();
        let mut first_token = 0;
        for piece in batch {
            for key_head in 0..heads.keys {
                for queries in blocks(piece.tokens.len() * heads.group(), QUERIES) {
                    let slot = &self.slots[piece.slot];
                    tasks.push(Task { slot, start: piece.start, first_token, key_head, queries });
                }
            }
            first_token += piece.tokens.len();
        }
        tasks
    }
}

impl Task<'_> {
    /// Token and head of a query.
    fn place(&self, query: usize, heads: Heads) -> (usize, usize) {
        (query / heads.group(), self.key_head * heads.group() + query % heads.group())
    }

    fn run(&self, rows: &[f32], heads: Heads, outputs: &Shared<f32>) {
        thread_local! {
            static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        let width = heads.width;
        let row = |query| {
            let (token, head) = self.place(query, heads);
            &rows[(self.first_token + token) * heads.row() + head * width..][..width]
        };
        let queries: Vec<&[f32]> = self.queries.clone().map(row).collect();
        let positions = self.start + self.place(self.queries.end - 1, heads).0 + 1;
        let padded = positions.next_multiple_of(LANES);
        SCORES.with_borrow_mut(|scores| {
            scores.resize(queries.len() * padded, 0.0);
            self.score(&queries, width, scores, padded);
            for (query, scores) in self.queries.clone().zip(scores.chunks_exact_mut(padded)) {
                let seen = self.start + self.place(query, heads).0 + 1;
                softmax(&mut scores[..seen], 1.0 / (width as f32).sqrt());
                scores[seen..].fill(0.0);
            }
            let scores: Vec<&[f32]> = scores.chunks_exact(padded).map(|scores| &scores[..positions]).collect();
            self.mix(&scores, heads, outputs);
        });
    }

    /// Query times key: `[queries, padded positions]`.
    fn score(&self, queries: &[&[f32]], width: usize, scores: &mut [f32], padded: usize) {
        let mut sums: Sums = [Lanes::all(0.0); TOKENS];
        for (group, keys) in self.slot.keys[self.key_head].chunks_exact(width * LANES).take(padded / LANES).enumerate()
        {
            tile(keys, queries, &mut sums);
            for (sums, scores) in sums.iter().zip(scores.chunks_exact_mut(padded)) {
                put(*sums, &mut scores[group * LANES..][..LANES]);
            }
        }
    }

    /// The values, weighted by the scores.
    fn mix(&self, scores: &[&[f32]], heads: Heads, outputs: &Shared<f32>) {
        let mut sums: Sums = [Lanes::all(0.0); TOKENS];
        let parts = heads.width.div_ceil(LANES);
        for (part, values) in self.slot.values[self.key_head * parts..][..parts].iter().enumerate() {
            tile(&values[..scores[0].len() * LANES], scores, &mut sums);
            for (query, sums) in self.queries.clone().zip(&sums) {
                let (token, head) = self.place(query, heads);
                let at = ((self.first_token + token) * heads.queries + head) * heads.width;
                let numbers = at + part * LANES..at + heads.width.min((part + 1) * LANES);
                // SAFETY: each query has its own place, and each belongs to one task.
                put(*sums, unsafe { outputs.slice(numbers) });
            }
        }
    }
}

fn softmax(scores: &mut [f32], scale: f32) {
    let mut most = [f32::NEG_INFINITY; 16];
    for chunk in scores.chunks(16) {
        most.iter_mut().zip(chunk).for_each(|(most, score)| *most = if score > most { *score } else { *most });
    }
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = exp((*score - most) * scale));
    let whole = 1.0 / sum(scores, |score| score);
    scores.iter_mut().for_each(|score| *score *= whole);
}
