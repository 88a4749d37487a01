//! AVX-512 with its dot products of bytes (Intel since Ice Lake, AMD since Zen 4).

use half::{bf16, f16};
use std::arch::x86_64::*;

pub const LANES: usize = 16;
/// Tokens in a tile at most: with two sums for each, 24 of the 32 registers.
pub const TOKENS: usize = 12;

// SAFETY: the program is compiled for machines that have these instructions; where an address is read or written,
// the caller answers for it.
#[derive(Clone, Copy)]
pub struct Lanes(__m512);

impl Lanes {
    #[inline(always)]
    pub fn all(number: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(number) })
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
    pub unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))) // a bf16 is the upper half of a float
        }
    }

    /// # Safety
    /// `LANES` halves must lie at `from`.
    #[inline(always)]
    pub unsafe fn load_f16(from: *const f16) -> Self {
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) })
    }

    /// # Safety
    /// There must be room for `LANES` floats.
    #[inline(always)]
    pub unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    /// `self * other + sum`
    #[inline(always)]
    pub fn multiply_add(self, other: Self, sum: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, other.0, sum.0) })
    }
}

#[derive(Clone, Copy)]
pub struct Quads(__m512i);

impl Quads {
    /// # Safety
    /// `4 * LANES` bytes must lie at `from`.
    #[inline(always)]
    pub unsafe fn load(from: *const u8) -> Self {
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    /// The lower four bits of each byte.
    #[inline(always)]
    pub fn low(self) -> Self {
        Self(unsafe { _mm512_and_si512(self.0, _mm512_set1_epi8(15)) })
    }

    /// The upper four bits of each byte.
    #[inline(always)]
    pub fn high(self) -> Self {
        Self(unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), _mm512_set1_epi8(15)) })
    }
}

#[derive(Clone, Copy)]
pub struct Wholes(__m512i);

impl Wholes {
    #[inline(always)]
    pub fn all(number: i32) -> Self {
        Self(unsafe { _mm512_set1_epi32(number) })
    }

    #[inline(always)]
    pub fn floats(self) -> Lanes {
        Lanes(unsafe { _mm512_cvtepi32_ps(self.0) })
    }

    /// Each lane's four weights, 0 to 255, times the same four signed bytes, on top of what is there.
    #[inline(always)]
    pub fn dot(self, weights: Quads, four: i32) -> Self {
        Self(unsafe { _mm512_dpbusd_epi32(self.0, weights.0, _mm512_set1_epi32(four)) })
    }
}
