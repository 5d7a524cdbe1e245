//! Clusters, Sentinels, and a failover to a replica that lags.

use super::{CLOCKS, all, assert_apart, get, says, site};
use crate::support::redis::Redis;
use crate::support::{Binary, Origin};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Three masters and a replica of the first.
struct Cluster {
    masters: Vec<Redis>,
    replica: Redis,
}

impl Cluster {
    async fn start() -> Option<Self> {
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.push(Redis::cluster_node().await?);
        }
        for (number, node) in nodes.iter().enumerate() {
            let mut connection = node.connection().await;
            let mut epoch = redis::cmd("CLUSTER");
            let () = epoch.arg("SET-CONFIG-EPOCH").arg(number + 1).query_async(&mut connection).await.expect("new");
            if let Some((from, to)) = [(0, 5460), (5461, 10922), (10923, 16383)].get(number) {
                let mut slots = redis::cmd("CLUSTER");
                slots.arg("ADDSLOTSRANGE").arg(from).arg(to);
                let () = slots.query_async(&mut connection).await.expect("Redis 7");
            }
            let mut meet = redis::cmd("CLUSTER");
            let () = meet
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(nodes[0].address().port())
                .query_async(&mut connection)
                .await
                .expect("a cluster node");
        }
        let replica = nodes.pop().expect("four");
        let cluster = Self { masters: nodes, replica };
        let first: String = redis::cmd("CLUSTER")
            .arg("MYID")
            .query_async(&mut cluster.masters[0].connection().await)
            .await
            .expect("a cluster node");
        // The Sentinel has to learn the first server before it can fail over.
        soon("the replica follows", async || {
            let mut connection = cluster.replica.connection().await;
            let followed: Result<(), _> =
                redis::cmd("CLUSTER").arg("REPLICATE").arg(&first).query_async(&mut connection).await;
            followed.is_ok()
        })
        .await;
        for node in cluster.masters.iter().chain([&cluster.replica]) {
            soon("the cluster is up", async || {
                let mut connection = node.connection().await;
                let info: String =
                    redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.expect("a node");
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4")
            })
            .await;
        }
        follows(&cluster.replica).await;
        Some(cluster)
    }

    fn url(&self) -> String {
        format!("redis+cluster://{}?node={}", self.masters[1].address(), self.masters[2].address())
    }
}

/// The replica has everything.
async fn follows(replica: &Redis) {
    soon("the replica is in step", async || {
        let mut connection = replica.connection().await;
        let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await.expect("a node");
        info.contains("master_link_status:up")
    })
    .await;
}

