//! Where to compute, and in which numbers.

use burn::prelude::*;
use burn::tensor::DType;
use enginebench_protocol::Failure;

/// The devices that were built in, the best first.
const BUILT: &[&str] = &[
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "rocm")]
    "rocm",
    #[cfg(feature = "metal")]
    "metal",
    #[cfg(all(feature = "wgpu", not(feature = "metal")))]
    "wgpu",
    #[cfg(feature = "flex")]
    "cpu",
    #[cfg(feature = "cpu")]
    "cpu-cubecl",
];

/// The device of that name, or the best there is. Gives the name too.
pub fn choose(wanted: Option<&str>) -> Result<(Device, String), Failure> {
    let name = match wanted {
        None | Some("auto") => BUILT[0],
        Some(name) => name,
    };
    let device = match name {
        #[cfg(feature = "cuda")]
        "cuda" => Device::cuda(0),
        #[cfg(feature = "rocm")]
        "rocm" => Device::rocm(0),
        #[cfg(feature = "metal")]
        "metal" => Device::metal(Default::default()),
        #[cfg(all(feature = "wgpu", not(feature = "metal")))]
        "wgpu" => Device::wgpu(Default::default()),
        #[cfg(feature = "flex")]
        "cpu" => Device::flex(),
        #[cfg(feature = "cpu")]
        "cpu-cubecl" => Device::cpu(),
        other => {
            let built = BUILT.join(", ");
            return Err(Failure::unavailable(format!("there is no device `{other}` in this build; it has: {built}.")));
        }
    };
    Ok((device, name.to_owned()))
}

/// On a CPU 32-bit floats are the fastest that Burn has: the shorter ones are widened for every product.
pub fn dtype(wanted: Option<&str>, device: &Device, device_name: &str) -> Result<(DType, &'static str), Failure> {
    let (dtype, name) = match wanted {
        None | Some("auto") if device_name.starts_with("cpu") => (DType::F32, "float32"),
        None | Some("auto" | "float16") => (DType::F16, "float16"),
        Some("bfloat16") => (DType::BF16, "bfloat16"),
        Some("float32") => (DType::F32, "float32"),
        Some(other) => {
            let choices = "auto, float32, float16, bfloat16";
            return Err(Failure::bad_request(format!("option `dtype` is one of {choices}, not `{other}`.")));
        }
    };
    if !device.supports_dtype(dtype) {
        return Err(Failure::unavailable(format!("{device_name} has no {name} here; say dtype=float32.")));
    }
    Ok((dtype, name))
}
