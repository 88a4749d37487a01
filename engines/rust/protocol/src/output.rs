//! Standard output, which is reserved for the protocol. Lines collect here until `flush`, which sends them in one write.
//!
//! A full pipe blocks the write, which bounds what accumulates; the parent never stops reading.

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

    pub fn send(&self, message: &ToParent) {
        let mut pending = self.0.lock().expect("no thread panics while writing");
        serde_json::to_writer(&mut pending.lines, message).expect("every message can be written");
        pending.lines.push(b'\n');
    }

    /// The most frequent line, written once per token.
    pub fn send_chunk(&self, id: u64, text: &str, tokens: usize) {
        let mut pending = self.0.lock().expect("no thread panics while writing");
        let lines = &mut pending.lines;
        let _ = write!(lines, r#"{{"type":"chunk","id":{id},"text":"#);
        serde_json::to_writer(&mut *lines, text).expect("every text can be written");
        let _ = writeln!(lines, r#","tokens":{tokens}}}"#);
    }

    /// Write the collected lines. An error means that the parent has ended.
    pub fn flush(&self) -> io::Result<()> {
        let mut pending = self.0.lock().expect("no thread panics while writing");
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

/// Take standard output for the protocol; what a library prints goes to standard error from now on.
#[cfg(unix)]
pub(crate) fn claim_stdout() -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: both descriptors exist in every process; `dup` returns a new one, which is owned here.
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
