#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| enrich_fuzz::email(data));
