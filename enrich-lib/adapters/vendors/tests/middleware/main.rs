//! Tests of each middleware with vendors that answer, fail, hang and recover. Time is paused.

mod breaker;
mod cache;
mod coalesce;
mod decoy;
mod limit;
mod opt_out_filter;
mod privacy;
mod retry;
mod scripted;
mod sequences;
mod stack;
mod waterfall;
