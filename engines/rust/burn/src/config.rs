//! What `config.json` says of a model of the Llama family, checked for what this decoder can do.

use enginebench_protocol::Failure;
use serde::Deserialize;
use std::f64::consts::PI;
use std::path::Path;

#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    pub model_type: String,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub rms_norm_eps: f64,
    #[serde(default)]
    pub tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    hidden_act: Option<String>,
    partial_rotary_factor: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>, // the newer name of both
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
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

impl Config {
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let config = std::fs::read(folder.join("config.json"))
            .map_err(|_| Failure::unavailable("the model has no config.json that can be read."))
            .and_then(|bytes| {
                let kind: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
                serde_json::from_slice::<Self>(&bytes).map_err(|error| {
                    eprintln!("config.json: {error}");
                    unknown(kind["model_type"].as_str().unwrap_or("model of no named type"))
                })
            })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), Failure> {
        if !matches!(self.model_type.as_str(), "llama" | "mistral" | "qwen2") {
            return Err(unknown(&self.model_type));
        }
        let windowed = self.sliding_window.is_some_and(|window| window < self.max_position_embeddings);
        if windowed && self.use_sliding_window != Some(false) {
            return Err(Failure::unavailable("this engine has no sliding-window attention; use another engine."));
        }
        let activation = self.hidden_act.as_deref().unwrap_or("silu");
        let ignored = [
            (self.attention_bias && self.model_type != "qwen2", "`attention_bias`".to_owned()),
            (self.mlp_bias, "`mlp_bias`".to_owned()),
            (activation != "silu", format!("the activation {activation}")),
            (self.partial_rotary_factor.is_some_and(|part| part != 1.0), "`partial_rotary_factor`".to_owned()),
        ];
        if let Some((_, what)) = ignored.into_iter().find(|(has, _)| *has) {
            return Err(Failure::unavailable(format!("this engine does not support {what}; use another engine.")));
        }
        self.inverse_frequencies().map(|_| ())
    }

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

fn unknown(kind: &str) -> Failure {
    Failure::unavailable(format!("this engine runs the families llama, mistral and qwen2; this model is a {kind}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#""hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
        "vocab_size":100,"max_position_embeddings":128,"rms_norm_eps":1e-5"#;

    fn config(more: &str) -> Config {
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

    #[test]
    fn what_it_cannot_run_is_refused() {
        assert!(config(r#""model_type":"gemma2""#).check().unwrap_err().message.contains("gemma2"));
        let windowed = config(r#""model_type":"mistral","sliding_window":64"#).check().unwrap_err();
        assert!(windowed.message.contains("sliding-window"));
        assert!(config(r#""model_type":"qwen2","sliding_window":64,"use_sliding_window":false"#).check().is_ok());
        let yarn = config(r#""model_type":"llama","rope_scaling":{"type":"yarn","factor":4.0}"#).check().unwrap_err();
        assert!(yarn.message.contains("`yarn`"));
    }
}
