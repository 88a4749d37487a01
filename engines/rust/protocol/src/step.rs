//! Attention of several sequences at once, as far as it is bookkeeping: which tokens of a step are computed together, and
//! which rows of shared keys and values are theirs.
//!
//! On a GPU a kernel's launch costs more than its work for one sequence. So keys and values of all sequences may be rows
//! of one tensor: a step writes its new rows, and gathers those that each group of sequences needs.

use crate::batch::Piece;
use std::collections::BTreeMap;

const ROOM: usize = 128; // rows by which a tensor grows, at least

/// Consecutive tokens of the sequence in `slot`, of which `start` are known.
#[derive(Clone, Copy)]
pub struct Part {
    pub slot: usize,
    pub start: usize,
    pub tokens: usize,
}

/// Sequences with as many new tokens each, computed together, all as wide as the longest.
pub struct Group {
    pub parts: Vec<Part>,
    /// Tokens of the longest sequence, the new ones included, or the next multiple that [`Rows`] has.
    pub known: usize,
    /// Where they are: `[sequences * known]`. A shorter sequence is filled up with a row of its own.
    pub rows: Vec<u32>,
    /// What is added to scores, `[sequences * tokens * known]`: minus infinity for what comes after a token, or fills up.
    /// `None` where nothing does.
    pub mask: Option<Vec<f32>>,
}

impl Group {
    /// New ones of each sequence.
    pub fn tokens(&self) -> usize {
        self.parts[0].tokens
    }
}

/// The tokens of a step in the order in which they are computed: group by group.
pub struct Step {
    pub groups: Vec<Group>,
    pub ids: Vec<u32>,
    pub positions: Vec<u32>,
    /// Row of each token, and how many rows there must be.
    pub new_rows: Vec<u32>,
    pub room: usize,
    ends: Vec<(bool, u32)>,
}

/// Which rows the tokens of each slot have.
pub struct Rows {
    of: BTreeMap<usize, Vec<u32>>,
    free: Vec<u32>,
    room: usize,
    multiple: usize,
}

impl Rows {
    /// Groups are filled up to a multiple of so many known tokens. Above 1 all have a mask: the same operations at every
    /// length, for libraries that compile kernels by lengths and operations.
    pub fn new(multiple: usize) -> Self {
        Self { of: BTreeMap::new(), free: Vec::new(), room: 0, multiple }
    }

    /// Forget all sequences; the first `slots` then know `known` tokens each, as if all were in row 0. To try kernels at a
    /// length without a prompt of it.
    pub fn pretend(&mut self, slots: usize, known: usize) {
        *self = Self { of: (0..slots).map(|slot| (slot, vec![0; known])).collect(), ..Self::new(self.multiple) };
    }

    /// The sequence in `slot` has ended.
    pub fn free(&mut self, slot: usize) {
        self.free.extend(self.of.remove(&slot).unwrap_or_default());
    }

    fn extend(&mut self, Part { slot, start, tokens }: Part) {
        if start == 0 {
            self.free(slot);
        }
        if self.free.len() < tokens {
            // An eighth more at least: growing copies what there is.
            let more = (tokens - self.free.len()).max(self.room / 8).next_multiple_of(ROOM);
            self.free.extend((self.room..self.room + more).rev().map(|row| row as u32));
            self.room += more;
        }
        let taken = self.free.split_off(self.free.len() - tokens);
        self.of.entry(slot).or_default().extend(taken.into_iter().rev());
    }
}

impl Step {
    /// Without `rows`, each sequence has keys and values of its own: groups have no rows, and those of single tokens no
    /// mask.
    pub fn new(batch: &[Piece], rows: Option<&mut Rows>) -> Self {
        let mut alike = BTreeMap::<(usize, usize), Vec<usize>>::new();
        for (at, piece) in batch.iter().enumerate() {
            alike.entry(likeness(at, piece)).or_default().push(at);
        }
        let mut step = Self {
            groups: Vec::with_capacity(alike.len()),
            ids: Vec::new(),
            positions: Vec::new(),
            new_rows: Vec::new(),
            room: 0,
            ends: vec![(false, 0); batch.len()],
        };
        for members in alike.values() {
            let mut parts = Vec::with_capacity(members.len());
            for &at in members {
                let Piece { slot, start, tokens, wants_logits } = batch[at];
                step.ids.extend_from_slice(tokens);
                step.positions.extend(start as u32..(start + tokens.len()) as u32);
                step.ends[at] = (wants_logits, step.ids.len() as u32 - 1);
                parts.push(Part { slot, start, tokens: tokens.len() });
            }
            let known = parts.iter().map(|part| part.start + part.tokens).max().unwrap_or_default();
            step.groups.push(Group { parts, known, rows: Vec::new(), mask: None });
        }
        match rows {
            Some(rows) => step.find(rows),
            None => {
                let prompts = step.groups.iter_mut().filter(|group| group.tokens() > 1);
                prompts.for_each(|group| group.mask = Some(mask(group)));
            }
        }
        step
    }

    fn find(&mut self, rows: &mut Rows) {
        for group in &mut self.groups {
            for &part in &group.parts {
                rows.extend(part);
                self.new_rows.extend_from_slice(&rows.of[&part.slot][part.start..]);
            }
            group.known = group.known.next_multiple_of(rows.multiple);
            let known = group.parts.iter().map(|part| &rows.of[&part.slot]);
            group.rows = known.flat_map(|own| (0..group.known).map(|at| *own.get(at).unwrap_or(&own[0]))).collect();
            group.mask = (rows.multiple > 1 || hides(group)).then(|| mask(group));
        }
        self.room = rows.room;
    }

