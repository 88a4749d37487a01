//! Records what the program was built with.

use std::env;
use std::path::PathBuf;

fn main() {
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let after = lock.split("name = \"candle-core\"\nversion = \"").nth(1).unwrap_or("unknown\"");
    println!("cargo::rustc-env=CANDLE_VERSION={}", after.split('"').next().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=../Cargo.lock");

    let features = ["cuda", "cudnn", "flash-attn", "metal", "mkl", "accelerate"];
    let variable = |name: &str| format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"));
    let with = features.into_iter().filter(|name| env::var(variable(name)).is_ok());
    // The profile's own name, from target/PROFILE/build/PACKAGE/out: the variable PROFILE is that of the one it inherits.
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let profile = out.iter().rev().nth(3).unwrap_or_default().to_string_lossy().into_owned();
    let mut words = vec![env::var("TARGET").unwrap_or_default(), profile];
    words.extend(env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().split('\x1f').map(String::from));
    words.extend(with.map(String::from));
    words.retain(|word| !word.is_empty());
    println!("cargo::rustc-env=ENGINEBENCH_BUILD={}", words.join(" "));
}
