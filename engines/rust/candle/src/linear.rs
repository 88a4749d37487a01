//! A matrix of weights, however it is kept, times the tokens of a step; and the small operations between the products.
//! On a CPU they run on our own kernels, elsewhere on candle's.

use crate::kernels;
use crate::quantised::{Blocks, on_cpu};
use anyhow::{Result, bail};
use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{CpuStorage, Device, Module, Storage, Tensor};
use candle_nn::ops::silu;
use std::sync::Arc;

#[derive(Clone)]
pub enum Weights {
    /// `[rows, width]`.
    Dense(Tensor),
    Quantised(QMatMul),
    QuantisedOnCpu(Arc<dyn Blocks>),
    /// Matrices that could not be joined because each is quantised in its own way; their outputs stand side by side.
    Several(Vec<Weights>),
}

impl Weights {
    pub fn quantised(tensor: QTensor) -> Result<Self> {
        if tensor.device().is_cpu() {
            return Ok(Self::QuantisedOnCpu(on_cpu(&tensor)?));
        }
        Ok(Self::Quantised(QMatMul::from_arc(Arc::new(tensor))?))
    }

    /// `inputs`: `[tokens, width]`; gives `[tokens, rows]`.
    pub fn apply(&self, inputs: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(weights) if weights.device().is_cpu() => dense_on_cpu(weights, inputs),
            Self::Dense(weights) => Ok(inputs.matmul(&weights.t()?)?),
            Self::Quantised(weights) => Ok(weights.forward(inputs)?),
            Self::QuantisedOnCpu(blocks) => {
                let shape = (inputs.dim(0)?, blocks.rows());
                on_floats(inputs, shape, |inputs, outputs| blocks.multiply(inputs, outputs))
            }
            Self::Several(parts) => {
                let outputs = parts.iter().map(|part| part.apply(inputs)).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::cat(&outputs, 1)?)
            }
        }
    }
}

/// Weights and, in some families, a bias for each row.
pub struct Linear {
    pub weights: Weights,
    pub bias: Option<Tensor>,
}

impl Linear {
    pub fn apply(&self, inputs: &Tensor) -> Result<Tensor> {
        let outputs = self.weights.apply(inputs)?;
        Ok(match &self.bias {
            Some(bias) => outputs.broadcast_add(bias)?,
            None => outputs,
        })
    }
}

fn dense_on_cpu(weights: &Tensor, inputs: &Tensor) -> Result<Tensor> {
    let (rows, width) = weights.dims2()?;
    let (storage, layout) = weights.storage_and_layout();
    let range = layout.start_offset()..layout.start_offset() + rows * width;
    let shape = (inputs.dim(0)?, rows);
    match &*storage {
        Storage::Cpu(CpuStorage::F32(all)) => {
            on_floats(inputs, shape, |inputs, outputs| kernels::multiply(&all[range], width, inputs, outputs))
        }
        Storage::Cpu(CpuStorage::BF16(all)) => {
            on_floats(inputs, shape, |inputs, outputs| kernels::multiply(&all[range], width, inputs, outputs))
        }
        _ => bail!("weights on a CPU are float32 or bfloat16"),
    }
}

/// Root mean square normalisation of `[tokens, width]`.
pub fn rms_norm(inputs: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    if !inputs.device().is_cpu() {
        return Ok(candle_nn::ops::rms_norm(inputs, weight, epsilon as f32)?);
    }
    on_floats(inputs, inputs.dims2()?, |inputs, outputs| {
        with_floats(weight, |weight| kernels::rms_norm(inputs, weight, epsilon as f32, outputs))
            .expect("a float32 norm");
    })
}

/// `silu(gate) * up` of `[tokens, gates | ups]`.
pub fn swiglu(gate_up: &Tensor) -> Result<Tensor> {
    let (tokens, width) = (gate_up.dim(0)?, gate_up.dim(1)? / 2);
    if !gate_up.device().is_cpu() {
        let (gate, up) = (gate_up.narrow(1, 0, width)?, gate_up.narrow(1, width, width)?);
        return Ok((silu(&gate.contiguous()?)? * up)?);
    }
    on_floats(gate_up, (tokens, width), |gate_up, outputs| kernels::swiglu(gate_up, width, outputs))
}

/// A new tensor on the CPU, made by `work` from the numbers of another.
pub fn on_floats(inputs: &Tensor, shape: (usize, usize), work: impl FnOnce(&[f32], &mut [f32])) -> Result<Tensor> {
    let mut outputs = vec![0f32; shape.0 * shape.1];
    with_floats(inputs, |inputs| work(inputs, &mut outputs))?;
    Ok(Tensor::from_vec(outputs, shape, &Device::Cpu)?)
}

/// The numbers of a tensor that lies in the CPU's memory in one piece.
fn with_floats<T>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(all)), Some((start, end))) => Ok(work(&all[start..end])),
        _ => bail!("expected float32 in one piece on the CPU"),
    }
}
