//! The smallest engine: it repeats the prompt's words. It shows how an engine is written on top of `serve`, and measures
//! the overhead of pipe and protocol. Option `tpot`: seconds for which each step keeps its core busy.

use enginebench_protocol::{Answer, Batching, Engine, Failure, FinishReason, Held, Info, Load, serve};
use std::hint::spin_loop;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const CONTEXT_LENGTH: usize = 131_072;
const CONCURRENCY: usize = 1024;

struct Echo {
    running: Vec<Writing>,
    step: Duration,
}

/// One answer: a word is a token.
struct Writing {
    answer: Answer,
    words: Vec<String>,
    held: Held,
    produced: usize,
}

impl Engine for Echo {
    fn begin(&mut self, answer: Answer) {
        let words: Vec<String> = answer.request.prompt.split_whitespace().map(|word| format!(" {word}")).collect();
        if words.is_empty() {
            return answer.fail(Failure::bad_request("there is nothing to echo in an empty prompt."));
        }
        let held = Held::new(&answer.request.stop);
        self.running.push(Writing { answer, words, held, produced: 0 });
    }

    fn step(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < self.step {
            spin_loop();
        }
        for mut one in std::mem::take(&mut self.running) {
            match one.write() {
                Some(reason) => one.answer.finish(reason),
                None => self.running.push(one),
            }
        }
        !self.running.is_empty()
    }
}

impl Writing {
    fn write(&mut self) -> Option<FinishReason> {
        if self.answer.is_cancelled() {
            return Some(FinishReason::Cancelled);
        }
        let (mut text, stopped) = self.held.push(&self.words[self.produced % self.words.len()]);
        self.produced += 1;
        let full = self.produced >= self.answer.request.max_tokens;
        if full && !stopped {
            text += &self.held.rest();
        }
        self.answer.chunk(&text, 1);
        if stopped { Some(FinishReason::Stop) } else { full.then_some(FinishReason::Length) }
    }
}

fn load(load: &Load) -> Result<(Echo, Info), Failure> {
    let step = Duration::try_from_secs_f64(load.option("tpot")?.unwrap_or(0.0))
        .map_err(|_| Failure::bad_request("option `tpot` is a number of seconds, 0 or more."))?;
    let info = Info {
        name: load.engine.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        language: "rust".into(),
        model: load.model.as_ref().map_or("echo", |model| &model.name).into(),
        dtype: "none".into(),
        device: "none".into(),
        batching: Batching::Continuous,
        max_concurrency: CONCURRENCY,
        context_length: CONTEXT_LENGTH,
        features: vec!["stop".into()],
        options: Default::default(),
        libraries: Default::default(),
    };
    Ok((Echo { running: Vec::new(), step }, info))
}

fn main() -> ExitCode {
    serve(load)
}
