//! Four plain numbers, which the compiler turns into a register on every machine that has one (Arm's among them).

use half::{bf16, f16};

pub const LANES: usize = 4;
/// Tokens in a tile at most.
pub const TOKENS: usize = 4;

// SAFETY: where an address is read or written, the caller answers for it.
#[derive(Clone, Copy)]
pub struct Lanes([f32; LANES]);

impl Lanes {
    #[inline(always)]
    pub fn all(number: f32) -> Self {
        Self([number; LANES])
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
    pub unsafe fn load_bf16(from: *const bf16) -> Self {
        Self(unsafe { from.cast::<[bf16; LANES]>().read_unaligned() }.map(bf16::to_f32))
    }

    /// # Safety
    /// `LANES` halves must lie at `from`.
    #[inline(always)]
    pub unsafe fn load_f16(from: *const f16) -> Self {
        Self(unsafe { from.cast::<[f16; LANES]>().read_unaligned() }.map(f16::to_f32))
    }

    /// # Safety
    /// There must be room for `LANES` floats.
    #[inline(always)]
    pub unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + other.0[at]))
    }

    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] * other.0[at]))
    }

    /// `self * other + sum`
    #[inline(always)]
    pub fn multiply_add(self, other: Self, sum: Self) -> Self {
        Self(std::array::from_fn(|at| crate::kernels::multiply_add(self.0[at], other.0[at], sum.0[at])))
    }
}

#[derive(Clone, Copy)]
pub struct Quads([u8; 4 * LANES]);

impl Quads {
    /// # Safety
    /// `4 * LANES` bytes must lie at `from`.
    #[inline(always)]
    pub unsafe fn load(from: *const u8) -> Self {
        Self(unsafe { from.cast::<[u8; 4 * LANES]>().read_unaligned() })
    }

    /// The lower four bits of each byte.
    #[inline(always)]
    pub fn low(self) -> Self {
        Self(self.0.map(|byte| byte & 15))
    }

    /// The upper four bits of each byte.
    #[inline(always)]
    pub fn high(self) -> Self {
        Self(self.0.map(|byte| byte >> 4))
    }
}

#[derive(Clone, Copy)]
pub struct Wholes([i32; LANES]);

impl Wholes {
    #[inline(always)]
    pub fn all(number: i32) -> Self {
        Self([number; LANES])
    }

    #[inline(always)]
    pub fn floats(self) -> Lanes {
        Lanes(self.0.map(|whole| whole as f32))
    }

    /// Each lane's four weights, 0 to 255, times the same four signed bytes, on top of what is there.
    #[inline(always)]
    pub fn dot(self, weights: Quads, four: i32) -> Self {
        let four = four.to_ne_bytes();
        Self(std::array::from_fn(|lane| {
            let products = (0..4).map(|at| i32::from(weights.0[4 * lane + at]) * i32::from(four[at] as i8));
            self.0[lane] + products.sum::<i32>()
        }))
    }
}