    /// Of each piece that wants logits, in the order of the batch: where its last token stands among all.
    pub fn last(&self) -> Vec<u32> {
        self.ends.iter().filter(|(wanted, _)| *wanted).map(|&(_, at)| at).collect()
    }
}

/// Equal for pieces that are computed together: single tokens of sequences whose lengths differ by a factor of four at
/// most; a prompt is computed alone.
fn likeness(at: usize, piece: &Piece) -> (usize, usize) {
    match piece.tokens.len() {
        1 => (0, (piece.start + 1).ilog2() as usize / 2),
        _ => (1, at),
    }
}

/// Whether anything is to be hidden from a token.
fn hides(group: &Group) -> bool {
    group.tokens() > 1 || group.parts.iter().any(|part| part.start + 1 < group.known)
}

fn mask(group: &Group) -> Vec<f32> {
    let row = |last: usize| (0..group.known).map(move |at| if at > last { f32::NEG_INFINITY } else { 0.0 });
    group.parts.iter().flat_map(|part| (0..part.tokens).flat_map(move |at| row(part.start + at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_where_the_last_token_of_each_piece_stands() {
        let batch = [
            Piece { slot: 0, start: 0, tokens: &[10, 11, 12], wants_logits: true },
            Piece { slot: 3, start: 2, tokens: &[40, 41], wants_logits: false },
            Piece { slot: 1, start: 70, tokens: &[20], wants_logits: true },
            Piece { slot: 2, start: 6, tokens: &[30], wants_logits: true },
        ];
        let step = Step::new(&batch, None);
        let last: Vec<u32> = step.last().into_iter().map(|at| step.ids[at as usize]).collect();
        assert_eq!(last, [12, 20, 30]);
        assert_eq!(step.groups.len(), 4); // 71 tokens are too many beside 7
        let masked: Vec<bool> = step.groups.iter().map(|group| group.mask.is_some()).collect();
        assert_eq!(masked, [false, false, true, true]);
    }

    #[test]
    fn a_shorter_sequence_is_filled_up_and_that_is_hidden() {
        let mut rows = Rows::new(1);
        let prompt = |slot, tokens| Piece { slot, start: 0, tokens, wants_logits: false };
        Step::new(&[prompt(0, &[1, 2]), prompt(1, &[1, 2, 3])], Some(&mut rows));
        let next = |slot, start| Piece { slot, start, tokens: &[9], wants_logits: true };
        let step = Step::new(&[next(0, 2), next(1, 3)], Some(&mut rows));
        assert_eq!((step.groups[0].known, step.groups.len()), (3, 2)); // lengths from 4 on are another group's
        let step = Step::new(&[next(0, 3), next(1, 4)], Some(&mut rows));
        let [group] = &step.groups[..] else { panic!("one group") };
        assert_eq!(group.rows, [0, 1, 5, 7, 0, 2, 3, 4, 6, 8]);
        assert_eq!(step.new_rows, [7, 8]);
        let hidden: Vec<bool> = group.mask.as_ref().unwrap().iter().map(|number| number.is_infinite()).collect();
        assert_eq!(hidden, [false, false, false, false, true, false, false, false, false, false]);
    }

    #[test]
    fn groups_are_filled_up_to_a_multiple_and_have_a_mask_there_too() {
        let mut rows = Rows::new(4);
        let mut group = |start: usize, tokens| {
            let batch = [Piece { slot: 0, start, tokens, wants_logits: true }];
            Step::new(&batch, Some(&mut rows)).groups.remove(0)
        };
        let hidden = |group: &Group| -> Vec<bool> {
            group.mask.as_ref().unwrap().iter().map(|number| number.is_infinite()).collect()
        };
        let first = group(0, &[1, 2, 3]);
        assert_eq!((first.known, &first.rows[..]), (4, &[0, 1, 2, 0][..]));
        let wanted = [[false, true, true, true], [false, false, true, true], [false, false, false, true]];
        assert_eq!(wanted.concat(), hidden(&first));
        let full = group(3, &[4]);
        assert_eq!((full.known, vec![false; 4]), (4, hidden(&full)));
        assert_eq!(group(4, &[5]).known, 8);
    }

    #[test]
    fn pretended_sequences_know_one_row_and_leave_none() {
        let mut rows = Rows::new(1);
        rows.pretend(2, 5);
        let next = |slot| Piece { slot, start: 5, tokens: &[9], wants_logits: true };
        let step = Step::new(&[next(0), next(1)], Some(&mut rows));
        assert_eq!((step.groups[0].known, &step.groups[0].rows[..6]), (6, &[0; 6][..]));
        rows.pretend(0, 0);
        let step = Step::new(&[Piece { slot: 1, start: 0, tokens: &[1, 2], wants_logits: true }], Some(&mut rows));
        assert_eq!((step.groups[0].rows.as_slice(), step.room), (&[0, 1][..], ROOM));
    }

    #[test]
    fn the_rows_of_a_sequence_that_ended_are_taken_again() {
        let mut rows = Rows::new(1);
        for round in 0..5 {
            for slot in 0..3 {
                rows.extend(Part { slot, start: 0, tokens: 40 });
                rows.extend(Part { slot, start: 40, tokens: 1 });
            }
            assert_eq!(rows.room, ROOM, "{round}");
            (0..3).for_each(|slot| rows.free(slot));
        }
    }
}
