//! Keys and values of one layer and one sequence, and attention over them.

use burn::prelude::*;
use burn::tensor::{DType, activation};
use enginebench_protocol::Part;

const FIRST_ROOM: usize = 128; // tokens; doubled whenever it is full

/// Token by token: `[room, heads, size]`, of which `held` rows are filled.
#[derive(Default)]
pub struct Cache {
    both: Option<(Tensor<3>, Tensor<3>)>,
    held: usize,
}

impl Cache {
    /// Write keys and values (`[tokens, heads, size]`) at `start`.
    pub fn append(&mut self, start: usize, keys: Tensor<3>, values: Tensor<3>) {
        let [count, heads, size] = keys.dims();
        self.held = start + count;
        let (old_keys, old_values) = self.both.take().unwrap_or_else(|| (empty(&keys), empty(&values)));
        let (old_keys, old_values) = (self.with_room(old_keys), self.with_room(old_values));
        let rows = [start..self.held, 0..heads, 0..size];
        // Nobody else holds the old tensors, so Burn writes in place.
        self.both = Some((old_keys.slice_assign(rows.clone(), keys), old_values.slice_assign(rows, values)));
    }

    fn with_room(&self, old: Tensor<3>) -> Tensor<3> {
        let [room, heads, size] = old.dims();
        if room >= self.held {
            return old;
        }
        let wanted = self.held.next_power_of_two().max(FIRST_ROOM);
        let grown = Tensor::zeros([wanted, heads, size], (&old.device(), old.dtype()));
        if room == 0 { grown } else { grown.slice_assign([0..room, 0..heads, 0..size], old) }
    }

    /// What queries (`[tokens, query heads, size]`) find: `[tokens, query heads * size]`.
    pub fn attend(&self, queries: Tensor<3>, mask: Option<&Tensor<3>>) -> Tensor<2> {
        let (keys, values) = self.both.as_ref().expect("keys are written before they are read");
        let [count, heads, size] = queries.dims();
        let [_, kv_heads, _] = keys.dims();
        let groups = heads / kv_heads;
        let held = [0..self.held, 0..kv_heads, 0..size];
        let keys = keys.clone().slice(held.clone()).permute([1, 2, 0]);
        let values = values.clone().slice(held).permute([1, 0, 2]);
        // The query heads of a group share their keys: they stand in one matrix, head by head.
        let queries = match count {
            1 => queries.reshape([kv_heads, groups, size]),
            _ => queries.permute([1, 0, 2]).reshape([kv_heads, groups * count, size]),
        };
        // Scaled before the product, which may be beyond the largest 16-bit number.
        let scores = (queries * (size as f64).powf(-0.5)).matmul(keys);
        let scores = match mask {
            Some(mask) => scores + mask.clone(),
            None => scores,
        };
        let found = activation::softmax(scores, 2).matmul(values);
        match count {
            1 => found.reshape([1, heads * size]),
            _ => found.reshape([heads, count, size]).permute([1, 0, 2]).reshape([count, heads * size]),
        }
    }
}

/// What is added to a sequence's scores. Rows: its new tokens, once for each of the `each` query heads of a key's.
/// Columns: everything up to the last of them. Minus infinity where a token would look ahead; `None` for a single one.
pub fn mask(part: &Part, each: usize, device: &Device, dtype: DType) -> Option<Tensor<3>> {
    let Part { start, tokens, .. } = *part;
    if tokens == 1 {
        return None;
    }
    let end = start + tokens;
    let row = |at: usize| (0..end).map(move |other| if other > at { f32::NEG_INFINITY } else { 0.0 });
    let values: Vec<f32> = (0..each).flat_map(|_| (start..end).flat_map(row)).collect();
    Some(Tensor::from_data(TensorData::new(values, [1, each * tokens, end]), (device, dtype)))
}

fn empty(like: &Tensor<3>) -> Tensor<3> {
    let [_, heads, size] = like.dims();
    Tensor::empty([0, heads, size], (&like.device(), like.dtype()))
}
