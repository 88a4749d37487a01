//! A GPU's kernels are made while loading, so that no request waits for that.
//!
//! CubeCL compiles a kernel when it first needs it, and tries several against each other for each key of a product: its
//! sizes up to a power of 2.5 (with `autotune=minimal`), and how many bytes its rows are aligned to, up to 1024
//! (`MatmulAutotuneKey` of cubek-matmul 0.3.1; the number of sequences is not in it). A decoding sequence would meet a new
//! alignment at every other token: so known tokens are filled up to a multiple of `FILL`, which leaves three alignments.

use crate::model::Decoder;
use anyhow::Result;
use enginebench_protocol::{Model, Piece};
use std::collections::BTreeSet;
use std::iter::successors;

pub const FILL: usize = 128;
const PROMPT: usize = 512; // tokens of the longest prompt
const TOGETHER: usize = 1 << 15; // known tokens of several sequences, so that trying takes little memory

/// `cached`: tokens that the caches have room for.
pub fn make(decoder: &mut Decoder, slots: usize, context: usize, cached: usize) -> Result<()> {
    let prompt = vec![0; PROMPT.min(context)];
    for count in prompts(prompt.len()) {
        decoder.forward(&[Piece { slot: 0, start: 0, tokens: &prompt[..count], wants_logits: true }], true)?;
    }
    for (sequences, known) in decodings(slots, context, cached) {
        let start = known - 1;
        decoder.pretend(sequences, start);
        let piece = |slot| Piece { slot, start, tokens: &prompt[..1], wants_logits: true };
        decoder.forward(&(0..sequences).map(piece).collect::<Vec<_>>(), true)?;
    }
    decoder.pretend(0, 0);
    Ok(())
}

/// Powers of two, and the most.
fn sizes(most: usize) -> impl Iterator<Item = usize> {
    successors(Some(1), |size| Some(2 * size)).take_while(move |&size| size < most).chain([most])
}

/// Numbers of tokens: of each multiple of `FILL`, the fewest and the most that are filled up to it.
fn prompts(longest: usize) -> BTreeSet<usize> {
    let ends = (0..longest).step_by(FILL).flat_map(|end| [end + 1, (end + FILL).min(longest)]);
    sizes(longest).chain(ends).collect()
}

/// Numbers of sequences and their known tokens. The most sequences first: kernels are chosen for those that meet them.
fn decodings(slots: usize, context: usize, cached: usize) -> Vec<(usize, usize)> {
    let fits = |sequences: usize, known: usize| {
        known <= FILL || sequences * known <= cached && (sequences == 1 || sequences * known <= TOGETHER)
    };
    let mut all: Vec<usize> = sizes(slots).collect();
    all.reverse();
    let of = |sequences| lengths(context).into_iter().map(move |known| (sequences, known));
    all.into_iter().flat_map(of).filter(|&(sequences, known)| fits(sequences, known)).collect()
}

/// Known tokens of every key: each power of two has its three alignments, and so has what follows the last one.
fn lengths(context: usize) -> BTreeSet<usize> {
    let longest = context.next_multiple_of(FILL);
    let powers = successors(Some(FILL), |power| Some(2 * power)).take_while(|&power| power <= longest);
    let from = powers.chain([longest.saturating_sub(3 * FILL).max(FILL)]);
    let near = from.flat_map(|first| (0..4).map(move |more| first + more * FILL));
    near.filter(|&length| length <= longest).map(|length| length.min(context)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: usize = 32;
    const EACH: usize = 4; // query heads of a key's

    /// CubeCL's `anchor`, computed again on purpose.
    fn anchor(size: usize, base: f64) -> usize {
        base.powf((size as f64).log(base).ceil()).ceil() as usize
    }

    /// Of the products with weights, keys and values, and of a softmax; `factor` is 1.25 with `autotune=minimal`, 1 with
    /// `balanced`.
    fn keys(sequences: usize, tokens: usize, known: usize, factor: f64, bytes: usize) -> [Vec<usize>; 4] {
        let known = known.next_multiple_of(FILL);
        let aligned = (known * bytes).trailing_zeros().min(10) as usize;
        let product = |size: usize| anchor(size, 2.0 * factor);
        let vectors = anchor(sequences * tokens * HEADS, 8.0 * factor).min(32_768);
        let reduced = anchor(known, 4.0 * factor).clamp(16, 1024);
        [
            vec![product(sequences * tokens)],
            vec![product(EACH * tokens), product(known)],
            vec![product(EACH * tokens), product(known), aligned],
            vec![vectors, reduced],
        ]
    }

    fn met(all: impl Iterator<Item = [Vec<usize>; 4]>) -> [BTreeSet<Vec<usize>>; 4] {
        let mut met = [(); 4].map(|()| BTreeSet::new());
        for keys in all {
            met.iter_mut().zip(keys).for_each(|(met, key)| {
                met.insert(key);
            });
        }
        met
    }

    #[test]
    fn every_key_of_a_decoding_step_is_met_while_loading() {
        for (slots, context) in [(32, 8192), (5, 1700), (1, 600), (100, 40), (8, 32_768)] {
            for (factor, bytes) in [(1.25, 2), (1.25, 4), (1.0, 2)] {
                let key = |(sequences, known)| keys(sequences, 1, known, factor, bytes);
                let met = met(decodings(slots, context, usize::MAX).into_iter().map(key));
                let all =
                    (1..=slots).flat_map(|sequences| (1..=context).step_by(FILL).map(move |known| (sequences, known)));
                for pair in all {
                    let keys = key(pair);
                    let is_met = met.iter().zip(&keys).all(|(met, key)| met.contains(key));
                    assert!(is_met, "{pair:?} of {slots} × {context}: {keys:?}");
                }
            }
        }
    }

    #[test]
    fn every_key_of_a_prompt_is_met_while_loading() {
        let key = |tokens| keys(1, tokens, tokens, 1.25, 2);
        let met = met(prompts(PROMPT).into_iter().map(key));
        for tokens in 1..=PROMPT {
            assert!(met.iter().zip(key(tokens)).all(|(met, key)| met.contains(&key)), "{tokens}");
        }
    }

    /// As docs/engines.md says.
    #[test]
    fn decoding_up_to_8192_tokens_has_18_keys_of_attention() {
        let met = met(lengths(8192).into_iter().map(|known| keys(1, 1, known, 1.25, 2)));
        assert_eq!((met[1].len(), met[2].len()), (5, 13));
    }

    #[test]
    fn trying_takes_no_more_than_the_caches_and_little_memory() {
        assert!(decodings(32, 8192, 5000).iter().all(|(sequences, known)| sequences * known <= 5000));
        let all = decodings(32, 131_072, usize::MAX);
        assert!(all.contains(&(1, 131_072)));
        assert!(all.iter().all(|&(sequences, known)| sequences == 1 || sequences * known <= TOGETHER));
    }
}
