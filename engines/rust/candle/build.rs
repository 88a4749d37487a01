//! Records what the program was built with.

use std::env;

fn main() {
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let after = lock.split("name = \"candle-core\"\nversion = \"").nth(1).unwrap_or("unknown\"");
    println!("cargo::rustc-env=CANDLE_VERSION={}", after.split('"').next().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=../Cargo.lock");

    let features = ["cuda", "cudnn", "flash-attn", "metal", "mkl", "accelerate"];
    let variable = |name: &str| format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"));
    let with = features.into_iter().filter(|name| env::var(variable(name)).is_ok());
    let mut words = vec![env::var("TARGET").unwrap_or_default(), env::var("PROFILE").unwrap_or_default()];
    words.extend(env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().split('\x1f').map(String::from));
    words.extend(with.map(String::from));
    words.retain(|word| !word.is_empty());
    println!("cargo::rustc-env=ENGINEBENCH_BUILD={}", words.join(" "));
}
