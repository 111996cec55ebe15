//! What a caller is, and what one of that role does.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::request::{Act, Caller};
use crate::spec::Owner;

/// The table of the policy file.
const TABLE: &str = "roles";

/// What a caller is to this daemon. Root is an admin, whatever the policy file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks at what is active and what has run.
    Observer,
    /// Looks, plans, stops, and approves what others have planned.
    Approver,
    /// Plans, probes, injects, runs experiments, and stops.
    Operator,
    /// An operator and approver who may name what belongs to others.
    Admin,
}

impl Role {
    /// Every role, from the least to the most.
    pub const ALL: [Self; 4] = [Self::Observer, Self::Approver, Self::Operator, Self::Admin];

    /// Its name in the policy file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How far an act reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Nothing but what the daemon knows, or less than there was.
    Nothing,
    /// Looks at this host.
    Looks,
    /// Changes this host.
    Changes,
}

/// How far this reaches.
pub(super) fn reach(act: Act) -> Reach {
    match act {
        Act::Look | Act::End | Act::Approve => Reach::Nothing,
        Act::Plan | Act::Probe | Act::Register => Reach::Looks,
        Act::Inject | Act::Run | Act::Schedule => Reach::Changes,
    }
}

impl Role {
    /// Whether one of this role does it.
    pub fn does(self, act: Act) -> bool {
        match act {
            Act::Look => true,
            Act::End | Act::Plan => self != Self::Observer,
            Act::Approve => matches!(self, Self::Approver | Self::Admin),
            Act::Probe | Act::Register | Act::Inject | Act::Run | Act::Schedule => {
                matches!(self, Self::Operator | Self::Admin)
            }
        }
    }
}

/// Who asks: a caller with the groups that count beside its own, and the socket by which it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The caller.
    pub caller: Caller,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// What nobody who came by that socket is more than.
    pub ceiling: Role,
}

impl From<Caller> for Who {
    /// Without supplementary groups, by a socket for everybody.
    fn from(caller: Caller) -> Self {
        Self { caller, groups: Vec::new(), ceiling: Role::Admin }
    }
}

/// Who has which role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Roles {
    /// Those who look.
    pub observer: Members,
    /// Those who approve.
    pub approver: Members,
    /// Those who inject.
    pub operator: Members,
    /// Those who may do all of it, and name what belongs to others.
    pub admin: Members,
    /// The role of everybody else who may open the socket. Default: operator where the policy names no operator, and observer elsewhere.
    pub others: Option<Role>,
}

/// Callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Members {
    /// By user id.
    pub uids: BTreeSet<u32>,
    /// By group id, a caller's own or a supplementary one.
    pub gids: BTreeSet<u32>,
    /// By the context id of a vsock.
    pub vsock_cids: BTreeSet<u32>,
}

impl Members {
    fn is_empty(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty() && self.vsock_cids.is_empty()
    }

    fn has(&self, caller: Caller, groups: &[u32]) -> bool {
        match caller {
            Caller::Unix { uid, gid, .. } => {
                self.uids.contains(&uid)
                    || self.gids.contains(&gid)
                    || groups.iter().any(|gid| self.gids.contains(gid))
            }
            Caller::Vsock { cid } => self.vsock_cids.contains(&cid),
        }
    }

    /// The refusal that would not be if the caller were one of them, as those of this role.
    fn lacking(&self, caller: Caller, role: Role, refusal: Refusal) -> Refusal {
        let (kind, all, one) = match caller {
            Caller::Unix { uid, .. } => ("uids", &self.uids, uid),
            Caller::Vsock { cid } => ("vsock_cids", &self.vsock_cids, cid),
        };
        refusal.but_for_one_more(&format!("{TABLE}.{role}.{kind}"), all.iter().copied(), one)
    }
}

