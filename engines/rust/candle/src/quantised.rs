//! Quantised matrices on a CPU: weights of 4 or 8 bits in blocks of 32, each block with a scale. Tokens are rounded to
//! bytes in the same way, so that products are of whole numbers, four at a time in each lane; everybody who is fast with
//! such weights does so. Rarer kinds are left to candle (see `candles`).

use crate::candles::Candles;
use crate::kernels::{Sums, multiply, with_count};
use crate::lanes::{LANES, Lanes, Quads, TOKENS, Wholes};
use crate::matrix::{Matrix, group_rows, room};
use anyhow::{Result, bail};
use candle_core::quantized::k_quants::{BlockQ2K, BlockQ3K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K};
use candle_core::quantized::{GgmlDType, QTensor};
use enginebench_protocol::team::{Shared, share};
use half::f16;
use std::sync::Arc;

const BLOCK: usize = 32;
const FOURS: usize = BLOCK / 4;

pub fn on_cpu(tensor: &QTensor) -> Result<Arc<dyn Matrix>> {
    Ok(match tensor.dtype() {
        GgmlDType::Q8_0 => Arc::new(Quantised::<8, false>::of(tensor, 128, read_q8_0)?),
        GgmlDType::Q4_0 => Arc::new(Quantised::<4, false>::of(tensor, 8, read_q4_0)?),
        GgmlDType::Q4_1 => Arc::new(Quantised::<4, true>::of(tensor, 0, read_q4_1)?),
        GgmlDType::Q4K => Arc::new(Quantised::<4, true>::of(tensor, 0, read_q4_k)?),
        GgmlDType::Q5_0 => Arc::new(Candles::<BlockQ5_0>::of(tensor)?),
        GgmlDType::Q5_1 => Arc::new(Candles::<BlockQ5_1>::of(tensor)?),
        GgmlDType::Q2K => Arc::new(Candles::<BlockQ2K>::of(tensor)?),
        GgmlDType::Q3K => Arc::new(Candles::<BlockQ3K>::of(tensor)?),
        GgmlDType::Q5K => Arc::new(Candles::<BlockQ5K>::of(tensor)?),
        GgmlDType::Q6K => Arc::new(Candles::<BlockQ6K>::of(tensor)?),
        other => bail!("no products with {other:?} on a CPU"),
    })
}

/// Thirty-two weights of a row, as they are read from GGUF: `scale * (number - bias) + least`.
struct Block {
    numbers: [u8; BLOCK],
    scale: f16,
    least: f16,
}

/// The block of that number in a row's bytes.
type Read = fn(&[u8], usize) -> Block;

fn half_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The first sixteen in the lower halves of the bytes, the rest in the upper ones.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|at| if at < 16 { bytes[at] & 15 } else { bytes[at - 16] >> 4 })
}

fn read_q8_0(row: &[u8], block: usize) -> Block {
    let bytes = &row[block * 34..][..34];
    // Signed bytes become unsigned ones, 128 above.
    Block { numbers: std::array::from_fn(|at| bytes[2 + at] ^ 128), scale: half_at(bytes, 0), least: f16::ZERO }
}

fn read_q4_0(row: &[u8], block: usize) -> Block {
    let bytes = &row[block * 18..][..18];
    Block { numbers: nibbles(&bytes[2..]), scale: half_at(bytes, 0), least: f16::ZERO }
}

fn read_q4_1(row: &[u8], block: usize) -> Block {
    let bytes = &row[block * 20..][..20];
    Block { numbers: nibbles(&bytes[4..]), scale: half_at(bytes, 0), least: half_at(bytes, 2) }
}

/// Eight blocks share two halves, by which their scales and least values, of six bits each, are multiplied. The products
/// are rounded to halves here.
fn read_q4_k(row: &[u8], block: usize) -> Block {
    let (bytes, part) = (&row[block / 8 * 144..][..144], block % 8);
    let packed = &bytes[4..16];
    let (scale, least) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        let (low, high) = (packed[part + 4], [packed[part - 4] >> 6, packed[part] >> 6]);
        (low & 15 | high[0] << 4, low >> 4 | high[1] << 4)
    };
    let numbers = &bytes[16 + part / 2 * 32..][..32];
    Block {
        numbers: std::array::from_fn(|at| if part % 2 == 0 { numbers[at] & 15 } else { numbers[at] >> 4 }),
        scale: f16::from_f32(half_at(bytes, 0).to_f32() * f32::from(scale)),
        least: f16::from_f32(-half_at(bytes, 2).to_f32() * f32::from(least)),
    }
}

