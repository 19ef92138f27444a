//! Replays every committed input with its fuzz target, on stable Rust.

use std::cell::Cell;
use std::fs;
use std::panic;
use std::path::Path;
use std::sync::Once;

thread_local! {
    /// Set by the panic hook: the server survives a panic in a connection. It runs on the test's own thread.
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

fn replay(target: &str, run: fn(&[u8])) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            HAS_PANICKED.set(true);
            print(info);
        }));
    });

    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut inputs: Vec<_> =
        fs::read_dir(&corpus).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 5, "{} has {} inputs", corpus.display(), inputs.len());
    for input in inputs {
        println!("{}", input.display());
        run(&fs::read(&input).expect("an input"));
        assert!(!HAS_PANICKED.get(), "the target panicked in a task");
    }
}

#[test]
fn email() {
    replay("email", enrich_fuzz::email);
}

#[test]
fn http() {
    replay("http", enrich_fuzz::http);
}

#[test]
fn people() {
    replay("people", enrich_fuzz::people);
}
