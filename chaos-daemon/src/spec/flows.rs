//! Which connections packets have to be of: a share of them, and those in one state.

use serde::{Deserialize, Serialize};

use super::protocol::Protocol;
use super::share::Share;
use super::target::TargetRequest;
use super::units::SpecError;

/// Which connections; the default is all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// A share of them; `None` is all.
    pub share: Option<FlowShare>,
    /// Those in one state, as far as a segment of TCP tells it; `None` is any.
    pub state: Option<TcpState>,
}

/// A share of the connections: of each that is in it every packet, and of no other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowShare {
    /// How large.
    pub of: Share,
    /// Which.
    pub seed: u64,
}

/// What a segment tells of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpState {
    /// It opens one: SYN is set.
    New,
    /// The connection is open: SYN is not set.
    Established,
}

impl Flows {
    /// The connections that a target of packets names.
    ///
    /// # Errors
    /// Names the field that is wrong, or has no meaning here.
    pub(super) fn parse(target: &TargetRequest, protocol: Protocol) -> Result<Self, SpecError> {
        let state = match target.tcp_state.as_deref() {
            None => None,
            Some("new") => Some(TcpState::New),
            Some("established") => Some(TcpState::Established),
            Some(other) => {
                let problem = format!("{other:?} is not known: give \"new\" or \"established\"");
                return Err(SpecError::new("target.tcp_state", problem));
            }
        };
        if state.is_some() && !matches!(protocol, Protocol::Any | Protocol::Tcp) {
            let problem = "only tcp has connections with a state: give tcp, or leave the protocol out";
            return Err(SpecError::new("target.protocol", problem));
        }
        if target.seed.is_some() && target.connections.is_none() {
            let problem = "belongs to a share of the connections here: give connections, or leave it out";
            return Err(SpecError::new("target.seed", problem));
        }
        let seed = target.seed.unwrap_or_default();
        let share = target.connections.filter(|share| *share != Share::ALL);
        Ok(Self { share: share.map(|of| FlowShare { of, seed }), state })
    }

    /// What share of the connections it is, as a fraction.
    pub fn fraction(self) -> f64 {
        self.share.map_or(1.0, |share| share.of.fraction())
    }

    /// ` of 10 % of the connections (seed 7), new ones only`; nothing of all.
    pub fn words(self) -> String {
        let mut words = String::new();
        if let Some(FlowShare { of, seed }) = self.share {
            words.push_str(&format!(" of {} % of the connections (seed {seed})", of.fraction() * 100.0));
        }
        match self.state {
            Some(TcpState::New) => words.push_str(", only what opens a connection"),
            Some(TcpState::Established) => words.push_str(", only of connections that are open"),
            None => {}
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::{FaultRequest, effect::Effect};

    fn effect(kind: &str, more: &Value) -> Result<Effect, SpecError> {
        let mut target = json!({"interface": "eth0"});
        target.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = json!({"fault_type": kind, "probability": 1, "target": target});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().map(|fault| fault.effect)
    }

    fn flows(kind: &str, more: &Value) -> Result<Flows, SpecError> {
        effect(kind, more).map(|effect| effect.flows())
    }

    #[test]
    fn connections_are_a_share_by_a_seed_and_of_one_state() {
        let tenth = flows("timeout", &json!({"connections": "10%", "seed": 7, "tcp_state": "new"})).unwrap();
        assert_eq!(tenth.words(), " of 10 % of the connections (seed 7), only what opens a connection");
        assert_eq!(flows("latency", &json!({"connections": 1})).unwrap(), Flows::default());
        let open = flows("error", &json!({"tcp_state": "established"})).unwrap();
        assert_eq!((open.state, open.fraction() - 1.0 < 1e-9), (Some(TcpState::Established), true));
        for (more, field) in [
            (json!({"seed": 7}), "target.seed"),
            (json!({"tcp_state": "closed"}), "target.tcp_state"),
            (json!({"tcp_state": "new", "protocol": "udp"}), "target.protocol"),
        ] {
            assert_eq!(flows("timeout", &more).unwrap_err().field, field, "{more}");
        }
    }

    #[test]
    fn a_share_of_the_connections_is_a_share_of_the_blast_and_cuts_those_as_badly() {
        let whole = effect("timeout", &json!({})).unwrap();
        let part = |share: &str| effect("timeout", &json!({"connections": share})).unwrap();
        assert!((part("10%").blast().share - 0.1).abs() < 1e-9);
        assert_eq!(part("10%").blast().severity, whole.blast().severity);
        assert!((part("10%").magnitude().loss_percent - 100.0).abs() < 1e-9, "for those it is all");
        assert!((part("10%").magnitude().share_percent - 10.0).abs() < 1e-9);
        assert!(whole.cuts() && part("50%").cuts() && !part("49%").cuts());
        // Whoever cannot connect, or is not heard once he is, is cut off.
        for state in ["new", "established"] {
            assert!(effect("timeout", &json!({"tcp_state": state})).unwrap().cuts(), "{state}");
        }
    }
}
