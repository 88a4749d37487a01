//! Memory of this process, and what the machine has left.

use std::fs::read_to_string;

/// Resident memory of this process; `None` where the system does not report it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    // SAFETY: no argument can be invalid.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(not(unix))]
fn page_bytes() -> u64 {
    4096
}

/// Bytes that may still be allocated: what the machine has, or the control group's limit leaves, if that is less.
/// `None` where the system does not report it.
pub fn free_memory() -> Option<u64> {
    let number = |text: &str| text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let free = 1024 * number(meminfo.lines().find(|line| line.starts_with("MemAvailable"))?)?;
    let group = |name: &str| number(&read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?);
    let left = group("max").zip(group("current")).map(|(limit, used)| limit.saturating_sub(used));
    Some(left.map_or(free, |left| left.min(free)))
}
