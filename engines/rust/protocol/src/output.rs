//! Standard output, which belongs to the protocol alone. Lines gather here until `flush`, and leave in one write.
//!
//! A full pipe makes the write wait. That is the bound on what piles up; the parent never stops reading.

use crate::message::ToParent;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<Pending>>);

struct Pending {
    lines: Vec<u8>,
    to: Box<dyn Write + Send>,
}

impl Output {
    pub fn new(to: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Pending { lines: Vec::with_capacity(4096), to: Box::new(to) })))
    }

    pub fn say(&self, message: &ToParent) {
        let mut pending = self.0.lock().expect("nobody panics while writing");
        serde_json::to_writer(&mut pending.lines, message).expect("every message can be written");
        pending.lines.push(b'\n');
    }

    /// The line that is written once per token.
    pub fn say_chunk(&self, id: u64, text: &str, tokens: usize) {
        let mut pending = self.0.lock().expect("nobody panics while writing");
        let lines = &mut pending.lines;
        let _ = write!(lines, r#"{{"type":"chunk","id":{id},"text":"#);
        serde_json::to_writer(&mut *lines, text).expect("every text can be written");
        let _ = writeln!(lines, r#","tokens":{tokens}}}"#);
    }

    /// Write what has gathered. An error means that the parent is gone.
    pub fn flush(&self) -> io::Result<()> {
        let mut pending = self.0.lock().expect("nobody panics while writing");
        if pending.lines.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut pending.lines);
        pending.to.write_all(&lines)?;
        pending.lines = lines;
        pending.lines.clear();
        pending.to.flush()
    }
}

/// Take standard output for the protocol; whatever a library prints goes to standard error from now on.
#[cfg(unix)]
pub(crate) fn claim_stdout() -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: plain calls on the two descriptors every process is born with; `dup` gives a fresh one, owned from here.
    unsafe {
        let out = libc::dup(libc::STDOUT_FILENO);
        if out < 0 || libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::fs::File::from_raw_fd(out))
    }
}

#[cfg(not(unix))]
pub(crate) fn claim_stdout() -> io::Result<io::Stdout> {
    Ok(io::stdout())
}
