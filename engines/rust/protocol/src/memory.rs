//! What the machine and its GPUs have left of their memory, and what of it the key/value caches may take.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

/// Of the memory that is free once the weights are loaded, the share that keys and values may take.
const CACHE_SHARE: f64 = 0.8;
/// And the share for the scores of attention; their bytes, where the free memory is unknown.
const SCORES_SHARE: f64 = 0.1;
const SCORES_BYTES: f64 = (256 << 20) as f64;
const SCORES_COPIES: usize = 3; // that are in memory at once: scaled, masked, and normalised

/// Bytes that may still be allocated: what the machine has, or the control group's limit leaves, if that is less.
/// `None` where the system does not report it.
pub fn free_memory() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let free = 1024 * number(meminfo.lines().find(|line| line.starts_with("MemAvailable"))?)?;
    Some(left_by_group(Path::new("/sys/fs/cgroup")).map_or(free, |left| left.min(free)))
}

/// What a control group's limit leaves; `None` where it has none. Cached files count as used there, and are dropped
/// where memory is needed: after loading, these are the weights.
fn left_by_group(group: &Path) -> Option<u64> {
    let read = |name: &str| read_to_string(group.join(name)).ok();
    let (most, used) = (number(&read("memory.max")?)?, number(&read("memory.current")?)?);
    let stat = read("memory.stat")?;
    let cached = stat.lines().filter(|line| line.starts_with("active_file ") || line.starts_with("inactive_file "));
    Some((most + cached.filter_map(number).sum::<u64>()).saturating_sub(used))
}

fn number(text: &str) -> Option<u64> {
    text.split_whitespace().find_map(|word| word.parse().ok())
}

/// Free memory of an NVIDIA GPU in bytes, as its driver reports it; `None` where it does not. `ordinal` is CUDA's.
pub fn free_gpu_memory(ordinal: usize) -> Option<u64> {
    mebibytes(&asked_of_driver("memory.free", ordinal)?)
}

/// Whether an NVIDIA GPU multiplies bfloat16: `dtype=auto` is float16 on older ones, for every engine. The same bound
/// as in `engines/machine/devices.py`.
pub fn has_bfloat16(ordinal: usize) -> bool {
    asked_of_driver("compute_cap", ordinal).is_none_or(|capability| is_new_enough(&capability))
}

fn is_new_enough(capability: &str) -> bool {
    capability.trim().split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major >= 8)
}

fn asked_of_driver(field: &str, ordinal: usize) -> Option<String> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let asked = [&format!("--query-gpu={field}"), "--format=csv,noheader,nounits", "--id"];
    let said = Command::new("nvidia-smi").args(asked).arg(gpu_name(ordinal, visible.as_deref())).output().ok()?;
    String::from_utf8(said.stdout).ok()
}

/// What the driver calls CUDA's GPU of this ordinal: CUDA counts only the visible ones.
fn gpu_name(ordinal: usize, visible: Option<&str>) -> String {
    let named = visible.and_then(|names| names.split(',').nth(ordinal)).map(str::trim).filter(|name| !name.is_empty());
    named.map_or_else(|| ordinal.to_string(), str::to_owned)
}

fn mebibytes(text: &str) -> Option<u64> {
    Some(text.trim().parse::<u64>().ok()? * 1024 * 1024)
}

/// Tokens whose keys and values fit into `free` bytes, at most `slots` sequences of `context_length`. Where the free
/// memory is unknown, one such sequence.
pub fn cache_tokens(free: Option<u64>, bytes_per_token: usize, slots: usize, context_length: usize) -> usize {
    let fit = free.map_or(context_length, |free| (free as f64 * CACHE_SHARE) as usize / bytes_per_token);
    fit.clamp(1, slots * context_length)
}

/// New tokens × known tokens of a piece of a prompt, so that its scores, of `bytes` each for every one of `heads`, fit
/// into `free` bytes. Below 2³¹ scores in all: Candle's softmax on CUDA counts them with 32 bits.
pub fn most_scores(free: Option<u64>, heads: usize, bytes: usize) -> usize {
    let room = free.map_or(SCORES_BYTES, |free| free as f64 * SCORES_SHARE);
    (room as usize / (SCORES_COPIES * bytes)).min(i32::MAX as usize) / heads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3.2 1B in 16 bits: 2 × 16 layers × 8 heads × 64 values × 2 bytes = 32 KiB a token.
    #[test]
    fn caches_take_a_share_of_the_free_memory() {
        const TOKEN: usize = 32 * 1024;
        let gigabytes = |number: u64| Some(number << 30);
        assert_eq!(cache_tokens(gigabytes(10), TOKEN, 32, 131_072), 262_144); // 8 GiB, not 128 GiB for 32 contexts
        assert_eq!(cache_tokens(gigabytes(10), TOKEN, 1, 131_072), 131_072); // never more than can be used
        assert_eq!(cache_tokens(gigabytes(1), TOKEN, 32, 131_072), 26_214);
        assert_eq!(cache_tokens(None, TOKEN, 32, 131_072), 131_072);
        assert_eq!(cache_tokens(Some(0), TOKEN, 32, 131_072), 1);
    }

    /// 32 heads: of 7 GB, 0.7 for three copies of 16-bit scores; of 130 GB, as many as 31 bits count.
    #[test]
    fn scores_fit_and_are_counted_with_32_bits() {
        assert_eq!(most_scores(Some(7_000_000_000), 32, 2), 3_645_833);
        assert_eq!(most_scores(Some(130_000_000_000), 32, 2), (i32::MAX / 32) as usize);
        assert_eq!(most_scores(None, 32, 4), (256 << 20) / 12 / 32);
    }

    #[test]
    fn cached_files_are_no_memory_that_a_group_has_used() {
        let group = std::env::temp_dir().join(format!("enginebench-group-{}", std::process::id()));
        std::fs::create_dir_all(&group).unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "6000\n");
        write("memory.stat", "anon 3900\nfile 2100\ninactive_file 500\nactive_file 1500\nworkingset_refault_file 7\n");
        assert_eq!(left_by_group(&group), None);
        write("memory.max", "8000\n");
        assert_eq!(left_by_group(&group), Some(4000));
        std::fs::remove_dir_all(&group).unwrap();
        assert_eq!(left_by_group(&group), None);
    }

    #[test]
    fn the_driver_is_asked_for_the_gpu_that_cuda_means() {
        assert_eq!(gpu_name(1, None), "1");
        assert_eq!(gpu_name(1, Some("3, 5")), "5");
        assert_eq!(gpu_name(0, Some("GPU-8d3f")), "GPU-8d3f");
        assert_eq!(gpu_name(0, Some("")), "0");
        assert_eq!(mebibytes("80995\n"), Some(80_995 << 20));
        assert_eq!(mebibytes("[N/A]\n"), None);
    }

    #[test]
    fn bfloat16_begins_with_compute_capability_8() {
        assert_eq!(["7.5\n", "8.0\n", "12.0\n", "[N/A]\n"].map(is_new_enough), [false, true, true, true]);
    }
}
