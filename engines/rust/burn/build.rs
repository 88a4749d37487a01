//! Tells the program what it was built with.

use std::env;
use std::path::PathBuf;

fn main() {
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let after = lock.split("name = \"burn\"\nversion = \"").nth(1).unwrap_or("unknown\"");
    println!("cargo::rustc-env=BURN_VERSION={}", after.split('"').next().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=../Cargo.lock");

    let features = ["FLEX", "CPU", "CUDA", "ROCM", "WGPU", "METAL"];
    let with = features.iter().filter(|name| env::var(format!("CARGO_FEATURE_{name}")).is_ok());
    // The profile's own name, from target/PROFILE/build/PACKAGE/out: the variable PROFILE is that of the one it inherits.
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let profile = out.iter().rev().nth(3).unwrap_or_default().to_string_lossy().into_owned();
    let mut words = vec![env::var("TARGET").unwrap_or_default(), profile];
    words.extend(env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().split('\x1f').map(String::from));
    words.extend(with.map(|name| name.to_lowercase()));
    words.retain(|word| !word.is_empty());
    println!("cargo::rustc-env=ENGINEBENCH_BUILD={}", words.join(" "));
}
