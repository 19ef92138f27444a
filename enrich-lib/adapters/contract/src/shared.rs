//! Rules for windows that several nodes share.

use std::sync::Arc;

use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;

use crate::concurrency::together;
use crate::windows::{counts, window};

/// Generates the tests of the rules for shared windows.
///
/// `$open` returns `([Arc<dyn Windows>; 2], Timestamp)`: two nodes' connections to one store, and the store's
/// current time.
#[macro_export]
macro_rules! shared_contract {
    ($($open:tt)*) => {
        $crate::rules! { shared, ($($open)*),
            concurrent_requests_to_two_nodes_get_distinct_counts
        }
    };
}

pub async fn concurrent_requests_to_two_nodes_get_distinct_counts(
    (nodes, now): ([Arc<dyn Windows>; 2], Timestamp),
) {
    let window = window("demo", now);
    let counted = together(|i| {
        let (windows, window) = (nodes[i as usize % 2].clone(), window.clone());
        async move { counts(&*windows, &window, 4).await }
    });
    let mut all = counted.await.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=256).collect::<Vec<u64>>());
}
