//! The arithmetic that decides the speed on a CPU, in the machine's widest registers (see `lanes`), spread
//! over the threads of `team`.
//!
//! A decoder that serves few users reads every weight once per step and does little with it. Candle's general matrix
//! product is made for square shapes; here a tile of a few weight rows meets a few tokens at a time, which keeps the
//! memory busy with one user and the multipliers with thirty.
//!
//! Every sum is taken in the same order however many tokens run together, so an answer does not depend on who else is
//! being served.

use crate::lanes::{LANES, Lanes, ROWS, Weight};
use crate::team::share;
use std::ops::Range;

/// Tokens at most in one tile.
pub const TOKENS: usize = 5;

/// `a * b + c`, fused where the machine can.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

/// The products of `R` rows of weights with `C` vectors, all of the same length.
#[inline(always)]
pub fn tile<W: Weight, const R: usize, const C: usize>(weights: [&[W]; R], tokens: [&[f32]; C]) -> [[f32; C]; R] {
    let length = tokens[0].len();
    for row in &weights {
        assert_eq!(row.len() * W::SIZE, length);
    }
    for one in &tokens {
        assert_eq!(one.len(), length);
    }
    let mut sums = [[Lanes::zero(); C]; R];
    let whole = length - length % LANES;
    for at in (0..whole).step_by(LANES) {
        // Plain loops, not `map`: that is not always inlined, and then it costs half of the speed.
        let mut x = [Lanes::zero(); C];
        for c in 0..C {
            // SAFETY: `at + LANES` is at most `whole`, and no slice is shorter, by the lines above.
            x[c] = unsafe { Lanes::load(tokens[c].as_ptr().add(at)) };
        }
        for r in 0..R {
            // SAFETY: as above.
            let w = unsafe { W::load(weights[r].as_ptr().add(at / W::SIZE), at % W::SIZE) };
            for c in 0..C {
                sums[r][c] = w.multiply_add(x[c], sums[r][c]);
            }
        }
    }
    let mut out = [[0f32; C]; R];
    for r in 0..R {
        for c in 0..C {
            out[r][c] = sums[r][c].total();
        }
    }
    if whole < length {
        add_rest(weights, tokens, whole, &mut out);
    }
    out
}

/// The last few products, where the length is no multiple of `LANES`; never with weights in blocks.
#[cold]
fn add_rest<W: Weight, const R: usize, const C: usize>(
    weights: [&[W]; R],
    tokens: [&[f32]; C],
    from: usize,
    out: &mut [[f32; C]; R],
) {
    for at in from..tokens[0].len() {
        for r in 0..R {
            let mut weight = [0f32];
            weights[r][at].floats(&mut weight);
            (0..C).for_each(|c| out[r][c] += weight[0] * tokens[c][at]);
        }
    }
}

/// `outputs[t][r] = weights[r] · inputs[t]`: `weights` is `[rows, width]`, `inputs` `[tokens, width]`, `outputs`
/// `[tokens, rows]`, all row after row.
pub fn multiply<W: Weight>(weights: &[W], width: usize, inputs: &[f32], outputs: &mut [f32]) {
    let pieces = width / W::SIZE;
    let (rows, tokens) = (weights.len() / pieces, inputs.len() / width);
    assert!(outputs.len() == rows * tokens && pieces * W::SIZE == width);
    let outputs = Shared::new(outputs);
    let row = |at: usize| &weights[at * pieces..][..pieces];
    // A few rows stay in the nearest cache while all tokens pass by.
    share(rows.div_ceil(ROWS), |groups| {
        for first in groups.map(|group| group * ROWS) {
            let count = ROWS.min(rows - first);
            for block in blocks(tokens, TOKENS) {
                let inputs = &inputs[block.start * width..block.end * width];
                let mut sums = [[0f32; ROWS]; TOKENS];
                if count == ROWS {
                    tile_of(std::array::from_fn(|r| row(first + r)), inputs, width, &mut sums);
                } else {
                    for r in 0..count {
                        let mut one = [[0f32; 1]; TOKENS];
                        tile_of([row(first + r)], inputs, width, &mut one);
                        sums.iter_mut().zip(one).for_each(|(sums, [one])| sums[r] = one);
                    }
                }
                for (token, sums) in block.zip(&sums) {
                    let at = token * rows + first;
                    // SAFETY: each group of rows writes its own places, and each group has one thread.
                    unsafe { outputs.slice(at..at + count) }.copy_from_slice(&sums[..count]);
                }
            }
        }
    });
}

/// One tile for as many tokens as `inputs` holds, at most `TOKENS`.
#[inline(always)]
fn tile_of<W: Weight, const R: usize>(few: [&[W]; R], inputs: &[f32], width: usize, sums: &mut [[f32; R]; TOKENS]) {
    macro_rules! with {
        ($count:literal) => {{
            let out = tile::<W, R, $count>(few, std::array::from_fn(|t| &inputs[t * width..][..width]));
            for r in 0..R {
                for t in 0..$count {
                    sums[t][r] = out[r][t];
                }
            }
        }};
    }
    match inputs.len() / width {
        1 => with!(1),
        2 => with!(2),
        3 => with!(3),
        4 => with!(4),
        _ => with!(5),
    }
}

