//! Differential tests: the simulation's fake Redis against a real one. The store contract compares the fake
//! PostgreSQL.

mod redis;
