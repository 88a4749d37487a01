//! Weights as a `VarBuilder`: from safetensors, or random; and matrices in the number format that was asked for.

use anyhow::{Context, Result};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Shape, Tensor};
use candle_nn::VarBuilder;
use candle_nn::var_builder::SimpleBackend;
use enginebench_protocol::{Failure, ModelOnDisk};
use std::path::PathBuf;
use std::sync::Arc;

const RANDOM_SPREAD: f32 = 0.02; // standard deviation, as most models are initialised

/// How matrices are stored. Norms, biases and the embedding table stay floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Float(DType),
    Quantised(GgmlDType),
}

impl Format {
    /// The number format of everything that is not a quantised matrix.
    pub fn float(self) -> DType {
        match self {
            Self::Float(dtype) => dtype,
            Self::Quantised(_) => DType::F32,
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Float(DType::F32) => "float32".into(),
            Self::Float(DType::BF16) => "bfloat16".into(),
            Self::Float(DType::F16) => "float16".into(),
            Self::Float(other) => other.as_str().into(),
            Self::Quantised(kind) => kind_name(kind),
        }
    }
}

/// As users write it: "q8_0", or "q4_k" of a GGUF file.
pub fn kind_name(kind: GgmlDType) -> String {
    format!("{kind:?}").to_lowercase().replace('k', "_k")
}

pub fn open(model: &ModelOnDisk, dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
    if model.random_weights {
        return Ok(VarBuilder::from_backend(Box::new(Random), dtype, device.clone()));
    }
    let entries = std::fs::read_dir(&model.folder).context("the model's folder")?.flatten().map(|entry| entry.path());
    let files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "safetensors")).collect();
    // SAFETY: the files are only read, and a model's files do not change while it is served.
    Ok(unsafe { VarBuilder::from_mmaped_safetensors(&files, dtype, device)? })
}

/// Weights from a fixed seed: norms are ones, biases zeros, everything else uniform around zero.
struct Random;

impl SimpleBackend for Random {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: candle_nn::Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        if name.contains("norm") {
            return Tensor::ones(shape, dtype, device);
        }
        if name.ends_with("bias") {
            return Tensor::zeros(shape, dtype, device);
        }
        let seed = name.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = fastrand::Rng::with_seed(seed);
        let reach = RANDOM_SPREAD * 3f32.sqrt(); // uniform numbers up to this have that standard deviation
        let numbers: Vec<f32> = (0..shape.elem_count()).map(|_| (random.f32() * 2.0 - 1.0) * reach).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("{name} has no known shape")
    }

    fn contains_tensor(&self, name: &str) -> bool {
        name.ends_with("norm.weight") && !name.contains("self_attn") // not `lm_head`: it is tied to the embeddings
    }
}

/// `x Wᵀ + b`
pub struct Linear {
    weights: QMatMul,
    bias: Option<Tensor>,
}

impl Linear {
    /// `rows`: `[outputs, inputs]`. Raises a `Failure` where the width does not fit the quantised blocks.
    pub fn new(rows: Tensor, bias: Option<Tensor>, format: Format) -> Result<Self> {
        let weights = match format {
            Format::Float(_) => QMatMul::Tensor(rows),
            Format::Quantised(kind) => {
                let (width, block) = (rows.dim(1)?, kind.block_size());
                if width % block != 0 {
                    let kind = kind_name(kind);
                    anyhow::bail!(Failure::bad_request(format!(
                        "{kind} needs matrices with columns in blocks of {block}, and this model has {width}; \
                         use dtype=float32."
                    )));
                }
                QMatMul::from_arc(Arc::new(quantised(&rows.to_device(&Device::Cpu)?, kind, rows.device())?))?
            }
        };
        Ok(Self { weights, bias })
    }
}

/// On `device`, from `rows` on the CPU, where Candle quantises. Left there, a product with anything on a GPU aborts.
fn quantised(rows: &Tensor, kind: GgmlDType, device: &Device) -> candle_core::Result<QTensor> {
    QTensor::quantize_onto(rows, kind, device)
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let product = self.weights.forward(x)?;
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_weights_are_where_they_are_multiplied() {
        let rows = Tensor::randn(0f32, 1.0, (4, 64), &Device::Cpu).unwrap();
        for bias in [None, Some(Tensor::zeros(4, DType::F32, &Device::Cpu).unwrap())] {
            let linear = Linear::new(rows.clone(), bias, Format::Quantised(GgmlDType::Q8_0)).unwrap();
            let QMatMul::QTensor(weights) = &linear.weights else { panic!("they are not quantised") };
            assert!(weights.device().same_device(rows.device()));
        }
    }

    /// A build without CUDA has a stand-in for its device, which says so as soon as memory is asked of it.
    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_gpu_is_asked_for_memory_of_weights_on_it() {
        let rows = Tensor::randn(0f32, 1.0, (4, 64), &Device::Cpu).unwrap();
        let gpu = Device::Cuda(candle_core::CudaDevice);
        let error = quantised(&rows, GgmlDType::Q8_0, &gpu).unwrap_err();
        assert!(matches!(error, candle_core::Error::NotCompiledWithCudaSupport), "{error}");
    }
}