impl Roles {
    fn members(&self, role: Role) -> &Members {
        match role {
            Role::Observer => &self.observer,
            Role::Approver => &self.approver,
            Role::Operator => &self.operator,
            Role::Admin => &self.admin,
        }
    }

    /// The roles of somebody: all that name the caller or a group of it, or that of everybody else.
    pub fn of(&self, who: &Who) -> BTreeSet<Role> {
        let Who { caller, groups, .. } = who;
        let caller = *caller;
        if matches!(caller, Caller::Unix { uid: 0, .. }) {
            return BTreeSet::from([Role::Admin]);
        }
        let named: BTreeSet<_> =
            Role::ALL.into_iter().filter(|role| self.members(*role).has(caller, groups)).collect();
        if named.is_empty() { BTreeSet::from([self.others()]) } else { named }
    }

    fn others(&self) -> Role {
        self.others.unwrap_or(if self.operator.is_empty() { Role::Operator } else { Role::Observer })
    }

    /// Whether somebody may do this by its role.
    ///
    /// # Errors
    /// Which role may, and the line that would give it.
    pub(super) fn admit(&self, who: &Who, act: Act) -> Result<(), Refusal> {
        let caller = who.caller;
        if !who.ceiling.does(act) {
            return Err(by_another_socket(who, format!("may not {act}")));
        }
        let roles = self.of(who);
        if roles.iter().any(|role| role.does(act)) {
            return Ok(());
        }
        // Whoever plans will want to inject.
        let able = if act == Act::Approve { Role::Approver } else { Role::Operator };
        let roles: Vec<_> = roles.iter().map(|role| role.name()).collect();
        let text = format!("{caller} may not {act}: its role is {}", roles.join(" and "));
        Err(self.members(able).lacking(caller, able, Refusal::new(format!("{TABLE}.{able}"), text)))
    }

    /// Whether somebody may name what is this owner's: one's own, and that of others as an admin.
    ///
    /// # Errors
    /// The line that would make an admin of them; whether or not the owner has anything.
    pub(super) fn admit_to(&self, who: &Who, owner: Owner) -> Result<(), Refusal> {
        let caller = who.caller;
        let is_admin = self.of(who).contains(&Role::Admin);
        match (owner == caller.owner(), is_admin, who.ceiling) {
            (true, ..) | (_, true, Role::Admin) => Ok(()),
            (_, true, _) => Err(by_another_socket(who, format!("may not name what is of {owner}"))),
            _ => {
                let text = format!(
                    "what is named {}/\u{2026} is of {owner}: only they, root and admins may use it, and chaos_stop alone takes \
                     it from everybody",
                    owner.qualifier()
                );
                let refusal = Refusal::new(format!("{TABLE}.{}", Role::Admin), text);
                Err(self.admin.lacking(caller, Role::Admin, refusal))
            }
        }
    }
}

