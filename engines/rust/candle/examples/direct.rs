//! candle-transformers' Llama in a plain loop, to see what the engine adds: `direct FOLDER PROMPT_TOKENS TOKENS` prints
//! the seconds from the first to the last token. `validation/speed/candle_direct.py` runs it.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, prompt, tokens] = arguments.as_slice() else { return Err("FOLDER PROMPT_TOKENS TOKENS".into()) };
    let config = std::fs::read(format!("{folder}/config.json"))?;
    let config = serde_json::from_slice::<LlamaConfig>(&config)?.into_config(false);
    let files = [format!("{folder}/model.safetensors")];
    // SAFETY: the file is not changed while this runs.
    let weights = unsafe { VarBuilder::from_mmaped_safetensors(&files, DType::F32, &Device::Cpu)? };
    let model = Llama::load(weights, &config)?;
    let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    let mut next: Vec<u32> = (0..prompt.parse()?).map(|at| 100 + 37 * at % 40_000).collect();
    let (mut position, mut begun) = (0, Instant::now());
    for produced in 0..tokens.parse()? {
        let input = Tensor::new(next.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
        let logits = model.forward(&input, position, &mut cache)?;
        position += next.len();
        next = vec![logits.squeeze(0)?.argmax(0)?.to_scalar::<u32>()?];
        if produced == 0 {
            begun = Instant::now();
        }
    }
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}
