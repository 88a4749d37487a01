//! A register of 32-bit floats, as wide as the machine this is compiled for has them (`target-cpu=native`).
//!
//! Left to itself the compiler sometimes keeps a tile's sums in memory, at a tenth of the speed, and the smallest change
//! of the source decides; so the few operations that matter are named here.

use half::{bf16, f16};

pub use machine::{LANES, Lanes, ROWS};

/// How weights are kept, `SIZE` of them in one piece. They become 32-bit floats on their way into the multiplier.
pub trait Weight: Copy + Send + Sync {
    /// A multiple of `LANES`, or 1.
    const SIZE: usize;

    /// The `LANES` weights that begin `skip` weights after the beginning of the piece at `from`.
    ///
    /// # Safety
    /// They must lie there.
    unsafe fn load(from: *const Self, skip: usize) -> Lanes;

    /// All weights of the piece, the slow way.
    fn floats(&self, into: &mut [f32]);
}

impl Weight for f32 {
    const SIZE: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const Self, skip: usize) -> Lanes {
        // SAFETY: the caller's promise.
        unsafe { Lanes::load(from.add(skip)) }
    }

    fn floats(&self, into: &mut [f32]) {
        into[0] = *self;
    }
}

impl Weight for bf16 {
    const SIZE: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const Self, skip: usize) -> Lanes {
        // SAFETY: the caller's promise; a bf16 is the upper half of a 32-bit float.
        unsafe { Lanes::load_halved(from.add(skip).cast()) }
    }

    fn floats(&self, into: &mut [f32]) {
        into[0] = self.to_f32();
    }
}

/// Thirty-two weights as GGUF has them: bytes with one scale.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q8_0 {
    scale: f16,
    bytes: [u8; 32],
}

/// Thirty-two weights of four bits: the first sixteen in the lower halves of the bytes, the rest in the upper ones.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q4_0 {
    scale: f16,
    nibbles: [u8; 16],
}

/// The same with a smallest value instead of a fixed middle.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Q4_1 {
    scale: f16,
    least: f16,
    nibbles: [u8; 16],
}

impl Weight for Q8_0 {
    const SIZE: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const Self, skip: usize) -> Lanes {
        // SAFETY: the caller's promise.
        let (block, whole) = unsafe { (&*from, Lanes::load_signed_bytes((*from).bytes.as_ptr().add(skip))) };
        whole.multiply_add(Lanes::all(block.scale.to_f32()), Lanes::zero())
    }

    fn floats(&self, into: &mut [f32]) {
        for (into, &byte) in into.iter_mut().zip(&self.bytes) {
            *into = f32::from(byte as i8) * self.scale.to_f32();
        }
    }
}

/// Four-bit weights `skip..skip + LANES`, still without scale.
///
/// # Safety
/// Sixteen bytes must lie at `from`, and `skip` must be a multiple of `LANES` below 32.
#[inline(always)]
unsafe fn nibbles(from: *const u8, skip: usize) -> Lanes {
    // SAFETY: the caller's promise.
    unsafe {
        if skip < 16 { Lanes::load_low_nibbles(from.add(skip)) } else { Lanes::load_high_nibbles(from.add(skip - 16)) }
    }
}

fn nibble(nibbles: &[u8; 16], at: usize) -> f32 {
    f32::from(if at < 16 { nibbles[at] & 15 } else { nibbles[at - 16] >> 4 })
}

impl Weight for Q4_0 {
    const SIZE: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const Self, skip: usize) -> Lanes {
        // SAFETY: the caller's promise.
        let (scale, whole) = unsafe { ((*from).scale.to_f32(), nibbles((*from).nibbles.as_ptr(), skip)) };
        whole.multiply_add(Lanes::all(scale), Lanes::all(-8.0 * scale))
    }

    fn floats(&self, into: &mut [f32]) {
        (0..Self::SIZE).for_each(|at| into[at] = (nibble(&self.nibbles, at) - 8.0) * self.scale.to_f32());
    }
}

impl Weight for Q4_1 {
    const SIZE: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const Self, skip: usize) -> Lanes {
        // SAFETY: the caller's promise.
        let (block, whole) = unsafe { (&*from, nibbles((*from).nibbles.as_ptr(), skip)) };
        whole.multiply_add(Lanes::all(block.scale.to_f32()), Lanes::all(block.least.to_f32()))
    }

    fn floats(&self, into: &mut [f32]) {
        let (scale, least) = (self.scale.to_f32(), self.least.to_f32());
        (0..Self::SIZE).for_each(|at| into[at] = nibble(&self.nibbles, at) * scale + least);
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

        #[inline(always)]
        pub fn all(number: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(number) })
        }

        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_signed_bytes(from: *const u8) -> Self {
            unsafe { Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))) }
        }

        /// The lower four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_low_nibbles(from: *const u8) -> Self {
            unsafe {
                let low = _mm_and_si128(_mm_loadu_si128(from.cast()), _mm_set1_epi8(15));
                Self(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(low)))
            }
        }

        /// The upper four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_high_nibbles(from: *const u8) -> Self {
            unsafe {
                let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
                Self(_mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(wide)))
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

        #[inline(always)]
        pub fn all(number: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(number) })
        }

        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_signed_bytes(from: *const u8) -> Self {
            unsafe { Self(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())))) }
        }

        /// The lower four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_low_nibbles(from: *const u8) -> Self {
            unsafe {
                let low = _mm_and_si128(_mm_loadl_epi64(from.cast()), _mm_set1_epi8(15));
                Self(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)))
            }
        }

        /// The upper four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_high_nibbles(from: *const u8) -> Self {
            unsafe {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
                Self(_mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(wide)))
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

        #[inline(always)]
        pub fn all(number: f32) -> Self {
            Self([number; LANES])
        }

        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_signed_bytes(from: *const u8) -> Self {
            Self(unsafe { *from.cast::<[i8; LANES]>() }.map(f32::from))
        }

        /// The lower four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_low_nibbles(from: *const u8) -> Self {
            Self(unsafe { *from.cast::<[u8; LANES]>() }.map(|byte| f32::from(byte & 15)))
        }

        /// The upper four bits of each byte.
        ///
        /// # Safety
        /// `LANES` bytes must lie at `from`.
        #[inline(always)]
        pub unsafe fn load_high_nibbles(from: *const u8) -> Self {
            Self(unsafe { *from.cast::<[u8; LANES]>() }.map(|byte| f32::from(byte >> 4)))
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
