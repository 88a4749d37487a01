//! From logits to a token: greedy, or by temperature and nucleus (top-p), repeatable with a seed.

use crate::message::Request;

/// A lower temperature is greedy: scaled logits would overflow. The same bounds as in `engines/contract/base.py`.
const GREEDY_BELOW: f32 = 1e-3;

/// A nucleus of this probability, or less, is the likeliest token in every vocabulary of up to a million tokens.
const GREEDY_TOP_P: f32 = 1e-6;

/// Samples the tokens of one request.
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    random: fastrand::Rng,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    pub fn new(request: &Request) -> Self {
        let random = request.seed.map_or_else(fastrand::Rng::new, |seed| fastrand::Rng::with_seed(seed as u64));
        Self { temperature: request.temperature, top_p: request.top_p, random, candidates: Vec::new() }
    }

    pub(crate) fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW || self.top_p <= GREEDY_TOP_P
    }

    /// `logits`: one per token of the vocabulary. `None` where no token can be chosen: a model that overflowed its
    /// number format gives NaN for all of them.
    pub fn choose(&mut self, logits: &[f32]) -> Option<u32> {
        let most = largest(logits);
        if most == f32::NEG_INFINITY {
            return None;
        }
        Some(if self.is_greedy() { first(logits, most) } else { self.draw(logits, most) })
    }

    /// As `choose`, of all tokens but `hidden`. The logits stay as they are: log-probabilities are of the model itself.
    pub fn choose_but(&mut self, logits: &mut [f32], hidden: &[u32]) -> Option<u32> {
        let size = logits.len();
        // An id without a logit is none that could be chosen: a token added to the tokenizer alone.
        let hidden = || hidden.iter().map(|&id| id as usize).filter(|&id| id < size);
        let kept: Vec<f32> = hidden().map(|id| std::mem::replace(&mut logits[id], f32::NEG_INFINITY)).collect();
        let chosen = self.choose(logits);
        for (id, logit) in hidden().zip(kept).collect::<Vec<_>>().into_iter().rev() {
            logits[id] = logit; // the first of an id that is named twice comes last
        }
        chosen
    }

    fn draw(&mut self, logits: &[f32], most: f32) -> u32 {
        let scale = 1.0 / self.temperature;
        self.candidates.clear();
        self.candidates.extend((0..).zip(logits).map(|(id, logit)| (((logit - most) * scale).exp(), id)));
        let whole: f32 = self.candidates.iter().map(|one| one.0).sum();
        let mut kept = whole;
        if self.top_p < 1.0 {
            kept = self.keep_nucleus(whole);
        }
        let mut left = self.random.f32() * kept;
        for &(weight, id) in &self.candidates {
            left -= weight;
            if left < 0.0 {
                return id;
            }
        }
        first(logits, most) // rounding left a remainder
    }

    /// Keep the smallest set of likeliest tokens whose probability reaches `top_p` (Holtzman et al. 2020). Gives its weight.
    fn keep_nucleus(&mut self, whole: f32) -> f32 {
        let target = self.top_p * whole;
        // A token below this cannot be in the nucleus: all of them together do not make up what is left outside.
        let least = (whole - target) / self.candidates.len() as f32;
        self.candidates.retain(|one| one.0 >= least);
        self.candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut kept = 0.0;
        let size = self.candidates.iter().take_while(|one| {
            let needed = kept < target;
            kept += if needed { one.0 } else { 0.0 };
            needed
        });
        let size = size.count().max(1);
        self.candidates.truncate(size);
        self.candidates.iter().map(|one| one.0).sum()
    }
}

/// Where `most`, the largest, stands; of several, the first, as PyTorch has it.
fn first(logits: &[f32], most: f32) -> u32 {
    logits.iter().position(|&logit| logit == most).expect("the largest is one of them") as u32
}

/// In lanes, so that the compiler may use the machine's vectors: a vocabulary is long.
fn largest(logits: &[f32]) -> f32 {
    const LANES: usize = 32;
    let mut most = [f32::NEG_INFINITY; LANES];
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (most, &logit) in most.iter_mut().zip(chunk) {
            *most = if logit > *most { logit } else { *most };
        }
    }
    most.iter().chain(chunks.remainder()).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Natural-log probability of `token`, and of the `count` likeliest, likeliest first.
