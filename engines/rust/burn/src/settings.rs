//! The options: where to compute, in which numbers, and how much at a time.

use burn::prelude::*;
use burn::tensor::DType;
use enginebench_protocol::{Failure, Load, free_gpu_memory, free_memory, has_bfloat16};

const SLOTS: usize = 32;

pub struct Settings {
    pub device: Device,
    pub device_name: String,
    pub dtype: DType,
    pub dtype_name: &'static str,
    pub slots: usize,
    pub context: Option<usize>,
    pub step_time: f64,
    pub kv_tokens: Option<usize>,
}

impl Settings {
    pub fn from(load: &Load) -> Result<Self, Failure> {
        let (device, device_name) = choose(load.option::<String>("device")?.as_deref())?;
        let wanted = load.option::<String>("dtype")?;
        let (dtype, dtype_name) = dtype(wanted.as_deref(), &device, &device_name)?;
        Ok(Self {
            slots: load.option("concurrency")?.unwrap_or(SLOTS).max(1),
            context: load.option("context")?,
            step_time: load.option("step_time")?.unwrap_or(0.25),
            kv_tokens: load.option("kv_tokens")?,
            device,
            device_name,
            dtype,
            dtype_name,
        })
    }

    pub fn on_cpu(&self) -> bool {
        self.device_name.starts_with("cpu")
    }

    /// Bytes that the device has left; `None` where it does not say.
    pub fn free_memory(&self) -> Option<u64> {
        match self.device_name.as_str() {
            "cpu" | "cpu-cubecl" => free_memory(),
            "cuda" => free_gpu_memory(0),
            _ => None,
        }
    }
}

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
fn choose(wanted: Option<&str>) -> Result<(Device, String), Failure> {
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
fn dtype(wanted: Option<&str>, device: &Device, device_name: &str) -> Result<(DType, &'static str), Failure> {
    let (dtype, name) = match wanted {
        None | Some("auto") if device_name.starts_with("cpu") => (DType::F32, "float32"),
        // The same for every engine: `engines/machine/devices.py`.
        None | Some("auto") if device_name == "rocm" || device_name == "cuda" && has_bfloat16(0) => {
            (DType::BF16, "bfloat16")
        }
        None | Some("auto" | "float16") => (DType::F16, "float16"),
        Some("bfloat16") => (DType::BF16, "bfloat16"),
        Some("float32") => (DType::F32, "float32"),
        Some(other) => {
            let choices = "auto, float32, float16, bfloat16";
            return Err(Failure::bad_request(format!("option `dtype` is one of {choices}, not `{other}`.")));
        }
    };
    if !device.supports_dtype(dtype) {
        return Err(Failure::unavailable(format!("{device_name} has no {name} here; use dtype=float32.")));
    }
    Ok((dtype, name))
}
