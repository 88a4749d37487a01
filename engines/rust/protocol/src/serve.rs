//! The main loop: lines in, one step of the engine after the other, lines out.

use crate::failure::Failure;
use crate::message::{Chunk, FinishReason, Info, Load, Request, Stats, ToChild, ToParent, TokenLogprob, VERSION};
use crate::output::{Output, claim_stdout};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread;

/// An engine with a scheduler of its own. Everything happens on one thread: `step` decides what runs together.
pub trait Engine {
    /// A request has come. The parent never has more of them open than `Info::max_concurrency`.
    fn begin(&mut self, answer: Answer);

    /// Advance what is running by about one token, so that a cancel and the heartbeat get their turn in between.
    /// Whether anything is left to do; while it is not, nobody calls.
    fn step(&mut self) -> bool;

    /// What the engine can tell of itself; the process's memory is added where it says nothing.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// One request and the way to answer it. Ends with `finish` or `fail`; dropped before that, it says so to the client.
pub struct Answer {
    pub request: Request,
    id: u64,
    cancelled: Arc<AtomicBool>,
    output: Output,
    ended: bool,
}

impl Answer {
    /// The parent wants no more of it: `finish` it with `Cancelled` within one token.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// `text` may be empty while half a character or half a stop string is held back; the tokens still count.
    pub fn chunk(&self, text: &str, tokens: usize) {
        self.output.say_chunk(self.id, text, tokens);
    }

    pub fn chunk_with_logprobs(&self, text: &str, logprobs: Vec<TokenLogprob>) {
        let chunk = Chunk { id: self.id, text: text.to_owned(), tokens: logprobs.len(), logprobs };
        self.output.say(&ToParent::Chunk(chunk));
    }

    pub fn finish(mut self, finish_reason: FinishReason) {
        self.end(&ToParent::Done { id: self.id, finish_reason });
    }

    pub fn fail(mut self, failure: Failure) {
        self.end(&ToParent::Error { id: Some(self.id), kind: failure.kind, message: failure.message });
    }

    fn end(&mut self, last: &ToParent) {
        self.ended = true;
        self.output.say(last);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.ended {
            let Failure { kind, message } = Failure::internal("the engine ended its answer without saying why.");
            self.end(&ToParent::Error { id: Some(self.id), kind, message });
        }
    }
}

/// Speak the protocol on standard input and output until the input ends. `load` may take minutes.
pub fn serve<E: Engine>(load: impl FnOnce(&Load) -> Result<(E, Info), Failure>) -> ExitCode {
    match claim_stdout() {
        Ok(out) => converse(BufReader::new(std::io::stdin()), Output::new(out), load),
        Err(error) => {
            eprintln!("cannot use standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn converse<E: Engine>(
    input: impl BufRead + Send + 'static,
    output: Output,
    load: impl FnOnce(&Load) -> Result<(E, Info), Failure>,
) -> ExitCode {
    let (sender, inbox) = channel();
    let lines_out = output.clone();
    thread::Builder::new()
        .name("lines in".into())
        .spawn(move || read_lines(input, &lines_out, &sender))
        .expect("a process may have two threads");
    match start(&inbox, &output, load) {
        Some(mut engine) => run(&mut engine, &inbox, &output),
        None => ExitCode::FAILURE,
    }
}

/// What the reading thread hands to the computing one.
enum Message {
    Load(Load),
    Begin(Answer),
    AskStats,
}

/// A cancel goes past the queue: the flag is up while the engine still computes.
fn read_lines(input: impl BufRead, output: &Output, inbox: &Sender<Message>) {
    let mut open: HashMap<u64, Weak<AtomicBool>> = HashMap::new();
    for line in input.split(b'\n') {
        let Ok(line) = line else { return };
        let message = match serde_json::from_slice(&line) {
            Ok(ToChild::Cancel { id }) => {
                if let Some(flag) = open.get(&id).and_then(Weak::upgrade) {
                    flag.store(true, Ordering::Relaxed);
                }
                continue;
            }
            Ok(ToChild::Generate { id, request }) => {
                let cancelled = Arc::new(AtomicBool::new(false));
                open.retain(|_, flag| flag.strong_count() > 0);
                open.insert(id, Arc::downgrade(&cancelled));
                Message::Begin(Answer { request, id, cancelled, output: output.clone(), ended: false })
            }
            Ok(ToChild::Load(load)) => Message::Load(load),
            Ok(ToChild::Stats) => Message::AskStats,
            Err(error) => {
                eprintln!("ignored a line: {error}");
                continue;
            }
        };
        if inbox.send(message).is_err() {
            return;
        }
    }
}

/// Wait for `load` and obey it. `None` when there is nothing to run; the parent has been told why.
fn start<E: Engine>(
    inbox: &Receiver<Message>,
    output: &Output,
    load: impl FnOnce(&Load) -> Result<(E, Info), Failure>,
) -> Option<E> {
    let loaded = loop {
        match inbox.recv().ok()? {
            Message::Load(line) if line.version != VERSION => {
                let (mine, theirs) = (VERSION, line.version);
                break Err(Failure::unavailable(format!(
                    "this engine speaks protocol {mine}, the server {theirs}; build it again with `make engines`."
                )));
            }
            Message::Load(line) => break load(&line),
            Message::Begin(answer) => answer.fail(Failure::unavailable("the engine is not loaded.")),
            Message::AskStats => output.say(&ToParent::Stats(with_memory(Stats::default()))),
        }
        output.flush().ok()?;
    };
    let (engine, said) = match loaded {
        Ok((engine, info)) => (Some(engine), ToParent::Ready { version: VERSION, info }),
        Err(Failure { kind, message }) => (None, ToParent::Error { id: None, kind, message }),
    };
    output.say(&said);
    output.flush().ok()?;
    engine
}

fn run<E: Engine>(engine: &mut E, inbox: &Receiver<Message>, output: &Output) -> ExitCode {
    let mut busy = false;
    loop {
        // Everything that has come by now; sleep only when there is nothing to compute.
        let mut next = if busy { inbox.try_recv() } else { inbox.recv().map_err(|_| TryRecvError::Disconnected) };
        loop {
            match next {
                Ok(Message::Begin(answer)) => {
                    engine.begin(answer);
                    busy = true;
                }
                Ok(Message::AskStats) => output.say(&ToParent::Stats(with_memory(engine.stats()))),
                Ok(Message::Load(_)) => eprintln!("ignored a second load"),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return ExitCode::SUCCESS, // the input has ended
            }
            next = inbox.try_recv();
        }
        if busy {
            busy = engine.step();
        }
        if output.flush().is_err() {
            return ExitCode::SUCCESS; // the parent is gone
        }
    }
}

fn with_memory(stats: Stats) -> Stats {
    Stats { memory_bytes: stats.memory_bytes.or_else(resident_bytes), ..stats }
}

/// Memory that this process holds now; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    // SAFETY: a question without arguments that can be wrong.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(not(unix))]
fn page_bytes() -> u64 {
    4096
}
