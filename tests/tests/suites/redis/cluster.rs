//! Redis Cluster: one master holds the counters of a workspace.

use std::pin::pin;
use std::time::Instant;

use enrich_lib::window::Window;
use enrich_redis::{RedisUrl, RedisWindows, WindowStoreError};
use enrich_tests::servers::{Redis, RedisCluster, RedisOptions};

use super::{TIMEOUT, count, key, long_timeouts, now, open, recovered, window};

#[tokio::test]
async fn cluster_masters_share_the_workspaces() {
    let cluster = RedisCluster::start();
    let [a, b] = [(); 2].map(|()| open(&cluster.url(), long_timeouts()));
    for workspace in 0..30 {
        let window = window(&format!("workspace-{workspace}"));
        assert_eq!(count(&a, &window).await, Ok(1));
        assert_eq!(count(&b, &window).await, Ok(2));
    }
    assert_eq!(a.check(now()).await, Ok(()));
    for master in &cluster.masters {
        assert!(master.ask::<u64>("DBSIZE") > 0, "{:?} counts nothing", master);
    }
}

#[tokio::test]
async fn counts_in_a_cluster_over_tls() {
    let cluster = RedisCluster::with_tls();
    let url: RedisUrl = cluster.tls_url().parse().unwrap();
    let trusting = |redis: &Redis| {
        RedisWindows::open(&url.clone().trusting(redis.authority()), long_timeouts(), 7).unwrap()
    };
    assert_eq!(count(&trusting(&cluster.masters[0]), &window("demo")).await, Ok(1));
    let other = Redis::with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let fault = count(&trusting(&other), &window("demo")).await.unwrap_err();
    assert!(matches!(fault, WindowStoreError::Unreachable(_)), "{fault}");
}

#[tokio::test]
async fn connects_to_a_cluster_of_which_a_master_does_not_respond() {
    let cluster = RedisCluster::start();
    cluster.masters[2].pause();
    let windows = open(&cluster.url(), super::short_timeouts());
    recovered(&windows, &of_master(&cluster, 0)).await;
}

/// Returns a window of a workspace whose counters a master has.
fn of_master(cluster: &RedisCluster, master: usize) -> Window {
    let slot = |window: &_| cluster.masters[0].ask::<usize>(&format!("CLUSTER KEYSLOT {}", key(window)));
    let mut all = (0..30).map(|workspace| window(&format!("workspace-{workspace}")));
    // The first slots of the other masters.
    all.find(|window| [5_461, 10_923].iter().filter(|first| slot(window) >= **first).count() == master)
        .unwrap()
}

/// They are counted again when another master has its slots, as after a failover.
#[tokio::test]
async fn master_that_hangs_affects_only_its_workspaces() {
    let cluster = RedisCluster::start();
    let windows = open(&cluster.url(), super::short_timeouts());
    let [hung, other] = [2, 0].map(|master| of_master(&cluster, master));
    recovered(&windows, &hung).await;
    recovered(&windows, &other).await;
    cluster.masters[2].pause();
    let hangs = async {
        for _ in 0..40 {
            assert!(count(&windows, &hung).await.is_err());
        }
    };
    let (mut hangs, mut counted, mut failed) = (pin!(hangs), 0, 0);
    loop {
        tokio::select! {
            () = &mut hangs => break,
            result = count(&windows, &other) => match result {
                Ok(_) => counted += 1,
                Err(_) => failed += 1,
            },
        }
    }
    // A client that waits for the master that hangs would count no other workspace meanwhile.
    assert!(failed <= 8 && counted > 1_000, "{failed} of {counted} failed");
    let id: String = cluster.masters[0].ask("CLUSTER MYID");
    let slot: u16 = cluster.masters[0].ask(&format!("CLUSTER KEYSLOT {}", key(&hung)));
    for master in &cluster.masters[..2] {
        master.ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
    }
    recovered(&windows, &hung).await;
}

#[tokio::test]
async fn cluster_counts_again_after_a_master_returns() {
    let cluster = RedisCluster::start();
    let windows = open(&cluster.url(), super::short_timeouts());
    let all: Vec<_> = (0..30).map(|workspace| window(&format!("workspace-{workspace}"))).collect();
    for window in &all {
        recovered(&windows, window).await;
    }
    cluster.masters[0].kill();
    let started = Instant::now();
    let mut failed = 0;
    while failed == 0 {
        for window in &all {
            failed += u32::from(count(&windows, window).await.is_err());
        }
        assert!(started.elapsed() < TIMEOUT, "the failure was not detected");
    }
    cluster.masters[0].restart();
    for window in &all {
        recovered(&windows, window).await;
    }
}
