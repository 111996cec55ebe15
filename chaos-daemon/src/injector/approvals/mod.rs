//! Approvals: what the policy has others approve of is begun by nobody alone. The injector keeps who has approved of what, since it knows
//! itself who asks, and what would be hit. They live as long as it does, and so longer than a server.

pub(super) mod answer;
pub(super) mod book;
pub(super) mod decide;
pub(super) mod leave;
pub(super) mod runs;
