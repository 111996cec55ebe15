//! Resource exhaustion, memory, until it kills: a control group with a limit runs out of memory, and the kernel's OOM killer strikes.
//!
//! - **Mechanism**: a holder in the group fills a file in memory (memfd), which is charged to the group and counts as no
//!   process's, so that the kernel finds its victim among the others. With its strike everything is given back.
//! - **Kernel requirement**: the memory controller.
//! - **Lifetime class**: irreversible: who was killed stays so. What is held ends with the holder.
//! - **Undo**: none. A removal before the strike prevents it.
//! - **Blast radius**: the group, and who relies on it. It has to have a limit of its own below those above it, and no swap; so
//!   nobody outside is chosen. Never the host, nor a group with somebody in it who is vital, or the caller.
//! - **Reference**: memfd_create(2), Linux `mm/oom_kill.c`, `Documentation/admin-guide/cgroup-v2.rst`.

use std::time::Duration;

use super::Ready;
use super::affected::Place;
use super::look::Eyes;
use super::work::HoardWork;
use super::{Goal, Plan, Work, memory};
use crate::host::oom::{Books, Weight};
use crate::host::supply::Memory;
use crate::host::{Aim, CgroupRef, Identity, ProcessId, Protected, Running};
use crate::request::{ApiError, ErrorCode};
use crate::spec::Controller;
use crate::spec::LifetimeClass;
use crate::spec::Requirement;

/// What it needs of the kernel.
pub const REQUIREMENTS: &[Requirement] =
    &[Requirement::CgroupV2, Requirement::Controller(Controller::Memory)];

/// What a group is like that is to run out of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomGround {
    /// The group.
    pub cgroup: CgroupRef,
    /// Its books.
    pub books: Books,
    /// The host's memory.
    pub memory: Memory,
    /// Who is in it, or below it.
    pub members: Vec<Member>,
    /// What the kernel would weigh of a holder: it is no heavier than the process that starts it.
    pub holder: Weight,
}

/// A process of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Identity.
    pub id: ProcessId,
    /// Name.
    pub name: String,
    /// What the kernel weighs.
    pub weight: Weight,
    /// Why it must not be hit; `None` when it may be.
    pub protected: Option<Protected>,
}

/// Looks at the group and at who is in it, and plans it.
///
/// # Errors
/// When the processes of this host cannot be read, and as [`plan`].
pub(super) fn prepare(
    reserve: Option<u64>,
    ramp: Duration,
    group: Option<CgroupRef>,
    memory: Memory,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let failed = |what: &str| ApiError::new(ErrorCode::InjectionFailed, format!("look at {what}"));
    let cgroup = group.ok_or_else(|| failed("the cgroup: none is named"))?;
    let all = Running::all().map_err(|error| failed(&format!("the processes of this host: {error}")))?;
    let place =
        Place::group(&cgroup).map_err(|error| failed(&format!("the place of the cgroup: {error}")))?;
    let members = all.iter().filter(|process| place.has(process)).filter_map(|process| {
        let weight = Weight::of(process.id.pid)?;
        let protected = process.protected(Aim::AtPlace, eyes.spared);
        Some(Member { id: process.id, name: process.name.clone(), weight, protected })
    });
    let members = members.collect();
    let own = std::process::id().cast_signed();
    let holder = Weight::of(own).ok_or_else(|| failed("the memory of the daemon"))?;
    let books = Books::read(&cgroup.path);
    let ground = OomGround { cgroup, books, memory, members, holder };
    let plan = plan(reserve, ramp, &ground)?;
    Ok(Ready { doomed: Some(Box::new(ground)), ..plan.into() })
}

