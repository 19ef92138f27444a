//! What a lookup costs: instructions counted, and time measured beside the HTTP that carries it.
//!
//! # Layout
//!
//! `world` who asks for whom · `memory` the service without a disk · `bare` HTTP without a service · `pieces` what a lookup
//! is made of. `script` clients that cost nothing · `counted` what is counted · `callgrind` how · `figures` what was accepted:
//! `src/bin/instructions.rs`. `load` asks servers · `machine` what they
//! take of it · `contender` starts the servers that are compared ·
//! `system_calls` counts theirs · `table` what is printed · `scale` what grows · `plot` how it
//! is drawn: `src/bin/rig.rs`.

#![forbid(unsafe_code)]

pub mod world;

pub mod memory;

pub mod bare;

pub mod pieces;

pub mod script;

pub mod counted;

pub mod callgrind;

pub mod figures;

pub mod load;

pub mod machine;

pub mod contender;

pub mod table;

pub mod system_calls;

pub mod scale;

pub mod plot;
