//! What shape a model has, from its `config.json` or from the metadata of a GGUF file.

use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file::{Content, Value};
use enginebench_protocol::Failure;
use serde_json::Value as Json;
use std::path::Path;

/// Families whose decoder this is: they differ in shapes and in who has biases.
const FAMILIES: [&str; 5] = ["llama", "mistral", "phi3", "qwen2", "qwen3"];

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_width: usize,
    pub vocabulary: usize,
    pub inner: usize,
    pub norm_epsilon: f64,
    pub context_length: usize,
    pub rope: Rope,
}

/// Rotary positions (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: Scaling,
}

/// How positions are stretched for longer contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    None,
    Linear(f64),
    /// By a factor for each pair, as GGUF writes down what the next one comes to.
    Each(Vec<f32>),
    /// Llama 3.1: slow waves are stretched, fast ones kept, those between blended.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
}

impl Rope {
    /// Turns per position, in radians, of each of the `width / 2` pairs.
    pub fn frequencies(&self, width: usize) -> Vec<f64> {
        let plain = (0..width / 2).map(|pair| self.theta.powf(-2.0 * pair as f64 / width as f64));
        plain.enumerate().map(|(pair, frequency)| self.scaled(pair, frequency)).collect()
    }

    fn scaled(&self, pair: usize, frequency: f64) -> f64 {
        match &self.scaling {
            Scaling::None => frequency,
            Scaling::Linear(factor) => frequency / factor,
            Scaling::Each(factors) => frequency / factors.get(pair).copied().map_or(1.0, f64::from),
            Scaling::Llama3 { factor, low, high, original } => {
                let waves = original * frequency / std::f64::consts::TAU;
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
        }
    }
}

impl Config {
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let text = std::fs::read(folder.join("config.json")).context("config.json")?;
        Self::from_json(&serde_json::from_slice(&text).context("config.json")?)
    }

    pub fn from_json(config: &Json) -> Result<Self> {
        let family = config["model_type"].as_str().unwrap_or("unknown");
        check_family(family)?;
        let number = |key: &str| config[key].as_u64().map(|value| value as usize);
        let needed = |key: &str| number(key).with_context(|| format!("config.json has no `{key}`"));
        let (hidden, heads) = (needed("hidden_size")?, needed("num_attention_heads")?);
        // A model trained on a sliding window sees no further; so far this decoder sees everything, and stops there.
        let window = match family {
            "qwen2" | "qwen3" if config["use_sliding_window"] != Json::Bool(true) => None,
            _ => number("sliding_window"),
        };
        let longest = needed("max_position_embeddings")?;
        Ok(Self {
            hidden,
            layers: needed("num_hidden_layers")?,
            heads,
            kv_heads: number("num_key_value_heads").unwrap_or(heads),
            head_width: number("head_dim").unwrap_or(hidden / heads),
            vocabulary: needed("vocab_size")?,
            inner: needed("intermediate_size")?,
            norm_epsilon: config["rms_norm_eps"].as_f64().unwrap_or(1e-6),
            context_length: window.map_or(longest, |window| window.min(longest)),
            rope: rope_from_json(config)?,
        })
    }

