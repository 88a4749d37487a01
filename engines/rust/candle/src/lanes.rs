//! A register of 32-bit floats, as wide as the machine this is compiled for has them (`target-cpu=native`).
//!
//! Left to itself the compiler sometimes keeps a tile's sums in memory, at a tenth of the speed, and the smallest change
//! of the source decides; so the few operations that matter are named here.

use half::bf16;

pub use machine::{LANES, Lanes, ROWS};

/// How a weight is kept. It becomes 32-bit floats on its way into the multiplier.
pub trait Weight: Copy + Send + Sync {
    fn float(self) -> f32;

    /// # Safety
    /// `LANES` weights must lie at `from`.
    unsafe fn load(from: *const Self) -> Lanes;
}

impl Weight for f32 {
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
    fn float(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load(from: *const Self) -> Lanes {
        // SAFETY: the caller's promise; a bf16 is the upper half of a 32-bit float.
        unsafe { Lanes::load_halved(from.cast()) }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
mod machine {
    use std::arch::x86_64::*;

    pub const LANES: usize = 16;
    /// Weight rows in a tile: with five tokens, twenty of the 32 registers hold sums.
    pub const ROWS: usize = 4;

    #[derive(Clone, Copy)]
    pub struct Lanes(__m512);

    impl Lanes {
        #[inline(always)]
        pub fn zero() -> Self {
            // SAFETY: the program is compiled for machines that have this, here and below.
            Self(unsafe { _mm512_setzero_ps() })
        }

        /// # Safety
        /// `LANES` floats must lie at `from`.
        #[inline(always)]
        pub unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm512_loadu_ps(from) })
        }

        /// # Safety
        /// `LANES` halves must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_halved(from: *const u16) -> Self {
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
            }
        }

        /// `self * other + sum`
        #[inline(always)]
        pub fn multiply_add(self, other: Self, sum: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(self.0, other.0, sum.0) })
        }

        #[inline(always)]
        pub fn total(self) -> f32 {
            unsafe { _mm512_reduce_add_ps(self.0) }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "fma", not(target_feature = "avx512f")))]
mod machine {
    use std::arch::x86_64::*;

    pub const LANES: usize = 8;
    /// Weight rows in a tile: with five tokens, ten of the 16 registers hold sums.
    pub const ROWS: usize = 2;

    #[derive(Clone, Copy)]
    pub struct Lanes(__m256);

    impl Lanes {
        #[inline(always)]
        pub fn zero() -> Self {
            // SAFETY: the program is compiled for machines that have this, here and below.
            Self(unsafe { _mm256_setzero_ps() })
        }

        /// # Safety
        /// `LANES` floats must lie at `from`.
        #[inline(always)]
        pub unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm256_loadu_ps(from) })
        }

        /// # Safety
        /// `LANES` halves must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_halved(from: *const u16) -> Self {
            unsafe {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
            }
        }

        /// `self * other + sum`
        #[inline(always)]
        pub fn multiply_add(self, other: Self, sum: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(self.0, other.0, sum.0) })
        }

        #[inline(always)]
        pub fn total(self) -> f32 {
            let mut lanes = [0f32; LANES];
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), self.0) }
            let pairs: [f32; 4] = std::array::from_fn(|at| lanes[at] + lanes[at + 4]);
            (pairs[0] + pairs[2]) + (pairs[1] + pairs[3])
        }
    }
}

/// Four plain floats, which the compiler turns into a register on every machine that has one (Arm's among them).
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "fma")))]
mod machine {
    pub const LANES: usize = 4;
    pub const ROWS: usize = 2;

    #[derive(Clone, Copy)]
    pub struct Lanes([f32; LANES]);

    impl Lanes {
        #[inline(always)]
        pub fn zero() -> Self {
            Self([0.0; LANES])
        }

        /// # Safety
        /// `LANES` floats must lie at `from`.
        #[inline(always)]
        pub unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
        }

        /// # Safety
        /// `LANES` halves must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_halved(from: *const u16) -> Self {
            let halves = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
            Self(halves.map(|half| f32::from_bits(u32::from(half) << 16)))
        }

        /// `self * other + sum`
        #[inline(always)]
        pub fn multiply_add(self, other: Self, sum: Self) -> Self {
            Self(std::array::from_fn(|at| {
                let (a, b, c) = (self.0[at], other.0[at], sum.0[at]);
                if cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
            }))
        }

        #[inline(always)]
        pub fn total(self) -> f32 {
            (self.0[0] + self.0[2]) + (self.0[1] + self.0[3])
        }
    }
}
