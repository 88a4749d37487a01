//! Continuous batching around any model: requests join and leave a running batch, each in a slot of its own.
//!
//! Every step feeds one token of each running answer, then as much of the waiting prompts as the step's time allows
//! (chunked prefill, Agrawal et al. 2023), so that a long prompt does not delay running answers. When the key/value
//! cache is full, the newest sequence is put back into the queue, and computed again later. A prompt is also cut where the
//! scores of its attention would take too much memory.

use crate::detokenize::{TextStream, Vocabulary};
use crate::failure::Failure;
use crate::message::{FinishReason, Info, Load, Stats, TokenLogprob};
use crate::sample::{Sampler, logprobs};
use crate::serve::{Answer, Engine, serve};
use crate::stop::Held;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

/// How an answer ended.
type End = Result<FinishReason, Failure>;

const OVERFLOWED: &str = "the model computed no number for any token: its values are beyond the number format (dtype).";

/// Consecutive tokens of one sequence: `tokens` stand at positions `start..` of the sequence in `slot`.
/// A piece with `start == 0` begins a new sequence there. `wants_logits` marks a piece that ends with the last known
/// token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece<'a> {
    pub slot: usize,
    pub start: usize,
    pub tokens: &'a [u32],
    pub wants_logits: bool,
}

/// What a model gives for each piece that wants logits.
pub enum Output<'a> {
    /// `vocab_size` floats each.
    Logits(&'a mut [f32]),
    /// Its token; `None` where no logit is a number.
    Likeliest(Vec<Option<u32>>),
}

impl<'a> Output<'a> {
    /// For each piece.
    fn parts(self, width: usize) -> Box<dyn Iterator<Item = Part<'a>> + 'a> {
        match self {
            Self::Logits(all) => Box::new(all.chunks_exact_mut(width).map(Part::Logits)),
            Self::Likeliest(tokens) => Box::new(tokens.into_iter().map(Part::Likeliest)),
        }
    }
}

enum Part<'a> {
    Logits(&'a mut [f32]),
    Likeliest(Option<u32>),
}

/// A decoder that keeps one key/value cache per slot.
pub trait Model {
    /// The number of logits; prompts with other tokens are refused.
    fn vocab_size(&self) -> usize;

    /// Append the pieces to their slots' caches. Returns what comes after the last token of each piece that wants
    /// logits, in the order of the pieces. No two pieces share a slot.
    ///
    /// With `likeliest`, nothing but the likeliest token of each is of interest. A model on a device of its own finds it
    /// there, and copies a number in place of a vocabulary.
    fn forward(&mut self, batch: &[Piece], likeliest: bool) -> anyhow::Result<Output<'_>>;

    /// Wait until the device has computed every step. Called after one without logits: what `forward` took was then the
    /// time to launch it.
    fn wait(&mut self) -> anyhow::Result<()>;

    /// The sequence in `slot` has ended: release its cache.
    fn free(&mut self, slot: usize);
}

/// How much runs at a time.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Sequences; the same as `Info::max_concurrency`.
    pub slots: usize,
    /// Seconds that a step with prompt tokens should take; `None`: whole prompts.
    pub step_time: Option<f64>,
    /// Tokens in the key/value caches of all sequences together; `Info::context_length` is not more.
    pub kv_tokens: usize,
    /// New tokens × known tokens of a piece, as [`crate::most_scores`] gives them.
    pub scores: usize,
}

impl BatchLimits {
    /// For a model with one cache.
    pub fn one_sequence(scores: usize) -> Self {
        Self { slots: 1, step_time: None, kv_tokens: usize::MAX, scores }
    }
}

/// How many prompt tokens fit into a step's time, learned from the steps so far.
struct Pace {
    step_time: Option<f64>,
    tokens: usize,
}

impl Pace {
    const LEAST: usize = 16;

    fn new(step_time: Option<f64>) -> Self {
        Self { step_time, tokens: step_time.map_or(usize::MAX, |_| 4 * Self::LEAST) }
    }

    /// From a step that left prompt tokens waiting: others are too short to tell. At most a factor of two at a time.
    fn learn(&mut self, prompt_tokens: usize, seconds: f64) {
        if let Some(step_time) = self.step_time {
            let fit = (prompt_tokens as f64 * step_time / seconds) as usize;
            self.tokens = fit.clamp(self.tokens / 2, self.tokens * 2).max(Self::LEAST);
        }
    }
}

