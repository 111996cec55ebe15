//! `resource_exhaustion`: CPU time is burned, or a cgroup gets less of something.

use super::Kind;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::resource;

pub(super) const KIND: Kind = Kind {
    summary: "burns CPU time, closed loop, at a percentage of some cores or of the quota of a cgroup or unit; or takes memory, room or inodes of \
                 a file system, open files, processes, ports or disk bandwidth and holds them; or limits the CPU \
                 time, memory, processes or disk bandwidth of a cgroup or unit (supervised)",
    categories: &[Category::Resources],
    lifetimes: &[
        (LifetimeClass::Kernel, Some("what is burned, or taken and held")),
        (LifetimeClass::Supervised, Some("limits")),
        (LifetimeClass::Irreversible, Some("memory with oom")),
    ],
    severities: &[Severity::Degraded, Severity::Partial, Severity::Outage],
    share: None,
    needs: &[],
    parameters: &[resource::parameters],
    group: true,
    target: &["netns", "protocol", "on_target_gone"],
    example: ("{}", "{}"),
    effect: |request, _| resource::effect(&request.params, &request.target),
};
