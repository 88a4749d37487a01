//! The weights: out of safetensors through burn-store, or drawn at random.

use anyhow::{Context, Result, bail};
use burn::prelude::*;
use burn::tensor::{DType, Distribution};
use burn_store::{ModuleStore, SafetensorsStore, bridge};
use std::collections::HashMap;
use std::path::Path;

const SPREAD: f64 = 0.02; // of weights drawn at random, as Llama's were before its training
const SEED: u64 = 0;

/// Where tensors come from by the names that Hugging Face gives them.
pub struct Weights {
    files: Vec<SafetensorsStore>,
    file_of: HashMap<String, usize>, // empty: everything is drawn
    pub device: Device,
    pub dtype: DType,
}

impl Weights {
    /// Every `*.safetensors` of a folder. Tensors are read when they are asked for.
    pub fn open(folder: &Path, device: &Device, dtype: DType) -> Result<Self> {
        let mut weights = Self::drawn(device, dtype);
        let entries = std::fs::read_dir(folder).context("the model's folder cannot be read")?;
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
        paths.sort();
        for path in paths {
            let mut file = SafetensorsStore::from_file(&path);
            let names = file.keys().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            let at = weights.files.len();
            weights.file_of.extend(names.into_iter().map(|name| (name, at)));
            weights.files.push(file);
        }
        if weights.file_of.is_empty() {
            bail!("there are no weights in *.safetensors");
        }
        Ok(weights)
    }

    /// Random ones, the same each time.
    pub fn drawn(device: &Device, dtype: DType) -> Self {
        device.seed(SEED);
        Self { files: Vec::new(), file_of: HashMap::new(), device: device.clone(), dtype }
    }

    pub fn has(&self, name: &str) -> bool {
        self.file_of.is_empty() || self.file_of.contains_key(name)
    }

    /// One row per output, as PyTorch keeps them.
    pub fn rows(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor<2>> {
        if self.file_of.is_empty() {
            return Ok(Tensor::random(shape, Distribution::Normal(0.0, SPREAD), (&self.device, self.dtype)));
        }
        self.read(name, shape)
    }

    /// One column per output, in memory too: the default layout of Burn's `Linear`. `shape` is that of the rows.
    pub fn columns(&mut self, name: &str, shape: [usize; 2]) -> Result<Tensor<2>> {
        let columns = self.rows(name, shape)?.transpose();
        Ok(Tensor::from_data(columns.into_data(), (&self.device, self.dtype)))
    }

    /// The factors of a norm.
    pub fn factors(&mut self, name: &str, size: usize) -> Result<Tensor<1>> {
        if self.file_of.is_empty() {
            return Ok(Tensor::ones([size], (&self.device, self.dtype)));
        }
        self.read(name, [size])
    }

    fn read<const D: usize>(&mut self, name: &str, shape: [usize; D]) -> Result<Tensor<D>> {
        let at = *self.file_of.get(name).with_context(|| format!("the model has no {name}"))?;
        let stored = self.files[at].get_tensor(name).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let stored = stored.with_context(|| format!("the model has no {name}"))?;
        let data = bridge::to_data(stored).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        if data.shape().as_slice() != shape {
            bail!("{name} has the shape {:?}, not {shape:?} as config.json says", data.shape().as_slice());
        }
        Ok(Tensor::from_data(data, (&self.device, self.dtype)))
    }
}
