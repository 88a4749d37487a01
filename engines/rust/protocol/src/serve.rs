//! The main loop: read messages, run steps of the engine, write messages.

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

/// An engine with a scheduler of its own. All calls are made on one thread.
pub trait Engine {
    /// A request has arrived. The parent never has more of them open than `Info::max_concurrency`.
    fn begin(&mut self, answer: Answer);

    /// Advance all running answers by about one token; cancels and heartbeats are handled between steps.
    /// Returns whether work is left; if not, it is called again after the next request.
    fn step(&mut self) -> bool;

    /// Resource use; the process's memory is added where it is missing.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// One request and its answer. Ends with `finish` or `fail`; dropping it before that reports an error to the client.
pub struct Answer {
    pub request: Request,
    id: u64,
    cancelled: Arc<AtomicBool>,
    output: Output,
    ended: bool,
}

impl Answer {
    /// Whether the parent has cancelled it: `finish` it with `Cancelled` within one token.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// `text` may be empty while half a character or half a stop string is held back; the tokens still count.
    pub fn chunk(&self, text: &str, tokens: usize) {
        self.output.send_chunk(self.id, text, tokens);
    }

    pub fn chunk_with_logprobs(&self, text: &str, logprobs: Vec<TokenLogprob>) {
        let chunk = Chunk { id: self.id, text: text.to_owned(), tokens: logprobs.len(), logprobs };
        self.output.send(&ToParent::Chunk(chunk));
    }

    /// One that is written to nobody.
    #[cfg(test)]
    pub(crate) fn unheard(request: Request) -> Self {
        Self { request, id: 0, cancelled: Arc::default(), output: Output::new(std::io::sink()), ended: false }
    }

    pub fn finish(mut self, finish_reason: FinishReason) {
        self.end(&ToParent::Done { id: self.id, finish_reason });
    }

    pub fn fail(mut self, failure: Failure) {
        self.end(&ToParent::Error { id: Some(self.id), kind: failure.kind, message: failure.message });
    }

    fn end(&mut self, last: &ToParent) {
        self.ended = true;
        self.output.send(last);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.ended {
            let Failure { kind, message } = Failure::internal("the engine ended its answer without a finish reason.");
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
        .expect("the reading thread can be started");
    match start(&inbox, &output, load) {
        Some(mut engine) => run(&mut engine, &inbox, &output),
        None => ExitCode::FAILURE,
    }
}

/// From the reading thread to the computing one.
enum Message {
    Load(Load),
    Begin(Answer),
    AskStats,
}

/// A cancel does not wait in the queue: its flag is set while the engine computes.
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

/// Wait for `load`. `None` if that failed, which has been reported to the parent.
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
                    "this engine implements protocol {mine}, the server {theirs}; build it again with `make engines`."
                )));
            }
            Message::Load(line) => break load(&line),
            Message::Begin(answer) => answer.fail(Failure::unavailable("the engine is not loaded.")),
            Message::AskStats => output.send(&ToParent::Stats(Stats::default())),
        }
        output.flush().ok()?;
    };
    let (engine, said) = match loaded {
        Ok((engine, info)) => (Some(engine), ToParent::Ready { version: VERSION, info }),
        Err(Failure { kind, message }) => (None, ToParent::Error { id: None, kind, message }),
    };
    output.send(&said);
    output.flush().ok()?;
    engine
}