/// A model, ready to be served.
pub struct Loaded<M> {
    pub model: M,
    pub info: Info,
    pub limits: BatchLimits,
    pub vocabulary: Vocabulary,
    pub end_of_text: Vec<u32>,
}

/// Speak the protocol for a model until the input ends.
pub fn serve_model<M: Model>(load: impl FnOnce(&Load) -> Result<Loaded<M>, Failure>) -> ExitCode {
    serve(|line| {
        let loaded = load(line)?;
        let info = loaded.info.clone();
        Ok((Batch::new(loaded), info))
    })
}

/// The scheduler. Slots are filled in the order in which requests arrive.
pub(crate) struct Batch<M> {
    loaded: Loaded<M>,
    waiting: VecDeque<Sequence>,
    slots: Vec<Option<Sequence>>,
    order: Vec<usize>, // the taken slots, oldest sequence first
    pace: Pace,
}

/// One answer being written.
struct Sequence {
    answer: Answer,
    tokens: Vec<u32>, // the prompt, then what was produced
    fed: usize,       // how many of `tokens` the model's cache holds
    produced: usize,
    sampler: Sampler,
    text: TextStream,
    held: Held,
}

impl<M: Model> Engine for Batch<M> {
    fn begin(&mut self, answer: Answer) {
        match self.refusal(&answer) {
            Some(failure) => answer.fail(failure),
            None => self.waiting.push_back(Sequence::new(answer, &self.loaded.vocabulary)),
        }
    }

    fn step(&mut self) -> bool {
        self.drop_cancelled();
        self.admit();
        if !self.order.is_empty() {
            self.advance();
        }
        !self.order.is_empty() || !self.waiting.is_empty()
    }

    fn stats(&self) -> Stats {
        let room = self.loaded.limits.kv_tokens.min(self.loaded.limits.slots * self.loaded.info.context_length);
        Stats { kv_cache_usage: Some(self.cached() as f64 / room as f64), ..Stats::default() }
    }
}

impl<M: Model> Batch<M> {
    pub fn new(loaded: Loaded<M>) -> Self {
        let slots = (0..loaded.limits.slots).map(|_| None).collect();
        let pace = Pace::new(loaded.limits.step_time);
        Self { loaded, waiting: VecDeque::new(), slots, order: Vec::new(), pace }
    }

    fn refusal(&self, answer: &Answer) -> Option<Failure> {
        let (prompt, room) = (&answer.request.prompt_token_ids, self.loaded.info.context_length);
        let vocabulary = self.loaded.model.vocab_size();
        if prompt.is_empty() {
            return Some(Failure::bad_request("the prompt is empty."));
        }
        if prompt.len() >= room {
            let length = prompt.len();
            return Some(Failure::bad_request(format!(
                "the prompt has {length} tokens; the context is {room} tokens, of which the answer needs some."
            )));
        }
        let unknown = prompt.iter().chain(&answer.request.forced_token_ids).find(|&&id| id as usize >= vocabulary)?;
        Some(Failure::bad_request(format!("token {unknown} is not in the model's vocabulary of {vocabulary}.")))
    }

    fn drop_cancelled(&mut self) {
        let (gone, stay) = self.waiting.drain(..).partition(|sequence| sequence.answer.is_cancelled());
        self.waiting = stay;
        VecDeque::into_iter(gone).for_each(|sequence: Sequence| sequence.answer.finish(FinishReason::Cancelled));
        for slot in self.order.clone() {
            if self.slots[slot].as_ref().is_some_and(|sequence| sequence.answer.is_cancelled()) {
                self.release(slot).answer.finish(FinishReason::Cancelled);
            }
        }
    }

