//! The user's `-o name=value`. `engines/rust/engines.py` declares and checks them.

use crate::weights::Format;
use anyhow::Result;
use candle_core::quantized::GgmlDType;
use candle_core::utils::{cuda_is_available, metal_is_available};
use candle_core::{DType, Device, DeviceLocation};
use enginebench_protocol::{Failure, Load, ModelOnDisk, free_gpu_memory, free_memory, has_bfloat16};

pub struct Settings {
    pub device: Device,
    pub concurrency: usize,
    pub step_time: f64,
    pub context: Option<usize>,
    pub kv_tokens: Option<usize>,
    dtype: String,
}

impl Settings {
    pub fn from(load: &Load) -> Result<Self, Failure> {
        Ok(Self {
            device: device(&load.option::<String>("device")?.unwrap_or_else(|| "auto".into()))?,
            concurrency: load.option("concurrency")?.unwrap_or(1).max(1),
            step_time: load.option("step_time")?.unwrap_or(0.25),
            context: load.option("context")?,
            kv_tokens: load.option("kv_tokens")?,
            dtype: load.option("dtype")?.unwrap_or_else(|| "auto".into()),
        })
    }

    pub fn device_name(&self) -> String {
        match self.device.location() {
            DeviceLocation::Cpu => "cpu".into(),
            DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
            DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
        }
    }

    /// Bytes that the device has left; `None` where it does not say.
    pub fn free_memory(&self) -> Option<u64> {
        match self.device.location() {
            DeviceLocation::Cpu | DeviceLocation::Metal { .. } => free_memory(),
            DeviceLocation::Cuda { gpu_id } => free_gpu_memory(gpu_id),
        }
    }

    /// The same for every engine: `engines/machine/devices.py`.
    fn automatic_dtype(&self) -> DType {
        match self.device.location() {
            DeviceLocation::Cpu => DType::F32,
            DeviceLocation::Cuda { gpu_id } if has_bfloat16(gpu_id) => DType::BF16,
            DeviceLocation::Cuda { .. } | DeviceLocation::Metal { .. } => DType::F16,
        }
    }

    /// The number format of the weights; `None`: as in the model's GGUF file.
    pub fn format(&self, model: &ModelOnDisk) -> Result<Option<Format>, Failure> {
        Ok(Some(match self.dtype.as_str() {
            "auto" | "gguf" if model.gguf.is_some() => return Ok(None),
            "gguf" => {
                return Err(Failure::bad_request(format!(
                    "{} is not a GGUF file; give the path of one as the model, or another dtype.",
                    model.name
                )));
            }
            "auto" => Format::Float(self.automatic_dtype()),
            "bfloat16" => Format::Float(DType::BF16),
            "float32" => Format::Float(DType::F32),
            "float16" => Format::Float(DType::F16),
            "q8_0" => Format::Quantised(GgmlDType::Q8_0),
            "q4_0" => Format::Quantised(GgmlDType::Q4_0),
            other => return Err(Failure::bad_request(format!("option `dtype` cannot be `{other}`."))),
        }))
    }
}

fn device(wanted: &str) -> Result<Device, Failure> {
    let (kind, ordinal) = wanted.split_once(':').unwrap_or((wanted, "0"));
    let unknown = || Failure::bad_request(format!("there is no device `{wanted}`; use cpu, cuda, cuda:1 or metal."));
    let ordinal = ordinal.parse().map_err(|_| unknown())?;
    // Not `cuda_if_available`: that gives the CPU without an error, and Metal is then never tried.
    let device = match kind {
        "auto" if cuda_is_available() => Device::new_cuda(0),
        "auto" if metal_is_available() => Device::new_metal(0),
        "auto" | "cpu" => Ok(Device::Cpu),
        "cuda" => Device::new_cuda(ordinal),
        "metal" => Device::new_metal(ordinal),
        _ => return Err(unknown()),
    };
    device.map_err(|error| {
        eprintln!("{error}");
        Failure::unavailable(format!(
            "candle cannot use the device `{wanted}`: this program was built without it, or the machine has none."
        ))
    })
}