    pub fn from_gguf(content: &Content) -> Result<Self> {
        let family = content.metadata.get("general.architecture").and_then(|value| value.to_string().ok());
        let family = family.context("the GGUF file does not say which architecture it is")?.clone();
        check_family(&family)?;
        let value = |key: &str| content.metadata.get(&format!("{family}.{key}"));
        let number = |key: &str| value(key).and_then(|value| value.to_u32().ok()).map(|value| value as usize);
        let decimal = |key: &str| value(key).and_then(|value| value.to_f32().ok()).map(f64::from);
        let needed = |key: &str| number(key).with_context(|| format!("the GGUF file has no `{family}.{key}`"));
        let (hidden, heads) = (needed("embedding_length")?, needed("attention.head_count")?);
        let factor = decimal("rope.scaling.factor").filter(|_| {
            value("rope.scaling.type").is_some_and(|kind| matches!(kind, Value::String(name) if name == "linear"))
        });
        let head_width = number("attention.key_length").unwrap_or(hidden / heads);
        check_turned(number("rope.dimension_count").unwrap_or(head_width) as f64 / head_width as f64)?;
        if content.tensor_infos.keys().any(|name| name.starts_with("rope_factors_")) {
            bail!(Failure::unavailable("candle does not know the rope scaling `longrope` here."));
        }
        let embeddings = content.tensor_infos.get("token_embd.weight").context("the GGUF file has no embeddings")?;
        Ok(Self {
            hidden,
            layers: needed("block_count")?,
            heads,
            kv_heads: number("attention.head_count_kv").unwrap_or(heads),
            head_width,
            vocabulary: embeddings.shape.dims()[0],
            inner: needed("feed_forward_length")?,
            norm_epsilon: decimal("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
            context_length: needed("context_length")?,
            rope: Rope {
                theta: decimal("rope.freq_base").unwrap_or(10_000.0),
                scaling: factor.map_or(Scaling::None, Scaling::Linear),
            },
        })
    }
}

fn check_family(family: &str) -> Result<()> {
    if FAMILIES.contains(&family) {
        return Ok(());
    }
    let known = FAMILIES.join(", ");
    bail!(Failure::unavailable(format!("candle knows the families {known} here, and this model is `{family}`.")))
}

/// Some models turn only a part of each head, which this decoder does not.
fn check_turned(part: f64) -> Result<()> {
    if part == 1.0 {
        return Ok(());
    }
    bail!(Failure::unavailable("candle turns whole heads here, and this model has rotary positions in a part of each."))
}

/// Older configurations keep these beside everything else, newer ones under `rope_parameters`.
fn rope_from_json(config: &Json) -> Result<Rope> {
    let newer = &config["rope_parameters"];
    let scaling = if newer.is_object() { newer } else { &config["rope_scaling"] };
    let part = newer["partial_rotary_factor"].as_f64().or_else(|| config["partial_rotary_factor"].as_f64());
    check_turned(part.unwrap_or(1.0))?;
    let theta = newer["rope_theta"].as_f64().or_else(|| config["rope_theta"].as_f64()).unwrap_or(10_000.0);
    let kind = scaling["rope_type"].as_str().or_else(|| scaling["type"].as_str()).unwrap_or("default");
    let needed = |key: &str| scaling[key].as_f64().with_context(|| format!("rope scaling `{kind}` has no `{key}`"));
    let scaling = match kind {
        "default" => Scaling::None,
        "linear" => Scaling::Linear(needed("factor")?),
        "llama3" => Scaling::Llama3 {
            factor: needed("factor")?,
            low: needed("low_freq_factor")?,
            high: needed("high_freq_factor")?,
            original: needed("original_max_position_embeddings")?,
        },
        other => bail!(Failure::unavailable(format!("candle does not know the rope scaling `{other}` here."))),
    };
    Ok(Rope { theta, scaling })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn llama() -> Json {
        json!({"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
            "num_key_value_heads": 3, "vocab_size": 49152, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "rope_theta": 1e5})
    }

    #[test]
    fn both_spellings_of_the_rope_are_read() {
        let older = Config::from_json(&llama()).unwrap();
        let mut newer = llama();
        newer.as_object_mut().unwrap().remove("rope_theta");
        newer["rope_parameters"] = json!({"rope_theta": 1e5, "rope_type": "default"});
        assert_eq!(Config::from_json(&newer).unwrap(), older);
        assert_eq!((older.head_width, older.rope.theta), (64, 1e5));
    }

    #[test]
    fn a_sliding_window_bounds_the_context_where_it_is_used() {
        let mut config = llama();
        config["model_type"] = "mistral".into();
        config["sliding_window"] = 4096.into();
        assert_eq!(Config::from_json(&config).unwrap().context_length, 4096);
        config["model_type"] = "qwen2".into();
        config["use_sliding_window"] = false.into();
        assert_eq!(Config::from_json(&config).unwrap().context_length, 8192);
    }

    #[test]
    fn a_stranger_is_refused_with_the_families_known() {
        let error = Config::from_json(&json!({"model_type": "mamba"})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "candle knows the families llama, mistral, phi3, qwen2, qwen3 here, and this model is `mamba`."
        );
    }

    #[test]
    fn slow_waves_are_stretched_and_fast_ones_kept() {
        let scaling = Scaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original: 8192.0 };
        let rope = Rope { theta: 5e5, scaling };
        let plain = Rope { theta: 5e5, scaling: Scaling::None }.frequencies(64);
        let scaled = rope.frequencies(64);
        assert_eq!(scaled[0], plain[0]);
        assert!((scaled[31] - plain[31] / 32.0).abs() < 1e-15);
    }
}
