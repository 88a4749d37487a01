//! Quantised matrices of the rarer kinds on a CPU: candle's blocks and candle's dot products, on our threads.

use crate::matrix::Matrix;
use anyhow::Result;
use candle_core::quantized::{GgmlType, QTensor};
use enginebench_protocol::team::{Shared, share};

/// Rows that candle handles together: they share one read of a token's numbers.
const ROWS: usize = 4;

/// Blocks as candle has them.
pub struct Candles<T> {
    blocks: Vec<T>,
    width: usize,
}

impl<T: GgmlType> Candles<T> {
    pub fn of(tensor: &QTensor) -> Result<Self> {
        let bytes = tensor.data()?;
        let count = bytes.len() / size_of::<T>();
        let mut blocks = vec![T::zeros(); count];
        // SAFETY: candle's blocks are plain bytes, laid out as in GGUF, and there is room for `count`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), blocks.as_mut_ptr().cast::<u8>(), count * size_of::<T>());
        }
        Ok(Self { blocks, width: tensor.shape().dims2()?.1 })
    }

    fn blocks_of(&self, row: usize) -> &[T] {
        let count = self.width / T::BLCK_SIZE;
        &self.blocks[row * count..][..count]
    }
}

impl<T: GgmlType> Matrix for Candles<T> {
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