    fn admit(&mut self) {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let known: usize = self.slots.iter().flatten().map(|sequence| sequence.tokens.len()).sum();
            let fits = |next: &Sequence| known == 0 || known + next.tokens.len() < self.loaded.limits.kv_tokens;
            if !self.waiting.front().is_some_and(fits) {
                return;
            }
            self.slots[slot] = self.waiting.pop_front();
            self.order.push(slot);
        }
    }

    /// Tokens in the caches.
    fn cached(&self) -> usize {
        self.slots.iter().flatten().map(|sequence| sequence.fed).sum()
    }

    /// Put the newest sequence back into the queue; its tokens are fed again when there is room.
    fn put_back_newest(&mut self) {
        let newest = self.order[self.order.len() - 1];
        let mut sequence = self.release(newest);
        sequence.fed = 0;
        self.waiting.push_front(sequence);
    }

    fn release(&mut self, slot: usize) -> Sequence {
        self.order.retain(|&taken| taken != slot);
        self.loaded.model.free(slot);
        self.slots[slot].take().expect("only a taken slot is released")
    }

    /// One pass through the model, and its results.
    fn advance(&mut self) {
        let mut shares = self.shares();
        let size = |shares: &[(usize, usize)]| shares.iter().map(|(_, count)| count).sum::<usize>();
        while self.order.len() > 1 && self.cached() + size(&shares) > self.loaded.limits.kv_tokens {
            self.put_back_newest();
            shares = self.shares();
        }
        let reading = shares.iter().filter(|(slot, _)| self.unfed(*slot) > 1);
        let prompts: usize = reading.map(|(_, count)| count).sum();
        let all: usize = self.order.iter().map(|&slot| self.unfed(slot)).sum();
        let is_cut = size(&shares) < all;
        let begun = Instant::now();
        let outcome = self.forward(&shares);
        if is_cut {
            self.pace.learn(prompts, begun.elapsed().as_secs_f64());
        }
        let all_failed = |error: anyhow::Error| {
            let failure = Failure::from(error);
            shares.iter().map(|&(slot, _)| (slot, Err(failure.clone()))).collect()
        };
        for (slot, end) in outcome.unwrap_or_else(all_failed) {
            let answer = self.release(slot).answer;
            match end {
                Ok(reason) => answer.finish(reason),
                Err(failure) => answer.fail(failure),
            }
        }
    }

    /// Slots and their numbers of tokens in this step: one of each running answer, then the prompts, oldest first.
    fn shares(&self) -> Vec<(usize, usize)> {
        let known = |slot: &usize| (*slot, self.unfed(*slot));
        let (writing, reading): (Vec<_>, Vec<_>) = self.order.iter().map(known).partition(|&(_, unfed)| unfed == 1);
        let mut budget = self.pace.tokens;
        let mut shares = writing;
        for (slot, unfed) in reading {
            let fed = self.slots[slot].as_ref().map_or(0, |sequence| sequence.fed);
            let count = unfed.min(budget).min(longest_piece(fed, self.loaded.limits.scores));
            budget -= count;
            if count > 0 {
                shares.push((slot, count));
            }
        }
        shares
    }

    fn unfed(&self, slot: usize) -> usize {
        self.slots[slot].as_ref().map_or(0, Sequence::unfed)
    }

    /// Feed the shares, and wait until they are computed; returns which answers have ended, and how.
    fn forward(&mut self, shares: &[(usize, usize)]) -> anyhow::Result<Vec<(usize, End)>> {
        let Loaded { model, vocabulary, end_of_text, info, .. } = &mut self.loaded;
        let width = model.vocab_size();
        let pieces: Vec<Piece> = shares
            .iter()
            .map(|&(slot, count)| self.slots[slot].as_ref().expect("a share has a sequence").piece(slot, count))
            .collect();
        let writing: Vec<usize> = pieces.iter().filter(|piece| piece.wants_logits).map(|piece| piece.slot).collect();
        let known = |slot: &usize| self.slots[*slot].as_ref().expect("a share has a sequence");
        let likeliest = writing.iter().map(known).all(Sequence::takes_likeliest);
        let is_read = !writing.is_empty();
        let mut parts = model.forward(&pieces, likeliest)?.parts(width);
        let mut ended = Vec::new();
        for &(slot, count) in shares {
            self.slots[slot].as_mut().expect("a share has a sequence").fed += count;
        }
        for slot in writing {
            let sequence = self.slots[slot].as_mut().expect("a share has a sequence");
            let part = parts.next().ok_or_else(|| anyhow::anyhow!("the model gave too few logits"))?;
            let end = sequence.write(part, vocabulary, end_of_text, info.context_length).transpose();
            ended.extend(end.map(|end| (slot, end)));
        }
        drop(parts);
        if !is_read {
            model.wait()?;
        }
        Ok(ended)
    }
}

