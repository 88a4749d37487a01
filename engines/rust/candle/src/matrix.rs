//! Matrices in the CPU's memory, laid out for the kernels: rows in groups of `LANES`, and inside a group the first
//! weights of all its rows, then their second ones, and so on. A tile's sums are then whole rows' results, with nothing
//! left to add up across a register, and one token reads the weights in one straight run.

use crate::kernels::{multiply, tile};
use crate::lanes::{LANES, Weight};
use enginebench_protocol::team::{Shared, share};
use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;

pub trait Matrix: Send + Sync {
    fn rows(&self) -> usize;

    fn width(&self) -> usize;

    /// `inputs`: `[tokens, width]`; `outputs`: `[tokens, rows]`.
    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]);

    /// One row's numbers.
    fn row(&self, at: usize) -> Vec<f32>;
}

/// Floats, whole or half.
pub struct Dense<W: 'static> {
    rows: usize,
    width: usize,
    numbers: &'static [W],
}

impl<W: Weight> Dense<W> {
    /// `weights`: row after row.
    pub fn of(weights: &[W], width: usize) -> Self {
        let rows = weights.len() / width;
        let per_group = width * LANES;
        let numbers = room(rows.div_ceil(LANES) * per_group, W::ZERO);
        let into = Shared::new(numbers);
        share(rows.div_ceil(LANES), |groups| {
            for group in groups {
                // SAFETY: each group has its own place.
                let into = unsafe { into.slice(group * per_group..(group + 1) * per_group) };
                for (lane, row) in group_rows(group, rows).enumerate() {
                    let row = &weights[row * width..][..width];
                    row.iter().enumerate().for_each(|(at, weight)| into[at * LANES + lane] = *weight);
                }
            }
        });
        Self { rows, width, numbers }
    }
}

/// Which rows stand together; the last group may be short.
pub fn group_rows(group: usize, rows: usize) -> Range<usize> {
    group * LANES..rows.min((group + 1) * LANES)
}

impl<W: Weight> Matrix for Dense<W> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn width(&self) -> usize {
        self.width
    }

    fn multiply(&self, inputs: &[f32], outputs: &mut [f32]) {
        let width = self.width;
        let tokens: Vec<&[f32]> = inputs.chunks_exact(width).collect();
        multiply(self.rows, &tokens, outputs, |group, tokens, sums| {
            tile(&self.numbers[group * width * LANES..][..width * LANES], tokens, sums);
        });
    }

    fn row(&self, at: usize) -> Vec<f32> {
        let group = &self.numbers[at / LANES * self.width * LANES..][..self.width * LANES];
        group.iter().skip(at % LANES).step_by(LANES).map(|weight| weight.float()).collect()
    }
}

/// Room for `count` of something, which begins at a register's border and is never given back: weights stay as long as
/// the program.
///
/// It comes out of big pieces in huge pages, where the system has them: a decoder reads all of its weights for every
/// token, and small pages cost it a fifth of the memory's speed.
pub fn room<T: Copy + Send>(count: usize, filled_with: T) -> &'static mut [T] {
    /// Address and size of what is left of the last piece.
    static LEFT: Mutex<(usize, usize)> = Mutex::new((0, 0));
    let bytes = (count * size_of::<T>()).max(1).next_multiple_of(REGISTER);
    let mut left = LEFT.lock().expect("nobody panics while taking room");
    if left.1 < bytes {
        let size = bytes.next_multiple_of(HUGE_PAGE).max(PIECE);
        *left = (huge_pages(size).as_ptr() as usize, size);
    }
    let at = left.0 as *mut T;
    *left = (left.0 + bytes, left.1 - bytes);
    // SAFETY: nobody else was given this part, there is room for `count`, and each is written before anybody reads it.
    unsafe {
        (0..count).for_each(|index| at.add(index).write(filled_with));
        std::slice::from_raw_parts_mut(at, count)
    }
}

const REGISTER: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
const PIECE: usize = 64 << 20; // of addresses; memory is taken only where something is written

fn huge_pages(size: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(size, HUGE_PAGE).expect("a matrix fits into memory");
    // SAFETY: the layout is not empty.
    let Some(at) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    #[cfg(target_os = "linux")]
    // SAFETY: our own pages. It is advice: where it is not taken, all works the same.
    unsafe {
        libc::madvise(at.as_ptr().cast(), size, libc::MADV_HUGEPAGE);
    }
    at
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
        for (rows, width, tokens) in [(8, 64, 1), (9, 33, 6), (7, 100, 7), (40, 48, 13), (1, 5, 32), (576, 576, 8)] {
            let (weights, inputs) = (numbers(rows * width, 1), numbers(tokens * width, 2));
            let mut outputs = vec![f32::NAN; rows * tokens];
            Dense::of(&weights, width).multiply(&inputs, &mut outputs);
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
        let (weights, inputs) = (Dense::of(&numbers(rows * width, 1), width), numbers(32 * width, 2));
        let mut together = vec![0f32; rows * 32];
        weights.multiply(&inputs, &mut together);
        for token in 0..32 {
            let mut alone = vec![0f32; rows];
            weights.multiply(&inputs[token * width..][..width], &mut alone);
            assert_eq!(alone, together[token * rows..][..rows]);
        }
    }

    #[test]
    fn halved_weights_are_the_same_numbers() {
        let halves: Vec<bf16> = numbers(4 * 64, 1).into_iter().map(bf16::from_f32).collect();
        let whole: Vec<f32> = halves.iter().map(|one| one.to_f32()).collect();
        let (halves, inputs) = (Dense::of(&halves, 64), numbers(3 * 64, 2));
        let (mut a, mut b) = (vec![0f32; 12], vec![0f32; 12]);
        halves.multiply(&inputs, &mut a);
        Dense::of(&whole, 64).multiply(&inputs, &mut b);
        assert_eq!(a, b);
        assert_eq!(halves.row(3), whole[3 * 64..]);
    }
}
