//! The user's `-o name=value`. Their names and help stand in `engines/candle.py`, which checks them first.

use crate::weights::{Kept, kind_name};
use anyhow::Result;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};
use enginebench_protocol::team;
use enginebench_protocol::{Failure, Load, ModelOnDisk};
use std::path::Path;

const SLOTS: usize = 32;
/// Tokens per step: on two cores a prompt of this length takes a third of a second, and nobody waits longer for a turn.
const STEP_TOKENS_ON_CPU: usize = 256;
const STEP_TOKENS_ON_DEVICE: usize = 2048;

pub struct Settings {
    pub device: Device,
    pub slots: usize,
    pub step_tokens: usize,
    pub context: Option<usize>,
    dtype: String,
}

impl Settings {
    pub fn from(load: &Load) -> Result<Self, Failure> {
        if let Some(threads) = load.option::<usize>("threads")? {
            team::set_threads(threads);
        }
        let device = device(&load.option::<String>("device")?.unwrap_or_else(|| "auto".into()))?;
        let step_tokens = if device.is_cpu() { STEP_TOKENS_ON_CPU } else { STEP_TOKENS_ON_DEVICE };
        Ok(Self {
            slots: load.option("concurrency")?.unwrap_or(SLOTS).max(1),
            step_tokens: load.option("step_tokens")?.unwrap_or(step_tokens).max(1),
            context: load.option("context")?,
            dtype: load.option("dtype")?.unwrap_or_else(|| "auto".into()),
            device,
        })
    }

    pub fn device_name(&self) -> String {
        match self.device.location() {
            candle_core::DeviceLocation::Cpu => "cpu".into(),
            candle_core::DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
            candle_core::DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
        }
    }

    /// How to keep this model's matrices.
    pub fn kept(&self, model: &ModelOnDisk) -> Result<Kept, Failure> {
        let only_gguf = model.gguf.is_some() && !has_safetensors(&model.folder) && !model.random_weights;
        Ok(match self.dtype.as_str() {
            "auto" if only_gguf => Kept::AsInFile,
            "auto" if self.device.is_cpu() => Kept::Dense(DType::F32),
            "auto" | "bfloat16" => Kept::Dense(DType::BF16),
            "float32" => Kept::Dense(DType::F32),
            "float16" if self.device.is_cpu() => {
                return Err(Failure::bad_request(
                    "candle computes float16 on a GPU only; say dtype=bfloat16 on a CPU.",
                ));
            }
            "float16" => Kept::Dense(DType::F16),
            "gguf" if model.gguf.is_none() => {
                return Err(Failure::bad_request(format!("{} has no GGUF file; choose another dtype.", model.name)));
            }
            "gguf" => Kept::AsInFile,
            "q8_0" => Kept::Quantised(GgmlDType::Q8_0),
            "q4_0" => Kept::Quantised(GgmlDType::Q4_0),
            "q4_1" => Kept::Quantised(GgmlDType::Q4_1),
            "q4_k" => Kept::Quantised(GgmlDType::Q4K),
            other => return Err(Failure::bad_request(format!("option `dtype` cannot be `{other}`."))),
        })
    }
}

pub fn has_safetensors(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|kind| kind == "safetensors"))
}

pub fn name_of(kept: Kept) -> String {
    match kept {
        Kept::Dense(DType::F32) => "float32".into(),
        Kept::Dense(DType::BF16) => "bfloat16".into(),
        Kept::Dense(DType::F16) => "float16".into(),
        Kept::Dense(other) => format!("{other:?}").to_lowercase(),
        Kept::Quantised(kind) => kind_name(kind),
        Kept::AsInFile => "gguf".into(),
    }
}

fn device(wanted: &str) -> Result<Device, Failure> {
    let (kind, ordinal) = wanted.split_once(':').unwrap_or((wanted, "0"));
    let ordinal = ordinal.parse().map_err(|_| Failure::bad_request(format!("there is no device `{wanted}`.")))?;
    let device = match kind {
        "auto" => Device::cuda_if_available(0).or_else(|_| Device::metal_if_available(0)),
        "cpu" => Ok(Device::Cpu),
        "cuda" => Device::new_cuda(ordinal),
        "metal" => Device::new_metal(ordinal),
        _ => return Err(Failure::bad_request(format!("there is no device `{wanted}`; say cpu, cuda:0 or metal."))),
    };
    device.map_err(|error| {
        eprintln!("{error}");
        Failure::unavailable(format!(
            "candle cannot use the device `{wanted}`: this program was built without it, or the machine has none."
        ))
    })
}
