//! Stop strings: which text may be sent, and which must wait because it could still become one.

/// Text held back while a stop string may be forming.
#[derive(Debug, Default)]
pub struct Held {
    stops: Vec<String>,
    text: String,
}

impl Held {
    pub fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), text: String::new() }
    }

    /// Add text; returns what may be sent, and whether a stop string was met (it is left out).
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.stops.is_empty() {
            return (text.to_owned(), false);
        }
        self.text.push_str(text);
        let (send, keep, met) = until_stop(&self.text, &self.stops);
        let send = send.to_owned();
        self.text = keep.to_owned();
        (send, met)
    }

    /// The answer has ended without a stop string: returns what was held back.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// Split text into what may be sent, what could still become a stop string, and whether one was met.
pub fn until_stop<'t>(text: &'t str, stops: &[String]) -> (&'t str, &'t str, bool) {
    if let Some(cut) = stops.iter().filter_map(|stop| text.find(stop.as_str())).min() {
        return (&text[..cut], "", true);
    }
    let longest = stops.iter().map(|stop| forming(text, stop)).max().unwrap_or(0);
    let cut = text.len() - longest;
    (&text[..cut], &text[cut..], false)
}

/// Bytes at the end of `text` that are the beginning of `stop`.
fn forming(text: &str, stop: &str) -> usize {
    let mut ends = stop.char_indices().map(|(at, one)| at + one.len_utf8()).rev();
    ends.find(|&end| text.ends_with(&stop[..end])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_held_back_exactly_as_long_as_it_may_become_a_stop_string() {
        for (text, stops, expected) in [
            ("hello", vec![], ("hello", "", false)),
            ("hello", vec!["lo!"], ("hel", "lo", false)),
            ("hello", vec!["ll"], ("he", "", true)),
            ("hello", vec!["xyz"], ("hello", "", false)),
            ("a\n", vec!["\n\n"], ("a", "\n", false)),
            ("héé", vec!["ééé"], ("h", "éé", false)),
            ("abcab", vec!["abx", "cabs"], ("ab", "cab", false)),
            ("one END two", vec!["two", "END"], ("one ", "", true)),
        ] {
            let stops: Vec<String> = stops.into_iter().map(String::from).collect();
            assert_eq!(until_stop(text, &stops), expected, "{text:?} with {stops:?}");
        }
    }

    #[test]
    fn what_was_held_back_goes_out_when_it_did_not_become_one() {
        let mut held = Held::new(&["END".into()]);
        assert_eq!(held.push("the E"), ("the ".into(), false));
        assert_eq!(held.push("N"), (String::new(), false));
        assert_eq!(held.push("ough"), ("ENough".into(), false));
        assert_eq!(held.push(" E"), (" ".into(), false));
        assert_eq!(held.rest(), "E");
    }
}
