//! `config.json`, checked for what this decoder can do.

use enginebench_protocol::Failure;
pub use enginebench_protocol::LlamaConfig as Config;
use std::path::Path;

pub fn read(folder: &Path) -> Result<Config, Failure> {
    let config = std::fs::read(folder.join("config.json"))
        .map_err(|_| Failure::unavailable("the model has no config.json that can be read."))
        .and_then(|bytes| {
            let kind: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            serde_json::from_slice::<Config>(&bytes).map_err(|error| {
                eprintln!("config.json: {error}");
                unknown(kind["model_type"].as_str().unwrap_or("model of no named type"))
            })
        })?;
    check(&config)?;
    Ok(config)
}

fn check(config: &Config) -> Result<(), Failure> {
    if !matches!(config.model_type.as_str(), "llama" | "mistral" | "qwen2") {
        return Err(unknown(&config.model_type));
    }
    let windowed = config.sliding_window.is_some_and(|window| window < config.max_position_embeddings);
    if windowed && config.use_sliding_window != Some(false) {
        return Err(Failure::unavailable("this engine has no sliding-window attention; use another engine."));
    }
    let activation = config.hidden_act.as_deref().unwrap_or("silu");
    let ignored = [
        (config.attention_bias && config.model_type != "qwen2", "`attention_bias`".to_owned()),
        (config.mlp_bias, "`mlp_bias`".to_owned()),
        (activation != "silu", format!("the activation {activation}")),
        (config.partial_rotary_factor.is_some_and(|part| part != 1.0), "`partial_rotary_factor`".to_owned()),
    ];
    if let Some((_, what)) = ignored.into_iter().find(|(has, _)| *has) {
        return Err(Failure::unavailable(format!("this engine does not support {what}; use another engine.")));
    }
    config.inverse_frequencies().map(|_| ())
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
    fn what_it_cannot_run_is_refused() {
        assert!(check(&config(r#""model_type":"gemma2""#)).unwrap_err().message.contains("gemma2"));
        let windowed = check(&config(r#""model_type":"mistral","sliding_window":64"#)).unwrap_err();
        assert!(windowed.message.contains("sliding-window"));
        assert!(check(&config(r#""model_type":"qwen2","sliding_window":64,"use_sliding_window":false"#)).is_ok());
        let yarn = check(&config(r#""model_type":"llama","rope_scaling":{"type":"yarn","factor":4.0}"#)).unwrap_err();
        assert!(yarn.message.contains("`yarn`"));
    }
}
