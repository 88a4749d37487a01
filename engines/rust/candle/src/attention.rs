//! Attention over ragged slots on a CPU: each piece of a step looks back over its own slot's keys and values, however
//! many there are. Causal, with several query heads to one key/value head (Ainslie et al. 2023).

use crate::config::Config;
use crate::kernels::{Shared, TOKENS, blocks, exp, tile};
use crate::team::share;
use enginebench_protocol::Piece;
use std::cell::RefCell;
use std::ops::Range;

const LANES: usize = 16; // floats of a value handled together
/// Queries that walk along the keys together: they share what is read.
const QUERIES: usize = TOKENS;
const KEYS: usize = 4;

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
        let angles = positions.flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
        let (sines, cosines) = angles.map(|angle| (angle.sin() as f32, angle.cos() as f32)).unzip();
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

/// The keys and values of one layer: `[positions, key heads, width]` for each slot, grown as needed.
#[derive(Default)]
pub struct LayerCache {
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    keys: Vec<f32>,
    values: Vec<f32>,
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
        let from = heads.queries * heads.width;
        let size = heads.keys * heads.width;
        let mut rows = rows.chunks_exact(heads.row());
        for piece in batch {
            let slot = &mut self.slots[piece.slot];
            slot.keys.truncate(piece.start * size);
            slot.values.truncate(piece.start * size);
            for numbers in rows.by_ref().take(piece.tokens.len()) {
                slot.keys.extend_from_slice(&numbers[from..from + size]);
                slot.values.extend_from_slice(&numbers[from + size..]);
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
    fn run(&self, rows: &[f32], heads: Heads, outputs: &Shared) {
        match self.queries.len() {
            1 => self.run_with::<1>(rows, heads, outputs),
            2 => self.run_with::<2>(rows, heads, outputs),
            3 => self.run_with::<3>(rows, heads, outputs),
            4 => self.run_with::<4>(rows, heads, outputs),
            _ => self.run_with::<QUERIES>(rows, heads, outputs),
        }
    }

    fn run_with<const C: usize>(&self, rows: &[f32], heads: Heads, outputs: &Shared) {
        thread_local! {
            static SCORES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        let width = heads.width;
        let token_and_head = |c: usize| {
            let query = self.queries.start + c;
            (query / heads.group(), self.key_head * heads.group() + query % heads.group())
        };
        let queries: [&[f32]; C] = std::array::from_fn(|c| {
            let (token, head) = token_and_head(c);
            &rows[(self.first_token + token) * heads.row() + head * width..][..width]
        });
        let seen: [usize; C] = std::array::from_fn(|c| self.start + token_and_head(c).0 + 1);
        SCORES.with_borrow_mut(|scores| {
            scores.resize(C * seen[C - 1], 0.0);
            self.score(queries, seen[C - 1], heads, scores);
            for (c, scores) in scores.chunks_exact_mut(seen[C - 1]).enumerate() {
                let (past, future) = scores.split_at_mut(seen[c]);
                softmax(past, 1.0 / (width as f32).sqrt());
                future.fill(0.0);
            }
            let places: [&mut [f32]; C] = std::array::from_fn(|c| {
                let (token, head) = token_and_head(c);
                let at = ((self.first_token + token) * heads.queries + head) * width;
                // SAFETY: each query has its own place, and each belongs to one task.
                unsafe { outputs.slice(at..at + width) }
            });
            self.mix(scores, seen[C - 1], heads, places);
        });
    }

    /// Query times key, for the first `count` keys.
    fn score<const C: usize>(&self, queries: [&[f32]; C], count: usize, heads: Heads, scores: &mut [f32]) {
        let (stride, from) = (heads.keys * heads.width, self.key_head * heads.width);
        let key = |at: usize| &self.slot.keys[at * stride + from..][..heads.width];
        let whole = count - count % KEYS;
        for at in (0..whole).step_by(KEYS) {
            let sums = tile::<f32, KEYS, C>(std::array::from_fn(|k| key(at + k)), queries);
            for k in 0..KEYS {
                for c in 0..C {
                    scores[c * count + at + k] = sums[k][c];
                }
            }
        }
        for at in whole..count {
            let [sums] = tile::<f32, 1, C>([key(at)], queries);
            for c in 0..C {
                scores[c * count + at] = sums[c];
            }
        }
    }

    /// The values, weighted by the scores.
    fn mix<const C: usize>(&self, scores: &[f32], count: usize, heads: Heads, mut places: [&mut [f32]; C]) {
        let (stride, from) = (heads.keys * heads.width, self.key_head * heads.width);
        for first in (0..heads.width).step_by(LANES) {
            let lanes = LANES.min(heads.width - first);
            let mut sums = [[0f32; LANES]; C];
            for at in 0..count {
                let mut value = [0f32; LANES];
                value[..lanes].copy_from_slice(&self.slot.values[at * stride + from + first..][..lanes]);
                for c in 0..C {
                    let score = scores[c * count + at];
                    for lane in 0..LANES {
                        sums[c][lane] += score * value[lane];
                    }
                }
            }
            for (place, sums) in places.iter_mut().zip(&sums) {
                place[first..first + lanes].copy_from_slice(&sums[..lanes]);
            }
        }
    }
}

fn softmax(scores: &mut [f32], scale: f32) {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = exp((*score - most) * scale));
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}
