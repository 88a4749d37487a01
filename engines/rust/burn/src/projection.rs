//! A product with weights, cut so that Burn's CPU kernels are fast with it.
//!
//! Rows are outputs and columns inputs, as in the file: one token's product is then a dot product per row. Flex leaves such
//! a product to one core, so the rows are dealt out to the cores here. For several tokens it packs such weights anew each
//! time, which costs more than the product of a few. Its kernel for small outputs (up to 16 × 16) does not, and a batch of
//! products is dealt out to the cores: so then the rows are cut into blocks, and each block is one product of a batch.

use burn::prelude::*;
use enginebench_protocol::team;
use std::sync::OnceLock;

const SMALL_OUTPUT: usize = 16 * 16; // results of one product that need no packing
const LEAST_ROWS: usize = 4; // a block of fewer rows is slower than packing
const WORTH_A_CORE: usize = 1 << 17; // multiplications, for which another core pays
const FLEX_DEALS_OUT: usize = 1 << 21; // multiplications, from which on Flex wakes up threads of its own

pub struct Projection {
    rows: Tensor<2>,
    bias: Option<Tensor<2>>,
    in_blocks: bool,
}

impl Projection {
    /// `rows`: one per output. `in_blocks`: on Flex; other devices know how to divide their work.
    pub fn new(rows: Tensor<2>, bias: Option<Tensor<1>>, in_blocks: bool) -> Self {
        Self { rows, bias: bias.map(Tensor::unsqueeze), in_blocks }
    }

    /// `[tokens, inputs]` to `[tokens, outputs]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let ([tokens, inputs], [outputs, _]) = (x.dims(), self.rows.dims());
        let y = match self.block(tokens, outputs) {
            None if tokens == 1 && self.in_blocks => self.dealt_out(x),
            None => x.matmul(self.rows.clone().transpose()),
            Some(block) => {
                let blocks = self.rows.clone().reshape([outputs / block, block, inputs]).swap_dims(1, 2);
                x.unsqueeze::<3>().matmul(blocks).swap_dims(0, 1).reshape([tokens, outputs])
            }
        };
        match &self.bias {
            Some(bias) => y + bias.clone(),
            None => y,
        }
    }

    /// One token: each core has runs of rows, short enough for Flex to leave them to it. Slices share the weights' memory.
    fn dealt_out(&self, x: Tensor<2>) -> Tensor<2> {
        let [outputs, inputs] = self.rows.dims();
        let work = outputs * inputs;
        let parts = (work / WORTH_A_CORE).clamp(1, team::threads()).max(work.div_ceil(FLEX_DEALS_OUT));
        let products: Vec<OnceLock<Tensor<2>>> = (0..parts).map(|_| OnceLock::new()).collect();
        team::share(parts, |some| {
            for part in some {
                let rows = part * outputs / parts..(part + 1) * outputs / parts;
                let product = x.clone().matmul(self.rows.clone().slice([rows, 0..inputs]).transpose());
                products[part].set(product).expect("each part is done once");
            }
        });
        let mut products: Vec<_> = products.into_iter().filter_map(OnceLock::into_inner).collect();
        if parts == 1 { products.remove(0) } else { Tensor::cat(products, 1) }
    }

    /// Rows per block of a product of several tokens, or `None` where one product does better.
    fn block(&self, tokens: usize, outputs: usize) -> Option<usize> {
        if !self.in_blocks || tokens == 1 {
            return None;
        }
        let mut block = 1;
        while block * 2 * tokens <= SMALL_OUTPUT && outputs.is_multiple_of(block * 2) {
            block *= 2;
        }
        (block >= LEAST_ROWS).then_some(block)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, Tolerance};

    #[test]
    fn cutting_changes_nothing_but_the_time() {
        let device = Device::flex();
        for (outputs, inputs) in [(96, 32), (100, 32), (4096, 576), (7, 16)] {
            let rows = Tensor::<2>::random([outputs, inputs], Distribution::Normal(0.0, 1.0), &device);
            let bias = Tensor::<1>::random([outputs], Distribution::Normal(0.0, 1.0), &device);
            let plain = Projection::new(rows.clone(), Some(bias.clone()), false);
            let cut = Projection::new(rows, Some(bias), true);
            for tokens in [1, 2, 8, 33, 200] {
                let x = Tensor::<2>::random([tokens, inputs], Distribution::Normal(0.0, 1.0), &device);
                let (one, other) = (plain.forward(x.clone()).into_data(), cut.forward(x).into_data());
                one.assert_approx_eq::<f32>(&other, Tolerance::absolute(1e-4));
            }
        }
    }

    #[test]
    fn a_block_has_no_more_results_than_the_kernel_takes_unpacked() {
        let device = Device::flex();
        let one = Projection::new(Tensor::zeros([3072, 576], &device), None, true);
        assert_eq!(one.block(1, 3072), None);
        assert_eq!(one.block(8, 3072), Some(32));
        assert_eq!(one.block(64, 3072), Some(4));
        assert_eq!(one.block(65, 3072), None);
    }
}