/// In the order of `matrix`, four weights of a row side by side: for each group of rows and each block, `FOURS` times
/// `LANES` fours. With four bits a weight, a byte holds numbers of two neighbouring fours.
struct Quantised<const BITS: usize, const LEAST: bool> {
    rows: usize,
    width: usize,
    bias: i32,
    numbers: &'static [u8],
    scales: &'static [f16], // a lane each
    leasts: &'static [f16],
}

impl<const BITS: usize, const LEAST: bool> Quantised<BITS, LEAST> {
    /// Bytes of a group's block.
    const BYTES: usize = BLOCK * LANES * BITS / 8;

    fn of(tensor: &QTensor, bias: i32, read: Read) -> Result<Self> {
        let (rows, width) = tensor.shape().dims2()?;
        let bytes = tensor.data()?;
        let per_row = bytes.len() / rows;
        let (groups, blocks) = (rows.div_ceil(LANES), width / BLOCK);
        let numbers = room(groups * blocks * Self::BYTES, 0);
        let scales = room(groups * blocks * LANES, f16::ZERO);
        let leasts = room(groups * blocks * LANES, f16::ZERO);
        let into = (Shared::new(numbers), Shared::new(scales), Shared::new(leasts));
        share(groups * blocks, |places| {
            for place in places {
                let lanes = place * LANES..(place + 1) * LANES;
                // SAFETY: each place is one thread's.
                let (scales, leasts) = unsafe { (into.1.slice(lanes.clone()), into.2.slice(lanes)) };
                // SAFETY: as above.
                let numbers = unsafe { into.0.slice(place * Self::BYTES..(place + 1) * Self::BYTES) };
                for (lane, row) in group_rows(place / blocks, rows).enumerate() {
                    let block = read(&bytes[row * per_row..][..per_row], place % blocks);
                    (scales[lane], leasts[lane]) = (block.scale, block.least);
                    (0..BLOCK).for_each(|at| Self::put(numbers, lane, at, block.numbers[at]));
                }
            }
        });
        Ok(Self { rows, width, bias, numbers, scales, leasts })
    }

    fn put(block: &mut [u8], lane: usize, at: usize, number: u8) {
        let (byte, shift) = Self::place(lane, at);
        block[byte] |= number << shift;
    }

    /// In which byte of a group's block a number stands, and how far up.
    fn place(lane: usize, at: usize) -> (usize, usize) {
        let (four, within) = (at / 4, lane * 4 + at % 4);
        if BITS == 8 { (four * 4 * LANES + within, 0) } else { (four / 2 * 4 * LANES + within, four % 2 * 4) }
    }

    #[inline(always)]
    fn tile<const C: usize>(&self, group: usize, tokens: [&[TokenBlock]; C], into: &mut Sums) {
        let blocks = self.width / BLOCK;
        assert!(tokens.iter().all(|one| one.len() == blocks) && C <= TOKENS);
        let numbers = &self.numbers[group * blocks * Self::BYTES..][..blocks * Self::BYTES];
        let lanes = group * blocks * LANES..(group + 1) * blocks * LANES;
        let (scales, leasts) = (&self.scales[lanes.clone()], &self.leasts[lanes]);
        let mut sums = [Lanes::all(0.0); C];
        for block in 0..blocks {
            let mut wholes = [Wholes::all(0); C];
            for c in 0..C {
                // SAFETY: `block` is below `blocks`, here and below.
                wholes[c] = Wholes::all(-self.bias * unsafe { tokens[c].get_unchecked(block) }.sum);
            }
            for register in 0..BITS {
                // SAFETY: a group's block is so many registers.
                let weights = unsafe { Quads::load(numbers.as_ptr().add(block * Self::BYTES + register * 4 * LANES)) };
                for c in 0..C {
                    let fours = &unsafe { tokens[c].get_unchecked(block) }.fours;
                    wholes[c] = if BITS == 8 {
                        wholes[c].dot(weights, fours[register])
                    } else {
                        wholes[c].dot(weights.low(), fours[2 * register]).dot(weights.high(), fours[2 * register + 1])
                    };
                }
            }
            // SAFETY: there is a lane for each row.
            let (scale, least) =
                unsafe { (Lanes::load_f16(scales.as_ptr().add(block * LANES)), leasts.as_ptr().add(block * LANES)) };
            for c in 0..C {
                let token = unsafe { tokens[c].get_unchecked(block) };
                sums[c] = wholes[c].floats().times(scale).multiply_add(Lanes::all(token.scale), sums[c]);
                if LEAST {
                    // SAFETY: as above.
                    let least = unsafe { Lanes::load_f16(least) };
                    sums[c] = least.multiply_add(Lanes::all(token.scale * token.sum as f32), sums[c]);
                }
            }
        }
        into[..C].copy_from_slice(&sums);
    }
}

