//! Registers of the machine that this is compiled for (`target-cpu=native`): `LANES` 32-bit floats, as many 32-bit whole
//! numbers, and four bytes for each of them.
//!
//! Left to itself the compiler sometimes keeps a tile's sums in memory, at a tenth of the speed, and the smallest change
//! of the source decides; so the few operations that matter are named here.

use half::bf16;

#[cfg(avx512)]
#[path = "lanes/avx512.rs"]
mod machine;
#[cfg(all(avx2, not(avx512)))]
#[path = "lanes/avx2.rs"]
mod machine;
#[cfg(not(any(avx2, avx512)))]
#[path = "lanes/plain.rs"]
mod machine;

pub use machine::{LANES, Lanes, Quads, TOKENS, Wholes};

/// How a weight is kept. It becomes a 32-bit float on its way into the multiplier.
pub trait Weight: Copy + Send + Sync + 'static {
    const ZERO: Self;

    fn float(self) -> f32;

    /// # Safety
    /// `LANES` weights must lie at `from`.
    unsafe fn load(from: *const Self) -> Lanes;
}

impl Weight for f32 {
    const ZERO: Self = 0.0;

    fn float(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Lanes {
        // SAFETY: the caller's promise.
        unsafe { Lanes::load(from) }
    }
}

impl Weight for bf16 {
    const ZERO: Self = bf16::ZERO;

    fn float(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Lanes {
        // SAFETY: the caller's promise.
        unsafe { Lanes::load_bf16(from) }
    }
}
