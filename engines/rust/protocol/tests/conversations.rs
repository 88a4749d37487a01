//! The recorded conversations in `tests/data/protocol`, which `tests/engines/rust/test_protocol.py` reads from the other side.

use enginebench_protocol::{ToChild, ToParent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Who spoke, and what: `{"parent": …}` or `{"child": …}` per line.
fn recorded(name: &str) -> Vec<(String, Value)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/protocol").join(name);
    let lines = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows = lines.lines().map(|line| serde_json::from_str::<BTreeMap<String, Value>>(line).unwrap());
    rows.map(|row| row.into_iter().next().unwrap()).collect()
}

#[test]
fn every_message_survives_being_read_and_written() {
    for (who, message) in ["messages.jsonl", "echo.jsonl"].into_iter().flat_map(recorded) {
        let again = match who.as_str() {
            "parent" => serde_json::to_string(&serde_json::from_value::<ToChild>(message.clone()).unwrap()),
            _ => serde_json::to_string(&serde_json::from_value::<ToParent>(message.clone()).unwrap()),
        };
        let again: Value = serde_json::from_str(&again.unwrap()).unwrap();
        assert_eq!(again, message);
    }
}

#[test]
fn what_a_newer_parent_adds_is_ignored() {
    let grown = r#"{"type":"generate","id":1,"prompt":"p","prompt_token_ids":[1],"max_tokens":1,"beam_width":4}"#;
    let plain = r#"{"type":"generate","id":1,"prompt":"p","prompt_token_ids":[1],"max_tokens":1}"#;
    let read = |line| serde_json::from_str::<ToChild>(line).unwrap();
    assert_eq!(read(grown), read(plain));
}

#[test]
fn the_echo_engine_holds_the_recorded_conversation() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_enginebench-echo"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to_child = child.stdin.take().unwrap();
    let from_child = BufReader::new(child.stdout.take().unwrap());
    let (sender, heard) = channel();
    thread::spawn(move || from_child.lines().try_for_each(|line| sender.send(line.unwrap())));
    for turn in recorded("echo.jsonl").chunk_by(|one, next| one.0 == next.0) {
        if turn[0].0 == "parent" {
            turn.iter().for_each(|(_, message)| writeln!(to_child, "{message}").unwrap());
            continue;
        }
        let heard = turn.iter().map(|_| heard.recv_timeout(Duration::from_secs(10)).expect("the child says more"));
        let heard = heard.map(|line| serde_json::from_str(&line).unwrap());
        assert_eq!(by_answer(heard), by_answer(turn.iter().map(|(_, message)| message.clone())));
    }
    drop(to_child); // the end of its input is the end of the engine
    assert!(child.wait().unwrap().success());
}

/// Lines of different answers may be mixed: they are compared answer by answer.
fn by_answer(messages: impl Iterator<Item = Value>) -> BTreeMap<String, Vec<Value>> {
    let mut sorted: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in messages {
        sorted.entry(message.get("id").map_or_else(String::new, Value::to_string)).or_default().push(message);
    }
    sorted
}
