//! Quantised matrices on a CPU. The kinds that people use most meet the tokens in our own kernel, as exactly as floats
//! would; the others use candle's blocks and dot products, which round the tokens to bytes first.

use crate::kernels::{self, Shared};
use crate::lanes::{Q4_0, Q4_1, Q8_0, Weight};
use crate::team::share;
use anyhow::{Result, bail};
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, GgmlType,
};
use candle_core::quantized::{GgmlDType, QTensor};
use std::sync::Arc;

/// Rows that candle handles together: they share one read of a token's numbers.
const ROWS: usize = 4;

/// A matrix of blocks, of whatever kind.
pub trait Blocks: Send + Sync {
    fn rows(&self) -> usize;
    /// `inputs` `[tokens, width]`; `outputs` `[tokens, rows]`.
    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]);
    /// One row as plain numbers.
    fn row(&self, at: usize) -> Vec<f32>;
    fn width(&self) -> usize;
}

pub fn on_cpu(tensor: &QTensor) -> Result<Arc<dyn Blocks>> {
    Ok(match tensor.dtype() {
        GgmlDType::Q8_0 => Arc::new(Ours::<Q8_0>::of(tensor)?),
        GgmlDType::Q4_0 => Arc::new(Ours::<Q4_0>::of(tensor)?),
        GgmlDType::Q4_1 => Arc::new(Ours::<Q4_1>::of(tensor)?),
        GgmlDType::Q5_0 => Arc::new(Candles::<BlockQ5_0>::of(tensor)?),
        GgmlDType::Q5_1 => Arc::new(Candles::<BlockQ5_1>::of(tensor)?),
        GgmlDType::Q2K => Arc::new(Candles::<BlockQ2K>::of(tensor)?),
        GgmlDType::Q3K => Arc::new(Candles::<BlockQ3K>::of(tensor)?),
        GgmlDType::Q4K => Arc::new(Candles::<BlockQ4K>::of(tensor)?),
        GgmlDType::Q5K => Arc::new(Candles::<BlockQ5K>::of(tensor)?),
        GgmlDType::Q6K => Arc::new(Candles::<BlockQ6K>::of(tensor)?),
        other => bail!("no products with {other:?} on a CPU"),
    })
}

/// The blocks of a tensor, in the order of its rows.
///
/// # Safety
/// `T` must be plain bytes, laid out as the tensor's kind is.
unsafe fn blocks_of<T>(tensor: &QTensor) -> Result<Vec<T>> {
    let bytes = tensor.data()?;
    let count = bytes.len() / size_of::<T>();
    let mut blocks = Vec::<T>::with_capacity(count);
    // SAFETY: there is room for `count` blocks, and any bytes make one, by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), blocks.as_mut_ptr().cast::<u8>(), count * size_of::<T>());
        blocks.set_len(count);
    }
    Ok(blocks)
}

struct Ours<W> {
    blocks: Vec<W>,
    width: usize,
}

impl<W: Weight> Ours<W> {
    fn of(tensor: &QTensor) -> Result<Self> {
        // SAFETY: our blocks are those of GGUF.
        Ok(Self { blocks: unsafe { blocks_of(tensor)? }, width: tensor.shape().dims2()?.1 })
    }
}

impl<W: Weight> Blocks for Ours<W> {
    fn rows(&self) -> usize {
        self.blocks.len() * W::SIZE / self.width
    }

    fn width(&self) -> usize {
        self.width
    }

    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]) {
        kernels::multiply(&self.blocks, self.width, inputs, outputs);
    }

    fn row(&self, at: usize) -> Vec<f32> {
        let mut numbers = vec![0f32; self.width];
        let count = self.width / W::SIZE;
        for (block, numbers) in self.blocks[at * count..][..count].iter().zip(numbers.chunks_exact_mut(W::SIZE)) {
            block.floats(numbers);
        }
        numbers
    }
}

struct Candles<T> {
    blocks: Vec<T>,
    width: usize,
}

impl<T: GgmlType> Candles<T> {
    fn of(tensor: &QTensor) -> Result<Self> {
        // SAFETY: candle's blocks are those of GGUF.
        Ok(Self { blocks: unsafe { blocks_of(tensor)? }, width: tensor.shape().dims2()?.1 })
    }

    fn blocks_of(&self, row: usize) -> &[T] {
        let count = self.width / T::BLCK_SIZE;
        &self.blocks[row * count..][..count]
    }
}

impl<T: GgmlType> Blocks for Candles<T> {
    fn rows(&self) -> usize {
        self.blocks.len() * T::BLCK_SIZE / self.width
    }

    fn width(&self) -> usize {
        self.width
    }

    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]) {
        let (width, rows) = (self.width, self.rows());
        // The tokens are quantised too, so that products are of whole numbers.
        let per_token = width / T::VecDotType::BLCK_SIZE;
        let mut tokens = vec![T::VecDotType::zeros(); inputs.len() / width * per_token];
        T::VecDotType::from_float(inputs, &mut tokens);
        let outputs = Shared::new(outputs);
        share(rows.div_ceil(ROWS), |groups| {
            for first in groups.map(|group| group * ROWS) {
                for (token, numbers) in tokens.chunks_exact(per_token).enumerate() {
                    let at = token * rows + first;
                    // SAFETY: each group of rows writes its own places, and each group has one thread.
                    let out = unsafe { outputs.slice(at..at + ROWS.min(rows - first)) };
                    if let [a, b, c, d] = out {
                        let row = |r| self.blocks_of(first + r);
                        (*a, *b, *c, *d) = T::vec_dot_4(width, row(0), row(1), row(2), row(3), numbers);
                    } else {
                        for (r, out) in out.iter_mut().enumerate() {
                            *out = T::vec_dot(width, self.blocks_of(first + r), numbers);
                        }
                    }
                }
            }
        });
    }

    fn row(&self, at: usize) -> Vec<f32> {
        let mut numbers = vec![0f32; self.width];
        T::to_float(self.blocks_of(at), &mut numbers);
        numbers
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