/// The most tokens n after `known` ones for which n × (known + n) is within `scores`; one at least.
fn longest_piece(known: usize, scores: usize) -> usize {
    let half = known as f64 / 2.0;
    (((half * half + scores as f64).sqrt() - half) as usize).max(1)
}

impl Sequence {
    fn new(answer: Answer, vocabulary: &Vocabulary) -> Self {
        let tokens = answer.request.prompt_token_ids.clone();
        Self {
            sampler: Sampler::new(&answer.request),
            text: vocabulary.stream(&tokens),
            held: Held::new(&answer.request.stop),
            tokens,
            fed: 0,
            produced: 0,
            answer,
        }
    }

    fn unfed(&self) -> usize {
        self.tokens.len() - self.fed
    }

    fn piece(&self, slot: usize, count: usize) -> Piece<'_> {
        let end = self.fed + count;
        Piece { slot, start: self.fed, tokens: &self.tokens[self.fed..end], wants_logits: end == self.tokens.len() }
    }

    /// Tokens of the answer: those that were forced are of the prompt.
    fn own(&self) -> usize {
        self.produced.saturating_sub(self.answer.request.forced_token_ids.len())
    }

    /// Whether its next token is the likeliest one, whatever the others are.
    fn takes_likeliest(&self) -> bool {
        let request = &self.answer.request;
        let no_end_yet = self.produced < request.min_tokens && !request.ignore_eos;
        self.sampler.is_greedy() && request.logprobs.is_none() && request.forced_token_ids.is_empty() && !no_end_yet
    }

    /// Sample the next token and send its text. Returns the reason if it was the last. Fails where the model has
    /// overflowed: an answer of arbitrary tokens would be measured as if it were one.
    fn write(
        &mut self,
        part: Part,
        vocabulary: &Vocabulary,
        end_of_text: &[u32],
        context_length: usize,
    ) -> Result<Option<FinishReason>, Failure> {
        let own = self.own();
        let request = &self.answer.request;
        let forced = request.forced_token_ids.get(self.produced).copied();
        let (token, logits) = match part {
            Part::Likeliest(token) => (token, &mut [] as &mut [f32]),
            Part::Logits(logits) => {
                let goes_on = forced.is_none() && own < request.min_tokens && !request.ignore_eos;
                let hidden = if goes_on { end_of_text } else { &[] };
                (self.sampler.choose_but(logits, hidden).map(|token| forced.unwrap_or(token)), logits)
            }
        };
        let token = token.ok_or_else(|| Failure::internal(OVERFLOWED))?;
        self.tokens.push(token);
        self.produced += 1;
        let end = forced.is_none() && end_of_text.contains(&token) && !request.ignore_eos;
        let full = self.produced >= request.max_tokens || self.tokens.len() >= context_length;
        let mut send = self.text.push(token);
        let mut stopped = false;
        if forced.is_none() && own >= request.min_tokens {
            (send, stopped) = self.held.push(&send);
        }
        if (end || full) && !stopped {
            let (rest, met) = self.held.push(&self.text.rest());
            (send, stopped) = (send + &rest, met);
            send += &self.held.rest();
        }
        match request.logprobs {
            None => self.answer.chunk(&send, 1),
            Some(count) => self.answer.chunk_with_logprobs(&send, vec![logprob(vocabulary, logits, token, count)]),
        }
        Ok(match (stopped || end, full) {
            (true, _) => Some(FinishReason::Stop),
            (false, true) => Some(FinishReason::Length),
            (false, false) => None,
        })
    }
}

