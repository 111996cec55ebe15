//! What no fault does the same, and which fault comes near.

/// Modules of drivers by the beginning of their names, where they act, and what comes near on one host.
const MODULES: [(&str, &str); 17] = [
    (
        "chaosk8s.network",
        "it acts on the pods of a cluster: on a node chaosctl inject network-partition --container ID comes near",
    ),
    (
        "chaosk8s.pod",
        "it acts on the pods of a cluster: on a node chaosctl inject process-kill --container ID comes near",
    ),
    (
        "chaosk8s.chaosmesh.network",
        "it acts on the pods of a cluster: on a node chaosctl inject latency, packet-loss or network-partition comes near",
    ),
    (
        "chaosk8s.chaosmesh.stress",
        "it acts on the pods of a cluster: on a node chaosctl inject resource-exhaustion --container ID comes near",
    ),
    (
        "chaosk8s.node",
        "it acts on the nodes of a cluster: on a node chaosctl inject service-stop --unit kubelet.service comes near",
    ),
    (
        "chaosk8s",
        "it acts on a cluster, and not on a host: run it beside, or find the fault on a node that it stands for",
    ),
    (
        "chaostoxi",
        "it acts on a proxy of Toxiproxy: chaosctl inject latency, bandwidth, timeout or error with --interface and --port of what is behind the proxy comes near",
    ),
    (
        "chaosspring",
        "it acts within a Spring application: chaosctl inject latency or error on its port, or process-kill of its unit, comes near",
    ),
    (
        "chaosistio",
        "it acts on a service mesh: chaosctl inject latency or error on the port of the service comes near",
    ),
    (
        "chaosgremlin",
        "it acts by another service: chaosctl inject has faults of processes, network and resources",
    ),
    ("chaosaws", "it acts on a cloud, and not on a host"),
    ("chaosgcp", "it acts on a cloud, and not on a host"),
    ("chaosgce", "it acts on a cloud, and not on a host"),
    ("chaosazure", "it acts on a cloud, and not on a host"),
    ("chaosgarden", "it acts on a cluster and its cloud, and not on a host"),
    ("chaosmachine", "it acts on another machine: chaosctl inject does the like on the host of the daemon"),
    ("chaosreliably", "it acts by another service, and not on a host"),
];

/// Programs, and what comes near.
const PROGRAMS: [(&str, &str); 12] = [
    (
        "kubectl",
        "it acts on a cluster: on a node chaosctl inject process-kill --container ID, or network-partition, comes near",
    ),
    (
        "docker",
        "a container is named by its id here: chaosctl inject process-kill, process-pause or network-partition --container ID comes near",
    ),
    (
        "podman",
        "a container is named by its id here: chaosctl inject process-kill, process-pause or network-partition --container ID comes near",
    ),
    (
        "toxiproxy-cli",
        "it acts on a proxy: chaosctl inject latency with --interface and --port of what is behind the proxy comes near",
    ),
    ("pumba", "it acts on containers: chaosctl inject latency or process-kill --container ID comes near"),
    ("dd", "what fills a disk is chaosctl inject resource-exhaustion --resource disk_fill --path FOLDER"),
    (
        "fallocate",
        "what fills a disk is chaosctl inject resource-exhaustion --resource disk_fill --path FOLDER",
    ),
    ("reboot", "that is chaosctl inject host-reboot, if the policy allows it"),
    ("shutdown", "that is chaosctl inject host-reboot, if the policy allows it"),
    ("date", "what sets the clock is chaosctl inject clock-skew, if the policy allows it"),
    ("sleep", "what waits is pauses.after of the activity before it"),
    ("curl", "nobody could undo what a request has changed"),
];

/// Why an action in Python is a gap.
pub(super) fn python(module: &str, func: &str) -> String {
    let near = MODULES.iter().find(|(prefix, _)| module.starts_with(prefix));
    let why = near.map_or("nobody could undo what a Python module does", |(_, why)| why);
    format!("{module}.{func}: {why}")
}

/// Why an action by this program is a gap.
pub(super) fn program(name: &str) -> String {
    let near = PROGRAMS.iter().find(|(other, _)| *other == name);
    let why = near.map_or("what this program does nobody could undo", |(_, why)| why);
    format!("{name}: {why}")
}

/// Everything that may be said.
#[cfg(test)]
pub(super) fn told() -> Vec<&'static str> {
    MODULES.iter().chain(&PROGRAMS).map(|(_, why)| *why).collect()
}