pub(crate) fn logprobs(logits: &[f32], token: u32, count: usize) -> (f32, Vec<(u32, f32)>) {
    let most = largest(logits);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - most).exp()).sum();
    let log_sum = most + sum.ln() as f32;
    let mut top: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    for (id, &logit) in (0..).zip(logits) {
        if top.len() < count || top.last().is_some_and(|last| logit > last.1) {
            let at = top.partition_point(|one| one.1 >= logit);
            top.insert(at, (id, logit));
            top.truncate(count);
        }
    }
    let top = top.into_iter().map(|(id, logit)| (id, logit - log_sum)).collect();
    (logits[token as usize] - log_sum, top)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32, top_p: f32, seed: i64) -> Sampler {
        let line = format!(
            r#"{{"prompt_token_ids":[],"max_tokens":1,"temperature":{temperature},"top_p":{top_p},"seed":{seed}}}"#
        );
        Sampler::new(&serde_json::from_str(&line).unwrap())
    }

    fn shares(temperature: f32, top_p: f32, logits: &[f32]) -> Vec<f64> {
        let mut sampler = sampler(temperature, top_p, 1);
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..100_000 {
            counts[sampler.choose(logits).unwrap() as usize] += 1e-5;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert_eq!(sampler(0.0, 1.0, 1).choose(&[0.0, 3.0, -1.0, 3.0]), Some(1));
    }

    #[test]
    fn hidden_tokens_are_not_chosen_and_keep_their_logits() {
        let mut logits = [0.0, 3.0, -1.0, 4.0];
        assert_eq!(sampler(0.0, 1.0, 1).choose_but(&mut logits, &[3, 1, 3, 99]), Some(0));
        assert_eq!(logits, [0.0, 3.0, -1.0, 4.0]);
    }

    #[test]
    fn nothing_is_chosen_where_no_logit_is_a_number() {
        for temperature in [0.0, 1.0] {
            assert_eq!(sampler(temperature, 1.0, 1).choose(&[f32::NAN; 40]), None);
        }
    }

    #[test]
    fn temperatures_near_zero_are_greedy() {
        for temperature in [1e-30, 1e-9, 9e-4] {
            assert_eq!(sampler(temperature, 1.0, 1).choose(&[0.0, 2.999, -1.0, 3.0]), Some(3));
        }
    }

    #[test]
    fn the_smallest_nucleus_is_the_likeliest_token() {
        for width in [4, 40_000] {
            let logits: Vec<f32> = (0..width).map(|id| 1.0 - id as f32 / width as f32).collect();
            for top_p in [0.0, 1e-45, 1e-38, 1e-9, 1e-6] {
                for temperature in [1e-3, 1.0, 2.0] {
                    assert_eq!(sampler(temperature, top_p, 1).choose(&logits), Some(0), "{top_p} at {temperature}");
                }
            }
        }
        let flat = [0.0; 1000]; // rounding may leave no token above the mean
        assert!((0..100).all(|seed| sampler(1.0, 2e-6, seed).choose(&flat).is_some()));
        assert_eq!(sampler(1e-3, 0.5, 1).choose(&[-3e38, f32::NEG_INFINITY, 3e38]), Some(2));
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        for (share, expected) in shares(1.0, 1.0, &logits).iter().zip([0.5, 0.3, 0.2]) {
            assert!((share - expected).abs() < 0.01, "{share} is not {expected}");
        }
        // At temperature 1/2 probabilities are squared: 25 : 9 : 4.
        for (share, expected) in shares(0.5, 1.0, &logits).iter().zip([25.0 / 38.0, 9.0 / 38.0, 4.0 / 38.0]) {
            assert!((share - expected).abs() < 0.01, "{share} is not {expected}");
        }
    }

    #[test]
    fn the_nucleus_leaves_out_the_unlikely() {
        let logits = [0.2f32.ln(), 0.5f32.ln(), 0.3f32.ln()];
        let shares_ = shares(1.0, 0.7, &logits);
        assert_eq!(shares_[0], 0.0);
        assert!((shares_[1] - 0.625).abs() < 0.01);
        assert_eq!(shares(1.0, 0.0, &logits)[1].round(), 1.0, "a nucleus of nothing still has the likeliest");
    }

    #[test]
    fn a_seed_repeats_the_choices() {
        let logits: Vec<f32> = (0..1000).map(|one| (one % 7) as f32).collect();
        let draw = |seed| -> Vec<u32> {
            let mut sampler = sampler(1.0, 0.9, seed);
            (0..20).map(|_| sampler.choose(&logits).unwrap()).collect()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn logprobs_are_those_of_the_softmax() {
        let (own, top) = logprobs(&[0.5f32.ln(), 0.2f32.ln(), 0.3f32.ln()], 1, 2);
        assert!((own - 0.2f32.ln()).abs() < 1e-6);
        assert_eq!(top.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 2]);
        assert!((top[1].1 - 0.3f32.ln()).abs() < 1e-6);
    }
}
