//! Keys and values of all sequences in one layer, and attention over those of a group. On a GPU, where the launch of a
//! kernel costs more than its work for one sequence.

use burn::prelude::*;
use burn::tensor::{DType, IndexingUpdateOp, Int, activation};
use enginebench_protocol::{Group, Step};

/// What a step needs on its device, once for all layers.
pub struct Gathering {
    new_rows: Tensor<1, Int>,
    /// Of each group, the rows of its known tokens, and its mask: `[sequences, 1, 1, tokens, known]`.
    groups: Vec<(Tensor<1, Int>, Option<Tensor<5>>)>,
}

impl Gathering {
    pub fn of(step: &Step, device: &Device, dtype: DType) -> Self {
        let indices = |rows: &[u32]| {
            let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
            let count = rows.len();
            Tensor::from_data(TensorData::new(rows, [count]), device)
        };
        let mask = |group: &Group| {
            let shape = [group.parts.len(), 1, 1, group.tokens(), group.known];
            group.mask.clone().map(|numbers| Tensor::from_data(TensorData::new(numbers, shape), (device, dtype)))
        };
        Self {
            new_rows: indices(&step.new_rows),
            groups: step.groups.iter().map(|group| (indices(&group.rows), mask(group))).collect(),
        }
    }
}

/// `[rows, heads, size]` each.
#[derive(Default)]
pub struct SharedCache {
    both: Option<(Tensor<3>, Tensor<3>)>,
}

impl SharedCache {
    /// Keep keys and values (`[tokens, heads, size]`) of a step's tokens.
    pub fn append(&mut self, step: &Step, gathering: &Gathering, keys: Tensor<3>, values: Tensor<3>) {
        let (old_keys, old_values) = match self.both.take() {
            None => (None, None),
            Some((keys, values)) => (Some(keys), Some(values)),
        };
        let written = |old, new: Tensor<3>| {
            let rows = gathering.new_rows.clone();
            // Nobody else holds the old tensor, so Burn writes in place.
            with_room(old, &new, step.room).select_assign(0, rows, new, IndexingUpdateOp::Assign)
        };
        self.both = Some((written(old_keys, keys), written(old_values, values)));
    }

    /// What a step's queries (`[tokens, query heads, size]`) find: `[tokens, query heads * size]`.
    pub fn attend(&self, step: &Step, gathering: &Gathering, queries: Tensor<3>) -> Tensor<2> {
        let (keys, values) = self.both.as_ref().expect("keys are written before they are read");
        let [_, heads, size] = queries.dims();
        // Scaled before the product, which may be beyond the largest 16-bit number.
        let queries = queries * (size as f64).powf(-0.5);
        let mut answers = Vec::with_capacity(step.groups.len());
        let mut first = 0;
        for (group, (rows, mask)) in step.groups.iter().zip(&gathering.groups) {
            let end = first + group.parts.len() * group.tokens();
            let known = |all: &Tensor<3>| all.clone().select(0, rows.clone());
            let queries = queries.clone().slice([first..end, 0..heads, 0..size]);
            answers.push(of_group(group, queries, known(keys), known(values), mask.as_ref()));
            first = end;
        }
        if answers.len() == 1 { answers.remove(0) } else { Tensor::cat(answers, 0) }
    }
}

fn with_room(old: Option<Tensor<3>>, like: &Tensor<3>, room: usize) -> Tensor<3> {
    let [_, heads, size] = like.dims();
    let zeros = |count| Tensor::zeros([count, heads, size], (&like.device(), like.dtype()));
    match old {
        None => zeros(room),
        Some(old) if old.dims()[0] < room => {
            let more = zeros(room - old.dims()[0]);
            Tensor::cat(vec![old, more], 0)
        }
        Some(old) => old,
    }
}