fn run<E: Engine>(engine: &mut E, inbox: &Receiver<Message>, output: &Output) -> ExitCode {
    let mut busy = false;
    loop {
        // Every message so far; sleep only when there is nothing to compute.
        let mut next = if busy { inbox.try_recv() } else { inbox.recv().map_err(|_| TryRecvError::Disconnected) };
        loop {
            match next {
                Ok(Message::Begin(answer)) => {
                    engine.begin(answer);
                    busy = true;
                }
                Ok(Message::AskStats) => output.send(&ToParent::Stats(engine.stats())),
                Ok(Message::Load(_)) => eprintln!("ignored a second load"),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let _ = output.flush(); // the input has ended
                    return ExitCode::SUCCESS;
                }
            }
            next = inbox.try_recv();
        }
        if busy {
            busy = engine.step();
        }
        if output.flush().is_err() {
            return ExitCode::SUCCESS; // the parent has ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    /// Standard input, line by line; it stays open until the test lets go.
    struct Lines(Receiver<Vec<u8>>, Vec<u8>);

    impl Read for Lines {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.1.is_empty() {
                self.1 = self.0.recv().unwrap_or_default();
            }
            let count = self.1.len().min(into.len());
            into[..count].copy_from_slice(&self.1[..count]);
            self.1.drain(..count);
            Ok(count)
        }
    }

    /// Standard output, read by the test.
    struct Said(Sender<Vec<u8>>);

    impl std::io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Writes one token a step, for ever; gives up on a request called "drop".
    struct Endless(Vec<Answer>);

    impl Engine for Endless {
        fn begin(&mut self, answer: Answer) {
            if answer.request.prompt != "drop" {
                self.0.push(answer);
            }
        }

        fn step(&mut self) -> bool {
            thread::sleep(Duration::from_millis(1));
            let (gone, stay) = std::mem::take(&mut self.0).into_iter().partition(Answer::is_cancelled);
            self.0 = stay;
            Vec::into_iter(gone).for_each(|answer: Answer| answer.finish(FinishReason::Cancelled));
            self.0.iter().for_each(|answer| answer.chunk("x", 1));
            !self.0.is_empty()
        }
    }

    fn info() -> Info {
        let text = r#"{"name":"e","version":"1","language":"rust","model":"m","dtype":"none","device":"none",
            "batching":"continuous","max_concurrency":4,"context_length":100}"#;
        serde_json::from_str(text).unwrap()
    }

    fn conversation() -> (Sender<Vec<u8>>, Receiver<Vec<u8>>, thread::JoinHandle<()>) {
        let (to_child, lines) = channel();
        let (said, heard) = channel();
        let child = thread::spawn(move || {
            let input = BufReader::new(Lines(lines, Vec::new()));
            converse(input, Output::new(Said(said)), |_| Ok((Endless(Vec::new()), info())));
        });
        (to_child, heard, child)
    }

    fn say(to_child: &Sender<Vec<u8>>, line: &str) {
        to_child.send(format!("{line}\n").into_bytes()).unwrap();
    }

    fn hear_until(heard: &Receiver<Vec<u8>>, wanted: &str) -> String {
        let mut all = String::new();
        while !all.contains(wanted) {
            let bytes = heard.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("no {wanted} in {all}"));
            all += &String::from_utf8(bytes).unwrap();
        }
        all
    }

    const LOAD: &str = r#"{"type":"load","version":1,"engine":"e","model":null}"#;

    #[test]
    fn a_cancel_ends_the_answer_and_the_end_of_input_ends_the_engine() {
        let (to_child, heard, child) = conversation();
        say(&to_child, LOAD);
        say(&to_child, r#"{"type":"generate","id":7,"prompt":"","prompt_token_ids":[],"max_tokens":1}"#);
        hear_until(&heard, r#"{"type":"chunk","id":7,"text":"x","tokens":1}"#);
        say(&to_child, r#"{"type":"cancel","id":7}"#);
        hear_until(&heard, r#"{"type":"done","id":7,"finish_reason":"cancelled"}"#);
        say(&to_child, r#"{"type":"cancel","id":7}"#); // late: ignored
        say(&to_child, "nonsense");
        say(&to_child, r#"{"type":"stats"}"#);
        hear_until(&heard, r#"{"type":"stats""#);
        drop(to_child);
        child.join().unwrap();
    }

    #[test]
    fn an_answer_that_an_engine_forgets_becomes_an_error() {
        let (to_child, heard, _child) = conversation();
        say(&to_child, LOAD);
        say(&to_child, r#"{"type":"generate","id":1,"prompt":"drop","prompt_token_ids":[],"max_tokens":1}"#);
        hear_until(
            &heard,
            r#""id":1,"kind":"internal","message":"the engine ended its answer without a finish reason.""#,
        );
    }

    #[test]
    fn another_version_of_the_protocol_is_refused() {
        let (to_child, heard, child) = conversation();
        say(&to_child, r#"{"type":"load","version":99,"engine":"e","model":null}"#);
        let said = hear_until(&heard, r#""kind":"unavailable""#);
        assert!(said.contains("protocol 1, the server 99"), "{said}");
        child.join().unwrap();
    }
}
