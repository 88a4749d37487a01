//! A matrix of weights, however it is kept, times the tokens of a step; and the small operations between the products.
//! On a CPU they run on our own kernels, elsewhere on candle's.

use crate::kernels;
use crate::matrix::Matrix;
use crate::quantised::on_cpu;
use anyhow::{Result, bail};
use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{CpuStorage, DType, Device, Module, Storage, Tensor};
use candle_nn::ops::silu;
use std::sync::Arc;

#[derive(Clone)]
pub enum Weights {
    OnCpu(Arc<dyn Matrix>),
    /// `[rows, width]`, for candle's own product.
    Dense(Tensor),
    Quantised(QMatMul),
    /// Matrices that could not be joined because each is quantised in its own way; their outputs stand side by side.
    Several(Vec<Weights>),
}

impl Weights {
    pub fn quantised(tensor: QTensor) -> Result<Self> {
        if tensor.device().is_cpu() {
            return Ok(Self::OnCpu(on_cpu(&tensor)?));
        }
        Ok(Self::Quantised(QMatMul::from_arc(Arc::new(tensor))?))
    }

    /// `inputs`: `[tokens, width]`; gives `[tokens, rows]`.
    pub fn apply(&self, inputs: &Tensor) -> Result<Tensor> {
        match self {
            Self::OnCpu(weights) => {
                let shape = (inputs.dim(0)?, weights.rows());
                on_floats(inputs, shape, |inputs, outputs| weights.multiply(inputs, outputs))
            }
            Self::Dense(weights) => Ok(inputs.matmul(&weights.t()?)?),
            Self::Quantised(weights) => Ok(weights.forward(inputs)?),
            Self::Several(parts) => {
                let outputs = parts.iter().map(|part| part.apply(inputs)).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::cat(&outputs, 1)?)
            }
        }
    }

    /// The same, as plain floats.
    pub fn apply_into(&self, inputs: &Tensor, outputs: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::OnCpu(weights) => {
                outputs.resize(inputs.dim(0)? * weights.rows(), 0.0);
                with_floats(inputs, |inputs| weights.multiply(inputs, outputs))?;
            }
            other => *outputs = other.apply(inputs)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?,
        }
        Ok(())
    }

    /// The rows of these numbers: `[rows, width]`.
    pub fn look_up(&self, rows: Vec<u32>, device: &Device) -> Result<Tensor> {
        Ok(match self {
            Self::OnCpu(weights) => {
                let count = rows.len();
                let numbers = rows.iter().flat_map(|&row| weights.row(row as usize)).collect();
                Tensor::from_vec(numbers, (count, weights.width()), device)?
            }
            Self::Dense(weights) => weights.index_select(&Tensor::new(rows, device)?, 0)?,
            Self::Quantised(QMatMul::QTensor(weights)) => weights.embedding(&Tensor::new(rows, device)?)?,
            Self::Quantised(QMatMul::Tensor(weights) | QMatMul::TensorF16(weights)) => {
                weights.index_select(&Tensor::new(rows, device)?, 0)?
            }
            Self::Several(_) => bail!("rows of matrices side by side have no order"),
        })
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
