//! What `config.json` says of a decoder of the Llama family, for engines that have such a decoder of their own.

use crate::Failure;
use serde::Deserialize;
use std::f64::consts::PI;

#[derive(Clone, Debug, Deserialize)]
pub struct LlamaConfig {
    pub model_type: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: Option<usize>,
    pub head_dim: Option<usize>,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    #[serde(default)]
    pub tie_word_embeddings: bool,
    #[serde(default)]
    pub attention_bias: bool,
    #[serde(default)]
    pub mlp_bias: bool,
    pub hidden_act: Option<String>,
    pub partial_rotary_factor: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>, // the newer name of both
    pub sliding_window: Option<usize>,
    pub use_sliding_window: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rope {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

impl LlamaConfig {
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads)
    }

    /// Whether the projections of queries, keys and values have a bias.
    pub fn has_qkv_bias(&self) -> bool {
        self.model_type == "qwen2"
    }

    /// Radians per position for each pair of a head's values. Llama 3's scaling stretches the slow ones.
    pub fn inverse_frequencies(&self) -> Result<Vec<f64>, Failure> {
        let rope = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = rope.and_then(|rope| rope.rope_theta).or(self.rope_theta).unwrap_or(10_000.0);
        let size = self.head_dim();
        let plain = (0..size / 2).map(|at| theta.powf(-2.0 * at as f64 / size as f64));
        match rope.and_then(|rope| rope.rope_type.as_deref()).unwrap_or("default") {
            "default" => Ok(plain.collect()),
            "linear" => {
                let factor = rope.and_then(|rope| rope.factor).unwrap_or(1.0);
                Ok(plain.map(|one| one / factor).collect())
            }
            "llama3" => Ok(plain.map(|one| rope.map_or(one, |rope| rope.stretched(one))).collect()),
            other => Err(Failure::unavailable(format!(
                "this engine knows the rotary embeddings default, linear and llama3, not `{other}`."
            ))),
        }
    }
}

impl Rope {
    /// As Llama 3.1 does: waves longer than the old context become `factor` times longer, short ones stay, and between
    /// the two it goes smoothly from one to the other.
    fn stretched(&self, frequency: f64) -> f64 {
        let factor = self.factor.unwrap_or(8.0);
        let (low, high) = (self.low_freq_factor.unwrap_or(1.0), self.high_freq_factor.unwrap_or(4.0));
        let waves = self.original_max_position_embeddings.unwrap_or(8192.0) * frequency / (2.0 * PI);
        let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 - kept) * frequency / factor + kept * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#""hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
        "vocab_size":100,"max_position_embeddings":128,"rms_norm_eps":1e-5"#;

    fn config(more: &str) -> LlamaConfig {
        serde_json::from_str(&format!("{{{SMALL},{more}}}")).unwrap()
    }

    #[test]
    fn both_spellings_of_the_rotary_base_are_read() {
        let old = config(r#""model_type":"llama","rope_theta":100.0"#).inverse_frequencies().unwrap();
        let new = config(r#""model_type":"llama","rope_parameters":{"rope_theta":100.0,"rope_type":"default"}"#);
        assert_eq!(old, new.inverse_frequencies().unwrap());
        assert_eq!(old.len(), 8);
        assert_eq!(old[4], 0.1);
    }

    #[test]
    fn llama_3_stretches_slow_waves_and_leaves_fast_ones() {
        let rope = r#"{"rope_type":"llama3","rope_theta":500000.0,"factor":32.0,"low_freq_factor":1.0,
            "high_freq_factor":4.0,"original_max_position_embeddings":8192}"#;
        let plain = config(r#""model_type":"llama","rope_theta":500000.0"#).inverse_frequencies().unwrap();
        let stretched =
            config(&format!(r#""model_type":"llama","rope_parameters":{rope}"#)).inverse_frequencies().unwrap();
        assert_eq!(stretched[0], plain[0]);
        assert!((stretched[7] - plain[7] / 32.0).abs() < 1e-15);
    }
}
