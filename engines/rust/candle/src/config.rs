//! `config.json`, in one spelling, and a refusal of what would be ignored.

use anyhow::{Context, Result, bail};
use enginebench_protocol::Failure;
use serde_json::{Value, json};
use std::path::Path;

/// Families that candle-transformers runs here.
pub const FAMILIES: [&str; 9] =
    ["llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "mamba"];

/// The configuration, with `rope_theta` and `rope_scaling` at the top as older files have them.
///
/// Fails on settings that Candle's implementation of the family does not read: the answers would be wrong.
pub fn read(folder: &Path) -> Result<Value> {
    let text = std::fs::read(folder.join("config.json")).context("config.json")?;
    let mut config: Value = serde_json::from_slice(&text).context("config.json")?;
    normalise(&mut config);
    check(&config)?;
    Ok(config)
}

fn normalise(config: &mut Value) {
    if let Some(rope) = config["rope_parameters"].as_object().cloned() {
        for name in ["rope_theta", "partial_rotary_factor"] {
            if let Some(value) = rope.get(name) {
                config[name] = value.clone();
            }
        }
        config["rope_scaling"] = Value::Object(rope);
    }
    let kind = config["rope_scaling"]["rope_type"].as_str().or(config["rope_scaling"]["type"].as_str());
    if matches!(kind, None | Some("default")) {
        config["rope_scaling"] = Value::Null;
    }
    let uses_window = config["use_sliding_window"].as_bool();
    if config["model_type"].as_str().is_some_and(|family| family.starts_with("qwen")) {
        let longest = config["max_position_embeddings"].clone();
        config["use_sliding_window"] = json!(uses_window.unwrap_or(false));
        for name in ["sliding_window", "max_window_layers"] {
            if config[name].is_null() {
                config[name] = longest.clone();
            }
        }
    }
    if config["tie_word_embeddings"].is_null() {
        config["tie_word_embeddings"] = json!(config["model_type"].as_str().is_some_and(|f| f.starts_with("gemma")));
    }
}

fn check(config: &Value) -> Result<()> {
    let family = config["model_type"].as_str().unwrap_or("unnamed");
    let refuse = |what: String| bail!(Failure::unavailable(format!("candle {what}; use the transformers engine.")));
    if !FAMILIES.contains(&family) {
        return refuse(format!("runs the families {} here, and this model is a {family}", FAMILIES.join(", ")));
    }
    if family == "mamba" {
        return Ok(());
    }
    let scaling = config["rope_scaling"]["rope_type"].as_str().or(config["rope_scaling"]["type"].as_str());
    match (family, scaling) {
        (_, None) | ("llama", Some("llama3")) => {}
        (_, Some(kind)) => return refuse(format!("has no rotary scaling `{kind}` for {family}")),
    }
    let (hidden, heads) = (config["hidden_size"].as_u64(), config["num_attention_heads"].as_u64());
    let head = config["head_dim"].as_u64();
    if matches!(family, "llama" | "phi3" | "qwen2")
        && head.is_some_and(|head| Some(head) != hidden.zip(heads).map(|(a, b)| a / b))
    {
        return refuse(format!("runs {family} only with heads as wide as hidden_size / num_attention_heads"));
    }
    for name in ["attention_bias", "mlp_bias"] {
        if config[name] == json!(true) && !(name == "attention_bias" && matches!(family, "qwen3" | "gemma")) {
            return refuse(format!("does not read `{name}` of {family}"));
        }
    }
    let activation = config["hidden_act"].as_str().unwrap_or("silu");
    if matches!(family, "llama" | "qwen3") && activation != "silu" {
        return refuse(format!("runs {family} only with the activation silu, and this model has {activation}"));
    }
    let part = config["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    if part != 1.0 && family != "phi3" {
        return refuse(format!("does not read `partial_rotary_factor` of {family}"));
    }
    Ok(())
}

/// The longest sequence. Where Candle has no sliding window, a model that was trained with one ends there.
pub fn context_length(config: &Value) -> usize {
    let longest = config["max_position_embeddings"].as_u64().unwrap_or(2048);
    let window = match config["model_type"].as_str() {
        Some("mistral" | "phi3" | "gemma2") => config["sliding_window"].as_u64(),
        Some("qwen2" | "qwen3") if config["use_sliding_window"] == json!(true) => config["sliding_window"].as_u64(),
        _ => None,
    };
    window.map_or(longest, |window| window.min(longest)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama() -> Value {
        json!({"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
            "num_key_value_heads": 3, "vocab_size": 49152, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "rope_theta": 1e5})
    }

    fn with(key: &str, value: Value) -> Value {
        let mut config = llama();
        config[key] = value;
        normalise(&mut config);
        config
    }

    #[test]
    fn both_spellings_of_the_rotary_settings_are_read() {
        let newer = with("rope_parameters", json!({"rope_type": "default", "rope_theta": 7.0}));
        assert_eq!((newer["rope_theta"].as_f64(), newer["rope_scaling"].is_null()), (Some(7.0), true));
        let scaled = with("rope_parameters", json!({"rope_type": "llama3", "rope_theta": 7.0, "factor": 8.0}));
        assert_eq!(scaled["rope_scaling"]["factor"], json!(8.0));
        assert!(check(&scaled).is_ok());
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (key, value, reason) in [
            ("model_type", json!("falcon"), "this model is a falcon"),
            ("rope_scaling", json!({"rope_type": "yarn", "factor": 2.0}), "rotary scaling `yarn`"),
            ("attention_bias", json!(true), "`attention_bias`"),
            ("mlp_bias", json!(true), "`mlp_bias`"),
            ("hidden_act", json!("gelu"), "activation silu"),
            ("head_dim", json!(32), "heads as wide"),
            ("partial_rotary_factor", json!(0.5), "`partial_rotary_factor`"),
        ] {
            let error = check(&with(key, value)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(check(&with("head_dim", json!(64))).is_ok());
    }

    #[test]
    fn a_window_that_is_not_implemented_ends_the_context() {
        let mut config = with("sliding_window", json!(2047));
        assert_eq!(context_length(&config), 8192);
        config["model_type"] = json!("phi3");
        assert_eq!(context_length(&config), 2047);
    }
}
