//! Why a fault meets nothing: looked for while it does, beside the loop, and said where its state is. What there is to meet is counted
//! when the fault starts and [`AFTER`] it; where nothing has moved there is nothing to explain.

mod look;
mod packet;
mod reason;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::aside::{Party, Places};
use super::state::{Active, Injector};
use crate::request::evidence::Met;
use crate::request::{Evidence, FaultState};
use crate::spec::QualifiedName;

pub(super) use look::Subject;

/// How long a fault may meet nothing before it is looked why.
const AFTER: Duration = Duration::from_secs(3);
/// The most that lies between two looks.
const LEAST_OFTEN: Duration = Duration::from_secs(30);

/// Few at a time: each has a program on a device for a second.
static PLACES: Places =
    Places::new(2, 2, Some(Duration::from_secs(1)), "looks for the reason why faults meet nothing");

/// Looks for as long as this is there.
#[derive(Debug)]
pub(super) struct Watch {
    /// Dropped with this.
    _wanted: Option<oneshot::Sender<()>>,
}

/// Begins to look why a fault meets nothing, of one that could meet something. Must be called within a `LocalSet`.
pub(super) fn watch(injector: &Rc<Injector>, name: &QualifiedName, subject: Option<Subject>) -> Watch {
    let Some(subject) = subject else { return Watch { _wanted: None } };
    let (wanted, mut unwanted) = oneshot::channel();
    let (injector, name, subject) = (Rc::clone(injector), name.clone(), Arc::new(subject));
    spawn_local(async move {
        tokio::select! {
            _ = &mut unwanted => {}
            () = look_again_and_again(&injector, &name, &subject) => {}
        }
    });
    Watch { _wanted: Some(wanted) }
}

/// Until the fault has met something, or ends.
async fn look_again_and_again(injector: &Injector, name: &QualifiedName, subject: &Arc<Subject>) {
    let first = Arc::clone(subject);
    // Who does not get a turn in time looks the next time.
    let mut before = PLACES.look(Party::Fault, move || Ok(first.count())).await.ok();
    let mut pause = AFTER;
    loop {
        sleep(pause).await;
        let Some(idle) = injector.active.borrow().get(name).and_then(Idle::of) else { return };
        let (subject, counts) = (Arc::clone(subject), before.take());
        let looked = move || {
            let now = subject.count();
            let words = counts.and_then(|before| subject.why(before, now, &idle));
            Ok((now, words))
        };
        if let Ok((now, words)) = PLACES.look(Party::Fault, looked).await {
            before = Some(now);
            injector.update(name, |active| {
                active.idle = words.filter(|_| active.state == FaultState::NoTraffic);
            });
        }
        pause = (pause * 2).min(LEAST_OFTEN);
    }
}

/// What is known of a fault that has met nothing yet.
#[derive(Debug)]
struct Idle {
    met: Met,
    /// The addresses of the host that it names.
    named: Vec<ipnet::IpNet>,
}

impl Idle {
    /// `None` of one that has met something, or is no longer applied.
    fn of(active: &Active) -> Option<Self> {
        match (active.state, active.evidence) {
            (FaultState::NoTraffic, Evidence::Met(met)) => {
                Some(Self { met, named: active.addresses.clone() })
            }
            (FaultState::NoTraffic, Evidence::Signals(_)) => {
                Some(Self { met: Met::default(), named: Vec::new() })
            }
            _ => None,
        }
    }
}