/// `keys` and `values`: `[sequences * known, heads, size]`.
fn of_group(
    group: &Group,
    queries: Tensor<3>,
    keys: Tensor<3>,
    values: Tensor<3>,
    mask: Option<&Tensor<5>>,
) -> Tensor<2> {
    let [count, heads, size] = queries.dims();
    let [_, kv_heads, _] = keys.dims();
    let (sequences, tokens, known, each) = (group.parts.len(), group.tokens(), group.known, heads / kv_heads);
    let by_head = |all: Tensor<3>| all.reshape([sequences, known, kv_heads, size]).permute([0, 2, 1, 3]);
    // The query heads of a group share their keys: they stand in one matrix, head by head.
    let queries = queries.reshape([sequences, tokens, kv_heads, each, size]).permute([0, 2, 3, 1, 4]);
    let queries = queries.reshape([sequences, kv_heads, each * tokens, size]);
    let scores = queries.matmul(by_head(keys).swap_dims(2, 3));
    let scores = match mask {
        None => scores,
        Some(mask) => {
            let scores: Tensor<5> = scores.reshape([sequences, kv_heads, each, tokens, known]);
            (scores + mask.clone()).reshape([sequences, kv_heads, each * tokens, known])
        }
    };
    let found = activation::softmax(scores, 3).matmul(by_head(values));
    let found = found.reshape([sequences, kv_heads, each, tokens, size]).permute([0, 3, 1, 2, 4]);
    found.reshape([count, heads * size])
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::kernels::FILL;
    use burn::tensor::Distribution;
    use enginebench_protocol::{Piece, Rows};

    /// Prompts in pieces, sequences of one length and of others, a slot that is used again, more rows than at first.
    #[test]
    fn both_ways_of_attention_agree() {
        let device = Device::flex();
        let random = |count: usize, heads: usize| {
            Tensor::<3>::random([count, heads, 16], Distribution::Normal(0.0, 1.0), (&device, DType::F32))
        };
        let (mut shared, mut own) = (SharedCache::default(), [(); 4].map(|()| Cache::default()));
        let mut rows = Rows::new(FILL);
        let steps: [&[(usize, usize, usize)]; 6] = [
            &[(0, 0, 5)],
            &[(0, 5, 1), (1, 0, 150)],
            &[(2, 0, 6), (0, 6, 1), (1, 150, 1)],
            &[(1, 151, 1), (0, 7, 1), (2, 6, 1)],
            &[(0, 0, 1), (2, 7, 40), (3, 0, 1)],
            &[(0, 1, 1), (3, 1, 1)],
        ];
        for pieces in steps {
            let tokens = [7; 150];
            let piece = |&(slot, start, count): &(usize, usize, usize)| Piece {
                slot,
                start,
                tokens: &tokens[..count],
                wants_logits: true,
            };
            let batch: Vec<Piece> = pieces.iter().map(piece).collect();
            let step = Step::new(&batch, Some(&mut rows));
            let count = step.ids.len();
            let (queries, keys, values) = (random(count, 6), random(count, 2), random(count, 2));
            let gathering = Gathering::of(&step, &device, DType::F32);
            shared.append(&step, &gathering, keys.clone(), values.clone());
            let found = shared.attend(&step, &gathering, queries.clone());
            let mut first = 0;
            for part in step.groups.iter().flat_map(|group| &group.parts) {
                let of = |all: &Tensor<3>| {
                    let [_, heads, size] = all.dims();
                    all.clone().slice([first..first + part.tokens, 0..heads, 0..size])
                };
                let cache = &mut own[part.slot];
                if part.start == 0 {
                    *cache = Cache::default();
                }
                cache.append(part.start, of(&keys), of(&values));
                let expected = cache.attend(of(&queries), crate::cache::mask(part, 3, &device, DType::F32).as_ref());
                let here = found.clone().slice([first..first + part.tokens, 0..96]);
                let most = (expected - here).abs().max().into_scalar::<f32>();
                assert!(most < 1e-5, "{pieces:?}: {most}");
                first += part.tokens;
            }
        }
    }
}