fn logprob(vocabulary: &Vocabulary, logits: &[f32], token: u32, count: usize) -> TokenLogprob {
    let (own, top) = logprobs(logits, token, count);
    let top = top.into_iter().map(|(id, logprob)| (vocabulary.token(id), logprob, vocabulary.bytes(id))).collect();
    TokenLogprob { token: vocabulary.token(token), logprob: own, top, bytes: vocabulary.bytes(token) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::Duration;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// A device that takes a time for each token, after `forward` has returned: until somebody reads or waits.
    struct Slow {
        token: Duration,
        queued: Duration,
        pieces: Vec<(usize, usize, bool)>, // start, tokens, whether logits are wanted
    }

    impl Model for Slow {
        fn vocab_size(&self) -> usize {
            8
        }

        fn forward(&mut self, batch: &[Piece], _: bool) -> anyhow::Result<Output<'_>> {
            let piece = |piece: &Piece| (piece.start, piece.tokens.len(), piece.wants_logits);
            self.pieces.extend(batch.iter().map(piece));
            self.queued += batch.iter().map(|piece| piece.tokens.len() as u32 * self.token).sum::<Duration>();
            let wanted = batch.iter().filter(|piece| piece.wants_logits).count();
            if wanted > 0 {
                self.wait()?;
            }
            Ok(Output::Likeliest(vec![Some(5); wanted]))
        }

        fn wait(&mut self) -> anyhow::Result<()> {
            sleep(std::mem::take(&mut self.queued));
            Ok(())
        }

        fn free(&mut self, _: usize) {}
    }

    /// Its values are beyond the number format in every slot but the first.
    struct Overflowing;

    impl Model for Overflowing {
        fn vocab_size(&self) -> usize {
            8
        }

        fn forward(&mut self, batch: &[Piece], _: bool) -> anyhow::Result<Output<'_>> {
            let writing = batch.iter().filter(|piece| piece.wants_logits);
            Ok(Output::Likeliest(writing.map(|piece| (piece.slot == 0).then_some(5)).collect()))
        }

        fn wait(&mut self) -> anyhow::Result<()> {
            Ok(())
        }

        fn free(&mut self, _: usize) {}
    }

    fn batch_of<M: Model>(model: M, step_time: Option<f64>, scores: usize) -> Batch<M> {
        let info = r#"{"name":"e","version":"1","language":"rust","model":"m","dtype":"none","device":"none",
            "batching":"continuous","max_concurrency":4,"context_length":10000}"#;
        Batch::new(Loaded {
            model,
            info: serde_json::from_str(info).unwrap(),
            limits: BatchLimits { slots: 4, step_time, kv_tokens: 10_000, scores },
            vocabulary: Vocabulary::empty(),
            end_of_text: Vec::new(),
        })
    }

    fn asked(prompt: usize, most: usize) -> Answer {
        let request = serde_json::json!({"prompt_token_ids": vec![1; prompt], "max_tokens": most});
        Answer::unheard(serde_json::from_value(request).unwrap())
    }

    /// A prompt of so many tokens and its answer of one.
    fn answered(prompt: usize, token: Duration, step_time: Option<f64>, scores: usize) -> Batch<Slow> {
        let mut batch = batch_of(Slow { token, queued: Duration::ZERO, pieces: Vec::new() }, step_time, scores);
        batch.begin(asked(prompt, 1));
        while batch.step() {}
        batch
    }

    #[test]
    fn a_sequence_that_overflows_fails_alone() {
        let mut batch = batch_of(Overflowing, None, usize::MAX);
        batch.begin(asked(3, 2));
        batch.begin(asked(3, 2));
        batch.step();
        assert_eq!(batch.order, [0]);
    }

    #[test]
    fn a_prompt_is_cut_where_its_scores_would_not_fit() {
        let batch = answered(35, Duration::ZERO, None, 100);
        let pieces = [(0, 10), (10, 6), (16, 4), (20, 4), (24, 3), (27, 3), (30, 3), (33, 2)];
        let wanted: Vec<_> = pieces.map(|(start, count)| (start, count, start == 33)).into();
        assert_eq!(batch.loaded.model.pieces, wanted);
        assert!(wanted.iter().all(|(start, count, _)| count * (start + count) <= 100));
        assert_eq!(answered(35, Duration::ZERO, None, usize::MAX).loaded.model.pieces, [(0, 35, true)]);
    }

    /// Of 0.2 ms a token, 100 fit into 20 ms; the first step of 64 tells.
    #[test]
    fn the_time_of_a_step_without_logits_is_that_of_its_device() {
        let batch = answered(1000, MILLISECOND / 5, Some(0.02), usize::MAX);
        let longest = batch.loaded.model.pieces.iter().map(|(_, count, _)| *count).max();
        assert!(longest <= Some(100), "{:?}", batch.loaded.model.pieces);
    }

    /// Its first piece is of 50 tokens in place of 64.
    #[test]
    fn a_step_that_is_cut_by_its_scores_tells_how_many_tokens_fit() {
        let batch = answered(200, MILLISECOND, Some(0.02), 2500);
        assert_eq!(batch.loaded.model.pieces[0], (0, 50, false));
        assert!(batch.pace.tokens <= 20, "{}", batch.pace.tokens);
    }
}