/// `0..count` in blocks of at most `most`, as even as can be.
pub fn blocks(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = count.div_ceil(most);
    (0..blocks).map(move |one| one * count / blocks..(one + 1) * count / blocks)
}

/// Each row divided by the root of its mean square, times `weight` (Zhang and Sennrich 2019). All `[tokens, width]`.
pub fn rms_norm(inputs: &[f32], weight: &[f32], epsilon: f32, outputs: &mut [f32]) {
    let width = weight.len();
    for (row, out) in inputs.chunks_exact(width).zip(outputs.chunks_exact_mut(width)) {
        let [[squares]] = tile::<f32, 1, 1>([row], [row]);
        let scale = 1.0 / (squares / width as f32 + epsilon).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(row).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

/// `silu(gate) * up` (Shazeer 2020): `gate_up` is `[tokens, 2 * width]`, gates first; `outputs` `[tokens, width]`.
pub fn swiglu(gate_up: &[f32], width: usize, outputs: &mut [f32]) {
    let tokens = outputs.len() / width;
    assert_eq!(gate_up.len(), 2 * outputs.len());
    let outputs = Shared::new(outputs);
    let one = |token: usize| {
        let (gate, up) = gate_up[token * 2 * width..][..2 * width].split_at(width);
        // SAFETY: each token writes its own row.
        let out = unsafe { outputs.slice(token * width..(token + 1) * width) };
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    };
    share(tokens, |range| range.for_each(one));
}

/// e to the `x`, to within two units in the last place, without a branch, so that lanes can do it together: the
/// nearest power of two by the exponent's bits, the rest by a polynomial (Cephes, Moshier 1992).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding and taking it away rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let power = multiply_add(x, std::f32::consts::LOG2_E, ROUND) - ROUND;
    let rest = multiply_add(power, -0.693_359_4, x);
    let rest = multiply_add(power, 2.121_944_4e-4, rest);
    let mut sum = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = multiply_add(sum, rest, coefficient);
    }
    let sum = multiply_add(sum, rest * rest, rest) + 1.0;
    sum * f32::from_bits(((power as i32 + 127) << 23) as u32)
}

/// A buffer that several threads write, each its own part.
pub struct Shared(*mut f32, usize);

// SAFETY: a plain address; whoever takes a slice promises that nobody else writes there.
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(buffer: &mut [f32]) -> Self {
        Self(buffer.as_mut_ptr(), buffer.len())
    }

    /// # Safety
    /// No two slices that live at the same time may overlap.
    #[expect(clippy::mut_from_ref, reason = "that is what it is for")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: inside the buffer, by the line above; alone there, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f32() * 2.0 - 1.0).collect()
    }

    #[test]
    fn products_are_right_for_every_shape() {
        for (rows, width, tokens) in [(8, 64, 1), (9, 33, 6), (7, 100, 7), (12, 48, 13), (1, 5, 32), (576, 576, 8)] {
            let (weights, inputs) = (numbers(rows * width, 1), numbers(tokens * width, 2));
            let mut outputs = vec![f32::NAN; rows * tokens];
            multiply(&weights, width, &inputs, &mut outputs);
            for token in 0..tokens {
                for row in 0..rows {
                    let pairs = weights[row * width..][..width].iter().zip(&inputs[token * width..][..width]);
                    let exact: f64 = pairs.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    let got = f64::from(outputs[token * rows + row]);
                    assert!((got - exact).abs() < 1e-4, "{rows}x{width}x{tokens}: {got} is not {exact}");
                }
            }
        }
    }

    #[test]
    fn an_answer_does_not_depend_on_who_else_is_served() {
        let (rows, width) = (36, 576);
        let (weights, inputs) = (numbers(rows * width, 1), numbers(32 * width, 2));
        let mut together = vec![0f32; rows * 32];
        multiply(&weights, width, &inputs, &mut together);
        for token in 0..32 {
            let mut alone = vec![0f32; rows];
            multiply(&weights, width, &inputs[token * width..][..width], &mut alone);
            assert_eq!(alone, together[token * rows..][..rows]);
        }
    }

    #[test]
    fn halved_weights_are_the_same_numbers() {
        let weights: Vec<bf16> = numbers(4 * 64, 1).into_iter().map(bf16::from_f32).collect();
        let whole: Vec<f32> = weights.iter().map(|one| one.to_f32()).collect();
        let inputs = numbers(3 * 64, 2);
        let (mut a, mut b) = (vec![0f32; 12], vec![0f32; 12]);
        multiply(&weights, 64, &inputs, &mut a);
        multiply(&whole, 64, &inputs, &mut b);
        assert_eq!(a, b);
    }

    #[test]
    fn the_exponential_is_exact_enough() {
        for step in -870..880 {
            let x = step as f32 / 10.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 3e-7 * exact, "exp({x}) = {}", exp(x));
        }
    }

    #[test]
    fn swiglu_is_what_its_formula_says() {
        let mut out = [0f32; 4];
        swiglu(&[1.0, -2.0, 3.0, 5.0, 0.0, 100.0, 7.0, 2.0], 2, &mut out);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        for (got, expected) in out.iter().zip([silu(1.0) * 3.0, silu(-2.0) * 5.0, 0.0, silu(100.0) * 2.0]) {
            assert!((got - expected).abs() < 1e-5, "{got} is not {expected}");
        }
    }
}