async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn fleet(url: &str, count: usize) -> Vec<Binary> {
    let mut fleet = Vec::new();
    for _ in 0..count {
        fleet.push(Binary::serve(&format!("fleet: '{url}'\non_fleet_loss: refuse")).await);
    }
    for instance in &fleet {
        soon("it has joined", async || says(instance, "joined the fleet")).await;
    }
    fleet
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_of_a_fleet_are_spread_over_a_cluster() {
    let Some(cluster) = Cluster::start().await else { return };
    // Its file is stored apart from the copies, on one of the nodes.
    let comments = (0..50).map(|number| format!("# {number}\n")).collect::<String>();
    let origin = Origin::site(&format!("User-agent: *\nCrawl-delay: 0.3\n{comments}")).await;
    let fleet = fleet(&cluster.url(), 2).await;
    let hosts: Vec<String> = (0..6).map(|number| format!("h{number}.localhost")).collect();
    for host in &hosts {
        for round in 0..2 {
            let url = origin.url_at(host, &format!("/page-{host}-{round}"));
            assert!(all(&fleet, &url).await.iter().all(|response| response.status() == 200));
        }
        assert_apart(&origin.log.starts(&format!("/page-{host}")), Duration::from_millis(300));
    }
    assert_eq!(origin.log.count("/robots.txt"), hosts.len());
    let mut files = 0;
    for master in &cluster.masters {
        let mut connection = master.connection().await;
        let keys: Vec<String> = redis::cmd("KEYS").arg("politely:*").query_async(&mut connection).await.expect("keys");
        assert!(!keys.is_empty(), "each has some");
        files += keys.iter().filter(|key| key.starts_with("politely:text:")).count();
    }
    assert_eq!(files, 1);
}

/// One instance makes a start that the replica does not receive, and the master fails; another instance makes the next start.
async fn keeps_the_gap(fleet: &[Binary], hosts: &[&str], origin: &Origin, failover: impl AsyncFnOnce()) {
    const GAP: Duration = Duration::from_secs(8);
    let mut last = Vec::new();
    for host in hosts {
        assert_eq!(get(&fleet[0], &origin.url_at(host, &format!("/page-{host}"))).await.status(), 200);
        last.push(origin.log.one(&format!("/page-{host}")).at);
    }
    failover().await;
    for (host, last) in hosts.iter().zip(last) {
        soon("it goes on", async || {
            let response = get(&fleet[1], &origin.url_at(host, &format!("/next-{host}"))).await;
            assert!(matches!(response.status(), 200 | 429 | 503), "{}", response.status());
            response.status() == 200
        })
        .await;
        let gap = origin.log.one(&format!("/next-{host}")).at - last;
        assert!(gap + CLOCKS >= GAP, "{host}: {gap:?}");
    }
    assert_eq!(origin.log.count("/robots.txt"), hosts.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clusters_failover_to_a_replica_that_lags_makes_no_start_early() {
    let Some(mut cluster) = Cluster::start().await else { return };
    let origin = site("8").await;
    let fleet = fleet(&cluster.url(), 2).await;
    let hosts = ["h0.localhost", "h1.localhost", "h2.localhost", "h3.localhost", "h4.localhost"];
    // The copies are there before it begins to lag.
    for host in hosts {
        assert_eq!(get(&fleet[1], &origin.url_at(host, "/robots.txt")).await.status(), 200);
    }
    sleep(Duration::from_millis(1500)).await;
    cluster.replica.signal(libc::SIGSTOP);
    let Cluster { masters, replica } = &mut cluster;
    keeps_the_gap(&fleet, &hosts, &origin, async || {
        masters[0].kill().await;
        replica.signal(libc::SIGCONT);
    })
    .await;
    let mut connection = cluster.replica.connection().await;
    let role: (String, redis::Value, redis::Value) =
        redis::cmd("ROLE").query_async(&mut connection).await.expect("it is there");
    assert_eq!(role.0, "master");
}

/// A master, its replica, and a Sentinel that knows both.
async fn watched() -> Option<(Redis, Redis, Redis)> {
    let master = Redis::start().await?;
    let (replica, sentinel) = (Redis::replica_of(&master).await, Redis::sentinel_of(&master).await);
    let (replica, sentinel) = (replica.expect("redis-server"), sentinel.expect("redis-server"));
    follows(&replica).await;
    soon("the sentinel knows the replica", async || {
        let mut connection = sentinel.connection().await;
        let known: Vec<redis::Value> =
            redis::cmd("SENTINEL").arg("replicas").arg("main").query_async(&mut connection).await.expect("a sentinel");
        !known.is_empty()
    })
    .await;
    Some((master, replica, sentinel))
}

fn url_of(sentinel: &Redis) -> String {
    format!("redis+sentinel://{}/0?master=main", sentinel.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_failover_is_followed() {
    let Some((mut master, replica, sentinel)) = watched().await else { return };
    let origin = site("8").await;
    let fleet = fleet(&url_of(&sentinel), 2).await;
    assert_eq!(get(&fleet[1], &origin.url_at("a.localhost", "/robots.txt")).await.status(), 200);
    sleep(Duration::from_millis(1500)).await;
    replica.signal(libc::SIGSTOP);
    keeps_the_gap(&fleet, &["a.localhost"], &origin, async || {
        master.kill().await;
        replica.signal(libc::SIGCONT);
    })
    .await;
}

/// Models a master that is cut off from its Sentinels, but not from its clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_successor_is_used_although_the_old_master_still_answers() {
    let Some((master, replica, sentinel)) = watched().await else { return };
    let fleet = fleet(&url_of(&sentinel), 2).await;
    let mut connection = master.connection().await;
    let mut deaf = redis::cmd("ACL");
    deaf.arg("SETUSER").arg("default").arg("-slaveof").arg("-replicaof").arg("-client|kill");
    let () = deaf.query_async(&mut connection).await.expect("Redis 7");
    let mut failover = redis::cmd("SENTINEL");
    let () = failover.arg("FAILOVER").arg("main").query_async(&mut sentinel.connection().await).await.expect("it may");
    soon("all are at the successor", async || {
        // A promoted replica closes all connections.
        let Ok(mut connection) = replica.try_connection().await else { return false };
        let mut subscribed = redis::cmd("PUBSUB");
        subscribed.arg("NUMSUB").arg("politely:all");
        let count: Result<(String, usize), _> = subscribed.query_async(&mut connection).await;
        count.is_ok_and(|(_, count)| count == fleet.len())
    })
    .await;
    let (role, ..): (String, redis::Value, redis::Value) =
        redis::cmd("ROLE").query_async(&mut connection).await.expect("it is there");
    assert_eq!(role, "master", "and it has not gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_sentinels_keeps_the_servers_connection() {
    let Some((master, _replica, sentinel)) = watched().await else { return };
    let _fleet = fleet(&url_of(&sentinel), 2).await;
    let (mut to_master, mut to_sentinel) = (master.connection().await, sentinel.connection().await);
    // Servers and Sentinels say no HELLO to each other.
    let mut seen = async || {
        let connections = stat(&mut to_master, "commandstats", "cmdstat_hello:calls=").await;
        (connections, stat(&mut to_sentinel, "stats", "total_commands_processed:").await)
    };
    let (connections, asked) = seen().await;
    sleep(Duration::from_secs(5)).await;
    let (now_connections, now_asked) = seen().await;
    assert!(now_asked >= asked + 4, "both go on to ask: {asked} {now_asked}");
    assert_eq!(now_connections, connections);
}

/// The number behind this.
async fn stat(connection: &mut redis::aio::MultiplexedConnection, section: &str, what: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg(section).query_async(connection).await.expect("it answers");
    let digits = info.lines().find_map(|line| line.strip_prefix(what)).expect(what);
    digits.split(',').next().expect("one").parse().expect("a number")
}

/// FLUSHALL, or a restart with an empty disk behind a TCP proxy, gives no other sign of the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emptied_server_receives_the_debts_again() {
    let Some(redis) = Redis::start().await else { return };
    let origin = site("8").await;
    let fleet = fleet(&redis.url(), 2).await;
    assert_eq!(get(&fleet[1], &origin.url_at("a.localhost", "/robots.txt")).await.status(), 200);
    keeps_the_gap(&fleet, &["a.localhost"], &origin, async || {
        let () = redis::cmd("FLUSHALL").query_async(&mut redis.connection().await).await.expect("it may");
        for instance in &fleet {
            soon("it finds out", async || instance.output().matches("joined the fleet").count() == 2).await;
        }
    })
    .await;
}
