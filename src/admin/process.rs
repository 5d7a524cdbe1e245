//! The kernel's figures about this process, under the names that other Prometheus exporters use.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// The figures of this process. `None` without /proc.
pub(super) fn registry() -> Option<Registry> {
    let mut registry = Registry::with_prefix("process");
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name in brackets precedes the fields and may contain anything (proc_pid_stat(5)).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let cpu = (number(11)? + number(12)?) as f64 / TICKS;
    registry.register("cpu_seconds", "User and system CPU time spent", ConstCounter::new(cpu));
    let mut gauge = |name: &str, help: &str, value: f64| registry.register(name, help, ConstGauge::new(value));
    gauge("threads", "Number of threads", number(17)? as f64);
    gauge("virtual_memory_bytes", "Virtual memory size", number(20)? as f64);
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    gauge("resident_memory_bytes", "Resident memory size", resident?.trim().parse::<f64>().ok()? * 1024.0);
    let booted = fs::read_to_string("/proc/stat").ok()?;
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok())?;
    let began = booted as f64 + number(19)? as f64 / TICKS;
    gauge("start_time_seconds", "Start time of the process since the Unix epoch", began);
    gauge("open_fds", "Number of open file descriptors", fs::read_dir("/proc/self/fd").ok()?.count() as f64);
    let most = getrlimit(Resource::Nofile).current;
    gauge("max_fds", "Maximum number of open file descriptors", most.map_or(f64::INFINITY, |most| most as f64));
    Some(registry)
}

/// Clock ticks a second (`USER_HZ`), the same on all supported machines.
const TICKS: f64 = 100.0;