impl<const BITS: usize, const LEAST: bool> Matrix for Quantised<BITS, LEAST> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn width(&self) -> usize {
        self.width
    }

    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]) {
        let blocks: Vec<TokenBlock> = inputs.chunks_exact(BLOCK).map(TokenBlock::of).collect();
        let tokens: Vec<&[TokenBlock]> = blocks.chunks_exact(self.width / BLOCK).collect();
        multiply(self.rows, &tokens, outputs, |group, tokens, sums| {
            macro_rules! exactly {
                ($count:literal) => {
                    self.tile::<$count>(group, std::array::from_fn(|t| tokens[t]), sums)
                };
            }
            with_count!(tokens.len(), exactly);
        });
    }

    fn row(&self, at: usize) -> Vec<f32> {
        let blocks = self.width / BLOCK;
        let number = |at_in_row: usize| {
            let place = at / LANES * blocks + at_in_row / BLOCK;
            let (byte, shift) = Self::place(at % LANES, at_in_row % BLOCK);
            let number = self.numbers[place * Self::BYTES + byte] >> shift & (u8::MAX >> (8 - BITS));
            let lane = place * LANES + at % LANES;
            self.scales[lane].to_f32() * (i32::from(number) - self.bias) as f32 + self.leasts[lane].to_f32()
        };
        (0..self.width).map(number).collect()
    }
}

/// Thirty-two of a token's numbers, rounded to bytes.
struct TokenBlock {
    fours: [i32; FOURS], // four bytes in each
    scale: f32,
    sum: i32, // of the bytes
}

impl TokenBlock {
    fn of(numbers: &[f32]) -> Self {
        let most = numbers.iter().fold(0f32, |most, number| most.max(number.abs()));
        let up = if most > 0.0 { 127.0 / most } else { 0.0 };
        let wholes: [i32; BLOCK] = std::array::from_fn(|at| (numbers[at] * up).round_ties_even() as i32);
        let four = |from: usize| i32::from_ne_bytes(std::array::from_fn(|at| wholes[from + at] as u8));
        Self { fours: std::array::from_fn(|at| four(4 * at)), scale: most / 127.0, sum: wholes.iter().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor};

    #[test]
    fn products_are_near_those_of_the_numbers_meant() {
        let (rows, width, tokens) = (10, 512, 3);
        let mut random = fastrand::Rng::with_seed(1);
        let mut numbers = |count: usize| -> Vec<f32> { (0..count).map(|_| random.f32() - 0.5).collect() };
        let (weights, inputs) = (numbers(rows * width), numbers(tokens * width));
        let weights = Tensor::from_vec(weights, (rows, width), &Device::Cpu).unwrap();
        for kind in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q4K, GgmlDType::Q6K] {
            let tensor = QTensor::quantize(&weights, kind).unwrap();
            let matrix = on_cpu(&tensor).unwrap();
            let mut outputs = vec![f32::NAN; tokens * rows];
            matrix.multiply(&inputs, &mut outputs);
            for (at, got) in outputs.iter().enumerate() {
                let row = matrix.row(at % rows);
                let exact: f32 = row.iter().zip(&inputs[at / rows * width..]).map(|(w, x)| w * x).sum();
                assert!((got - exact).abs() < 0.1, "{kind:?}: {got} is not near {exact}");
            }
        }
    }
}
