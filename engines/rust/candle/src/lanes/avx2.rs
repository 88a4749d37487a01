//! AVX2 with fused multiplication, as nearly every x86 machine since 2013 has it.

use half::{bf16, f16};
use std::arch::x86_64::*;

pub const LANES: usize = 8;
/// Tokens in a tile at most: with two sums for each, 12 of the 16 registers.
pub const TOKENS: usize = 6;

// SAFETY: the program is compiled for machines that have these instructions; where an address is read or written,
// the caller answers for it.
#[derive(Clone, Copy)]
pub struct Lanes(__m256);

impl Lanes {
    #[inline(always)]
    pub fn all(number: f32) -> Self {
        Self(unsafe { _mm256_set1_ps(number) })
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
    pub unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))) // a bf16 is the upper half of a float
        }
    }

    /// # Safety
    /// `LANES` halves must lie at `from`.
    #[inline(always)]
    pub unsafe fn load_f16(from: *const f16) -> Self {
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) })
    }

    /// # Safety
    /// There must be room for `LANES` floats.
    #[inline(always)]
    pub unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    /// `self * other + sum`
    #[inline(always)]
    pub fn multiply_add(self, other: Self, sum: Self) -> Self {
        Self(unsafe { _mm256_fmadd_ps(self.0, other.0, sum.0) })
    }
}

#[derive(Clone, Copy)]
pub struct Quads(__m256i);

impl Quads {
    /// # Safety
    /// `4 * LANES` bytes must lie at `from`.
    #[inline(always)]
    pub unsafe fn load(from: *const u8) -> Self {
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    /// The lower four bits of each byte.
    #[inline(always)]
    pub fn low(self) -> Self {
        Self(unsafe { _mm256_and_si256(self.0, _mm256_set1_epi8(15)) })
    }

    /// The upper four bits of each byte.
    #[inline(always)]
    pub fn high(self) -> Self {
        Self(unsafe { _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), _mm256_set1_epi8(15)) })
    }
}

#[derive(Clone, Copy)]
pub struct Wholes(__m256i);

impl Wholes {
    #[inline(always)]
    pub fn all(number: i32) -> Self {
        Self(unsafe { _mm256_set1_epi32(number) })
    }

    #[inline(always)]
    pub fn floats(self) -> Lanes {
        Lanes(unsafe { _mm256_cvtepi32_ps(self.0) })
    }

    /// Each lane's four weights, 0 to 255, times the same four signed bytes, on top of what is there.
    #[inline(always)]
    pub fn dot(self, weights: Quads, four: i32) -> Self {
        unsafe {
            // In 16 bits, evens and odds apart: the instruction for bytes would cut off sums above 32767.
            let four = _mm256_set1_epi32(four);
            let evens = _mm256_and_si256(weights.0, _mm256_set1_epi16(255));
            let odds = _mm256_srli_epi16::<8>(weights.0);
            let first = _mm256_madd_epi16(evens, _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(four)));
            let second = _mm256_madd_epi16(odds, _mm256_srai_epi16::<8>(four));
            Self(_mm256_add_epi32(self.0, _mm256_add_epi32(first, second)))
        }
    }
}