/// The refusal of who came by a socket that is for less.
fn by_another_socket(who: &Who, what: String) -> Refusal {
    let text = format!("{} {what}: it has connected by a socket for an {} at most", who.caller, who.ceiling);
    Refusal::new(TABLE, text).unless("connect by another socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Caller {
        Caller::Unix { uid, gid: uid, pid: 7 }
    }

    fn with(uid: u32, groups: &[u32]) -> Who {
        Who { groups: groups.to_vec(), ..user(uid).into() }
    }

    fn roles(text: &str) -> Roles {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn whoever_may_open_the_socket_is_an_operator_until_one_is_named() {
        assert_eq!(Roles::default().of(&with(1000, &[])), [Role::Operator].into());
        let named = roles("operator.uids = [1000]\nadmin.gids = [27]\nobserver.vsock_cids = [3]");
        assert_eq!(named.of(&with(1000, &[])), [Role::Operator].into());
        assert_eq!(named.of(&with(1001, &[])), [Role::Observer].into());
        assert_eq!(named.of(&with(1001, &[4, 27])), [Role::Admin].into());
        assert_eq!(named.of(&with(1000, &[27])), [Role::Operator, Role::Admin].into());
        assert_eq!(named.of(&Caller::Vsock { cid: 3 }.into()), [Role::Observer].into());
        assert_eq!(roles("others = \"approver\"").of(&with(5, &[])), [Role::Approver].into());
        assert_eq!(roles("others = \"observer\"").of(&with(0, &[])), [Role::Admin].into());
    }

    #[test]
    fn each_act_is_of_the_roles_of_this_table() {
        // Observer, approver, operator, admin.
        let table = [
            (Act::Look, [true, true, true, true]),
            (Act::End, [false, true, true, true]),
            (Act::Plan, [false, true, true, true]),
            (Act::Probe, [false, false, true, true]),
            (Act::Register, [false, false, true, true]),
            (Act::Inject, [false, false, true, true]),
            (Act::Run, [false, false, true, true]),
            (Act::Schedule, [false, false, true, true]),
            (Act::Approve, [false, true, false, true]),
        ];
        assert_eq!(table.map(|(act, _)| act), Act::ALL);
        for (act, able) in table {
            assert_eq!(Role::ALL.map(|role| role.does(act)), able, "{act:?}");
        }
    }

    #[test]
    fn whoever_comes_by_a_socket_for_less_does_what_both_its_role_and_the_socket_do() {
        let roles = roles("operator.uids = [1]\nadmin.uids = [2]\nobserver.uids = [3]");
        for (uid, ceiling, act) in [0, 1, 2, 3].into_iter().flat_map(|uid| {
            Role::ALL.into_iter().flat_map(move |ceiling| Act::ALL.map(|act| (uid, ceiling, act)))
        }) {
            let own = Who::from(user(uid));
            let by_it = Who { ceiling, ..own.clone() };
            let both = roles.admit(&own, act).is_ok() && ceiling.does(act);
            assert_eq!(roles.admit(&by_it, act).is_ok(), both, "{uid}, {ceiling}, {act:?}");
        }
        let observed = Who { ceiling: Role::Observer, ..user(0).into() };
        let refused = roles.admit(&observed, Act::End).unwrap_err();
        assert!(refused.message.contains("a socket for an observer at most"), "{refused:?}");
    }

    #[test]
    fn ones_own_is_named_by_everybody_and_what_is_of_others_by_admins_who_came_by_a_socket_for_them() {
        let roles = roles("admin.uids = [2]\nadmin.gids = [27]");
        let other = Owner::User(9);
        for (who, may) in [
            (with(0, &[]), true),
            (with(2, &[]), true),
            (with(1, &[27]), true),
            (with(1, &[]), false),
            (Who { ceiling: Role::Operator, ..with(2, &[]) }, false),
            (Caller::Vsock { cid: 9 }.into(), false),
        ] {
            assert!(roles.admit_to(&who, who.caller.owner()).is_ok(), "{who:?}");
            assert_eq!(roles.admit_to(&who, other).is_ok(), may, "{who:?}");
        }
        let refused = roles.admit_to(&with(1, &[]), other).unwrap_err();
        let super::super::refusal::Way::Lines { full, .. } = &refused.way else { panic!("{refused:?}") };
        assert_eq!(full, "roles.admin.uids = [2, 1]");
    }

    #[test]
    fn the_line_of_a_refusal_gives_the_role_to_who_was_refused_and_to_nobody_else() {
        let roles = roles("others = \"observer\"\noperator.uids = [1]");
        let refusal = roles.admit(&user(9).into(), Act::Inject).unwrap_err();
        let super::super::refusal::Way::Lines { full, told } = &refusal.way else { panic!("{refusal:?}") };
        assert_eq!(full, "roles.operator.uids = [1, 9]");
        assert_eq!(told, "roles.operator.uids = [\u{2026}, 9]");
        assert!(roles.admit(&user(9).into(), Act::Look).is_ok());
    }
}
