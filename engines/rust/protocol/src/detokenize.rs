//! From tokens to text, one by one.

use crate::failure::Failure;
use std::path::Path;
use std::sync::Arc;
use tokenizers::Tokenizer;

const REPLACEMENT: char = '\u{FFFD}'; // a decoder's result for an incomplete character
const TAIL_OF_PROMPT: usize = 8; // tokens; enough to see whether the answer begins with a space
const LONGEST_CHARACTER: usize = 4; // bytes of UTF-8, and so the most tokens that one character can take

/// A model's vocabulary, read from its `tokenizer.json`.
#[derive(Clone)]
pub struct Vocabulary(Arc<Tokenizer>);

impl Vocabulary {
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        match Tokenizer::from_file(folder.join("tokenizer.json")) {
            Ok(tokenizer) => Ok(Self(Arc::new(tokenizer))),
            Err(error) => {
                eprintln!("{}: {error}", folder.display());
                Err(Failure::unavailable("the model's tokenizer.json is missing or cannot be read."))
            }
        }
    }

    /// One in which no token has a text.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self(Arc::new(Tokenizer::new(tokenizers::models::bpe::BPE::default())))
    }

    /// Special tokens have no text.
    pub fn text(&self, ids: &[u32]) -> String {
        self.0.decode(ids, true).unwrap_or_default()
    }

    fn is_special(&self, id: u32) -> bool {
        self.0.id_to_token(id).is_some_and(|token| self.0.get_added_vocabulary().is_special_token(&token))
    }

    /// One token as it is written in the vocabulary's text, special ones included.
    pub fn token(&self, id: u32) -> String {
        self.0.decode(&[id], false).unwrap_or_default()
    }

    /// The bytes of a token that is a part of a character; `None` for all others.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        if !self.token(id).contains(REPLACEMENT) {
            return None;
        }
        let token = self.0.id_to_token(id)?;
        let hexadecimal = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')); // SentencePiece
        match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => Some(vec![byte]),
            None => token.chars().map(byte_of).collect(),
        }
    }

    pub(crate) fn stream(&self, prompt: &[u32]) -> TextStream {
        let ids = prompt[prompt.len().saturating_sub(TAIL_OF_PROMPT)..].to_vec();
        // A prompt that ends within a character: the answer may complete it.
        let least = ids.len().saturating_sub(LONGEST_CHARACTER - 1);
        let whole = (least..=ids.len()).rev().find(|&end| !self.text(&ids[..end]).ends_with(REPLACEMENT));
        let sent = whole.unwrap_or(ids.len());
        TextStream { vocabulary: self.clone(), sent, seen: self.text(&ids[..sent]), ids }
    }
}

/// Byte-level BPE writes a byte as one printable character: itself if it is one, else one from 256 upwards.
fn byte_of(letter: char) -> Option<u8> {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u8::try_from(u32::from(letter)) {
        Ok(byte) => Some(byte).filter(is_printable),
        Err(_) => (0..=u8::MAX).filter(|byte| !is_printable(byte)).nth(u32::from(letter) as usize - 256),
    }
}

/// The text of one answer. A character whose bytes span several tokens is returned with its last one.
pub(crate) struct TextStream {
    vocabulary: Vocabulary,
    ids: Vec<u32>, // those whose text shapes what comes next, then those not yet sent
    sent: usize,   // how many of `ids` are the former
    seen: String,  // the former's text
}

impl TextStream {
    pub fn push(&mut self, id: u32) -> String {
        if self.vocabulary.is_special(id) {
            return String::new(); // it has no text, and is not one of the tokens of a character
        }
        self.ids.push(id);
        let text = self.vocabulary.text(&self.ids);
        let whole = text.len() > self.seen.len() && !text.ends_with(REPLACEMENT);
        // So many tokens without a character: invalid bytes.
        let hopeless = self.ids.len() - self.sent >= LONGEST_CHARACTER;
        if whole || hopeless { self.take(&text) } else { String::new() }
    }

    /// The rest at the end: at most an incomplete character.
    pub fn rest(&mut self) -> String {
        let text = self.vocabulary.text(&self.ids);
        self.take(&text)
    }

    fn take(&mut self, text: &str) -> String {
        let new = match text.strip_prefix(self.seen.as_str()) {
            Some(new) => new.to_owned(),
            None => self.vocabulary.text(&self.ids[self.sent..]), // what was sent is another character in hindsight
        };
        self.ids.drain(..self.sent);
        self.sent = self.ids.len();
        self.seen = self.vocabulary.text(&self.ids);
        new
    }
}

/// The tokens that end an answer, as `generation_config.json` or `config.json` of a model's folder name them.
pub fn end_of_text_ids(folder: &Path) -> Vec<u32> {
    ["generation_config.json", "config.json"].iter().find_map(|name| ids_in(&folder.join(name))).unwrap_or_default()
}

fn ids_in(file: &Path) -> Option<Vec<u32>> {
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    match config.get("eos_token_id")? {
        serde_json::Value::Array(many) => many.iter().map(|one| one.as_u64().map(|id| id as u32)).collect(),
        one => one.as_u64().map(|id| vec![id as u32]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::AddedToken;
    use tokenizers::decoders::{byte_fallback::ByteFallback, fuse::Fuse, sequence::Sequence};
    use tokenizers::models::wordlevel::WordLevel;

    const END: u32 = 4;
    const LINE_BREAK: u32 = 5;
    const A: u32 = 6;

    /// Ids 0 to 3 are the bytes of a rocket.
    fn vocabulary() -> Vocabulary {
        let tokens = ["<0xF0>", "<0x9F>", "<0x9A>", "<0x80>", "</s>", "<0x0A>", "a"];
        let vocabulary = tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect();
        let model = WordLevel::builder().vocab(vocabulary).unk_token("a".into()).build().unwrap();
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_decoder(Some(Sequence::new(vec![ByteFallback::default().into(), Fuse::default().into()])));
        tokenizer.add_special_tokens([AddedToken::from("</s>", true)]).unwrap();
        Vocabulary(Arc::new(tokenizer))
    }

    #[test]
    fn a_special_token_before_a_character_of_four_tokens_does_not_count_as_one_of_them() {
        let mut text = vocabulary().stream(&[A]);
        let pieces: Vec<String> = [END, 0, 1, 2, 3].into_iter().map(|id| text.push(id)).collect();
        assert_eq!(pieces, ["", "", "", "", "\u{1F680}"]);
    }

    #[test]
    fn text_after_a_byte_that_was_sent_and_is_none_in_hindsight_is_kept() {
        let mut text = vocabulary().stream(&[A]);
        let pieces: Vec<String> = [LINE_BREAK, 0, A].into_iter().map(|id| text.push(id)).collect();
        assert_eq!(pieces, ["\n", "", "\u{FFFD}a"]);
    }
}
