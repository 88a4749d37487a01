//! The arithmetic that decides the speed on a CPU, in the machine's widest registers (see `lanes`), spread
//! over the threads of `team`.
//!
//! A decoder that serves few users reads every weight once per step and does little with it. Candle's general matrix
//! product is made for square shapes; here a group of rows (see `matrix`) meets a few tokens at a time, which keeps the
//! memory busy with one user and the multipliers with thirty.
//!
//! Every sum is taken in the same order however many tokens run together, so an answer does not depend on who else is
//! being served.

use crate::lanes::{LANES, Lanes, TOKENS, Weight};
use enginebench_protocol::team::{Shared, share};
use std::ops::Range;

/// `a * b + c`, fused where the machine can.
#[inline(always)]
pub fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

/// Call a macro with the number of tokens, of which there are at most `TOKENS`, as a literal.
macro_rules! with_count {
    ($count:expr, $work:ident) => {
        match $count {
            1 => $work!(1),
            2 => $work!(2),
            3 => $work!(3),
            4 => $work!(4),
            5 => $work!(5),
            6 => $work!(6),
            7 => $work!(7),
            8 => $work!(8),
            9 => $work!(9),
            10 => $work!(10),
            11 => $work!(11),
            12 => $work!(12),
            other => unreachable!("a tile of {other} tokens"),
        }
    };
}
pub(crate) use with_count;

/// The results of one group of rows, for each token of a tile.
pub type Sums = [Lanes; TOKENS];

/// The products of a group of rows, `[width, LANES]`, with at most `TOKENS` vectors of `width`.
#[inline(always)]
pub fn tile<W: Weight>(weights: &[W], tokens: &[&[f32]], sums: &mut Sums) {
    macro_rules! exactly {
        ($count:literal) => {
            tile_of::<W, $count>(weights, std::array::from_fn(|t| tokens[t]), sums)
        };
    }
    with_count!(tokens.len(), exactly)
}

/// Even and odd places are summed apart, so that one product need not wait for the one before.
#[inline(always)]
fn tile_of<W: Weight, const C: usize>(weights: &[W], tokens: [&[f32]; C], into: &mut Sums) {
    let width = tokens[0].len();
    assert!(weights.len() == width * LANES && tokens.iter().all(|one| one.len() == width) && C <= TOKENS);
    let mut sums = [[Lanes::all(0.0); 2]; C];
    // Plain loops, not `map`: that is not always inlined, and then it costs half of the speed.
    for at in (0..width - width % 2).step_by(2) {
        // SAFETY: `at + 1` is less than `width`, and all is as long as the assertion says.
        let (even, odd) = unsafe {
            let from = weights.as_ptr().add(at * LANES);
            (W::load(from), W::load(from.add(LANES)))
        };
        for c in 0..C {
            // SAFETY: as above.
            let (x, y) = unsafe { (*tokens[c].get_unchecked(at), *tokens[c].get_unchecked(at + 1)) };
            sums[c][0] = even.multiply_add(Lanes::all(x), sums[c][0]);
            sums[c][1] = odd.multiply_add(Lanes::all(y), sums[c][1]);
        }
    }
    if width % 2 == 1 {
        // SAFETY: as above.
        let w = unsafe { W::load(weights.as_ptr().add((width - 1) * LANES)) };
        for c in 0..C {
            sums[c][0] = w.multiply_add(Lanes::all(tokens[c][width - 1]), sums[c][0]);
        }
    }
    for c in 0..C {
        into[c] = sums[c][0].plus(sums[c][1]);
    }
}

/// All groups of a matrix of `rows` rows times all tokens, by `tile(group, some tokens, sums)`; `outputs`:
/// `[tokens, rows]`.
pub fn multiply<T: Sync>(rows: usize, tokens: &[T], outputs: &mut [f32], tile: impl Fn(usize, &[T], &mut Sums) + Sync) {
    assert_eq!(outputs.len(), rows * tokens.len());
    let outputs = Shared::new(outputs);
    // A group stays in a near cache while all tokens pass by.
    share(rows.div_ceil(LANES), |groups| {
        let mut sums = [Lanes::all(0.0); TOKENS];
        for group in groups {
            let (first, count) = (group * LANES, LANES.min(rows - group * LANES));
            for block in blocks(tokens.len(), TOKENS) {
                tile(group, &tokens[block.clone()], &mut sums);
                for (token, sums) in block.zip(&sums) {
                    let at = token * rows + first;
                    // SAFETY: each group of rows writes its own places, and each group has one thread.
                    put(*sums, unsafe { outputs.slice(at..at + count) });
                }
            }
        }
    });
}

/// The first of a register's numbers, as many as there is room for.
#[inline(always)]
pub fn put(sums: Lanes, into: &mut [f32]) {
    if into.len() >= LANES {
        // SAFETY: there is room.
        unsafe { sums.store(into.as_mut_ptr()) };
    } else {
        let mut all = [0f32; LANES];
        // SAFETY: there is room.
        unsafe { sums.store(all.as_mut_ptr()) };
        into.copy_from_slice(&all[..into.len()]);
    }
}

/// `0..count` in blocks of at most `most`, as even as can be.
pub fn blocks(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = count.div_ceil(most);
    (0..blocks).map(move |one| one * count / blocks..(one + 1) * count / blocks)
}

/// The sum over all numbers, in several lanes.
#[inline(always)]
pub fn sum(numbers: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; 16];
    let mut chunks = numbers.chunks_exact(16);
    for chunk in &mut chunks {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum += of(*number);
        }
    }
    sums.iter().sum::<f32>() + chunks.remainder().iter().map(|number| of(*number)).sum::<f32>()
}

/// Each row divided by the root of its mean square, times `weight` (Zhang and Sennrich 2019). All `[tokens, width]`.
pub fn rms_norm(inputs: &[f32], weight: &[f32], epsilon: f32, outputs: &mut [f32]) {
    let width = weight.len();
    for (row, out) in inputs.chunks_exact(width).zip(outputs.chunks_exact_mut(width)) {
        let scale = 1.0 / (sum(row, |x| x * x) / width as f32 + epsilon).sqrt();
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

#[cfg(test)]
mod tests {
    use super::*;

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