/// Plans it.
///
/// # Errors
/// Says what of the group would have others killed than those in it, or nobody.
pub fn plan(reserve: Option<u64>, ramp: Duration, ground: &OomGround) -> Result<Plan, ApiError> {
    let OomGround { cgroup, books, memory, .. } = ground;
    let path = cgroup.path.display();
    let limit = limit(ground)?;
    let victim = victim(ground, limit)?;
    let reserve = reserve.unwrap_or_else(|| memory::reserve(memory.total));
    let most = books.above.unwrap_or(u64::MAX).min(memory.available.saturating_sub(reserve));
    let missing = limit.saturating_sub(books.used);
    if missing > most {
        let message = format!(
            "params.oom: cgroup {path} may have another {} MiB, and only {} MiB can be taken before the reserve of the host, or \
             the limit of a cgroup above",
            missing >> 20,
            most >> 20,
        );
        return Err(ApiError::new(ErrorCode::LimitReached, message)
            .hint("give the target a lower limit, or ask for a smaller reserve by params.reserve_mb"));
    }
    let chosen = match books.together {
        true => {
            format!("all of its {} processes, and with them the fault's holder, ", ground.members.len())
                + "because memory.oom.group is set"
        }
        false => format!("as it is now process {} ({})", victim.id.pid, victim.name),
    };
    let mut description = format!(
        "resource_exhaustion: takes memory of cgroup {path}, which may have {} MiB, until the kernel's OOM killer kills there: {chosen}",
        limit >> 20
    );
    if !ramp.is_zero() {
        description.push_str(&format!("; it would have taken all of it after {ramp:?}"));
    }
    Ok(Plan {
        work: Work::Hoard(HoardWork {
            goal: Goal::Oom { bytes: limit, reserve },
            ramp,
            cgroup: Some(cgroup.clone()),
            identity: Identity::ROOT,
        }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Irreversible,
        description,
    })
}

/// The limit at which the kernel kills in this group, and only there.
fn limit(ground: &OomGround) -> Result<u64, ApiError> {
    let (path, books) = (ground.cgroup.path.display(), &ground.books);
    let refuse = |problem: String, hint: &str| {
        let message = format!("params.oom: cgroup {path} {problem}");
        Err(ApiError::new(ErrorCode::InvalidParameter, message).hint(hint))
    };
    let Some(limit) = books.most else {
        return refuse(
            "has no limit (memory.max) at which the kernel would kill".to_owned(),
            "give it one: MemoryMax= of a unit",
        );
    };
    if books.high.is_some_and(|high| high < limit) {
        return refuse(
            "is slowed down (memory.high) before the kernel would kill".to_owned(),
            "MemoryHigh=infinity",
        );
    }
    if books.swaps {
        return refuse(
            "would have its memory swapped out before the kernel kills".to_owned(),
            "MemorySwapMax=0 of a unit",
        );
    }
    Ok(limit)
}

/// Whom the kernel would kill if the group were at its limit now.
fn victim(ground: &OomGround, limit: u64) -> Result<&Member, ApiError> {
    let path = ground.cgroup.path.display();
    if let Some((member, why)) =
        ground.members.iter().find_map(|member| Some((member, member.protected.as_ref()?)))
    {
        let message = format!(
            "params.oom: cgroup {path} is protected: process {} ({}) is in it, and {why}",
            member.id.pid, member.name
        );
        return Err(ApiError::new(ErrorCode::TargetProtected, message).hint(why.remedy()));
    }
    let first = ground.members.iter().max_by_key(|member| member.weight.points(limit));
    match first {
        Some(member) if member.weight.points(limit) > ground.holder.points(limit) => Ok(member),
        _ => {
            let message = format!(
                "params.oom: no process in cgroup {path} is one that the kernel would rather kill than the fault's holder, which has \
                 some {} MiB and an oom_score_adj of {}",
                ground.holder.bytes >> 20,
                ground.holder.adjustment
            );
            Err(ApiError::new(ErrorCode::InvalidParameter, message).hint(
                "process_kill kills it, whatever it has; or start the daemon with a lower OOMScoreAdjust=",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::protected::Rule;

    const MIB: u64 = 1 << 20;

    fn first() -> Protected {
        Protected { rule: Rule::First, why: "it is PID 1", opens_with: None }
    }

    fn member(pid: i32, mebibytes: u64, adjustment: i64) -> Member {
        Member {
            id: ProcessId { pid, start_time: 1 },
            name: "server".into(),
            weight: Weight { bytes: mebibytes * MIB, adjustment },
            protected: None,
        }
    }

    fn ground() -> OomGround {
        OomGround {
            cgroup: CgroupRef { path: "/sys/fs/cgroup/a".into(), id: 1 },
            books: Books {
                most: Some(256 * MIB),
                high: None,
                used: 56 * MIB,
                above: None,
                swaps: false,
                together: false,
                kills: 0,
            },
            memory: Memory { total: 2048 * MIB, available: 1024 * MIB },
            members: vec![member(7, 30, 0), member(8, 20, 500)],
            holder: Weight { bytes: 10 * MIB, adjustment: 0 },
        }
    }

    fn refused(change: impl FnOnce(&mut OomGround)) -> ApiError {
        let mut ground = ground();
        change(&mut ground);
        plan(None, Duration::ZERO, &ground).unwrap_err()
    }

    #[test]
    fn the_plan_names_whom_the_kernel_would_kill() {
        let plan_of = |ground| plan(None, Duration::ZERO, &ground).unwrap();
        let found = plan_of(ground());
        assert!(found.description.contains("process 8 (server)"), "{}", found.description);
        assert_eq!(found.lifetime, LifetimeClass::Irreversible);
        let mut together = ground();
        together.books.together = true;
        let found = plan_of(together);
        assert!(found.description.contains("all of its 2 processes"), "{}", found.description);
    }

    #[test]
    fn what_would_kill_nobody_or_somebody_else_is_refused() {
        for (error, words) in [
            (refused(|ground| ground.books.most = None), "memory.max"),
            (refused(|ground| ground.books.high = Some(MIB)), "memory.high"),
            (refused(|ground| ground.books.swaps = true), "swapped out"),
            (refused(|ground| ground.members.clear()), "holder"),
            (refused(|ground| ground.members = vec![member(7, 30, -1000)]), "holder"),
            (refused(|ground| ground.members = vec![member(7, 2, 0)]), "holder"),
        ] {
            assert!(error.code == ErrorCode::InvalidParameter && error.message.contains(words), "{error}");
        }
        for error in [
            refused(|ground| ground.books.above = Some(199 * MIB)),
            refused(|ground| ground.memory.available = 711 * MIB),
        ] {
            assert_eq!(error.code, ErrorCode::LimitReached, "{error}");
        }
        let error = refused(|ground| ground.members[0].protected = Some(first()));
        assert!(error.code == ErrorCode::TargetProtected && error.message.contains("process 7"), "{error}");
    }
}
