//! What the policy alone answers of all that is asked about this host.

use jiff::Timestamp;

use super::decision::{Asked, Intent};
use super::limits::Recent;
use super::{Policy, Who};
use crate::request::facts::{Facts, Question};
use crate::request::{Act, ApiError, ErrorCode};
use crate::spec::FaultRequest;

impl Policy {
    /// Answers, without a look at the host.
    ///
    /// # Errors
    /// The rule that forbids it; [`ErrorCode::Unavailable`] for what only a look at the host can tell.
    pub fn answer(&self, who: &Who, question: &Question, now: Timestamp) -> Result<Facts, ApiError> {
        match question {
            Question::Act(act) => Ok(self.admit(who, *act).map(|()| Facts::Act)?),
            Question::Naming(owner) => Ok(self.admit_to(who, *owner).map(|()| Facts::Act)?),
            Question::Named { act, texts } => {
                self.admit(who, *act)?;
                Ok(self.spare_production(texts.iter().map(String::as_str)).map(|()| Facts::Act)?)
            }
            Question::Fault { act, fault } => self.judge_request(who, *act, fault, now).map(|()| Facts::Act),
            Question::Experiment(has) => {
                self.may_begin(who, has, now).map(|limits| Facts::Experiment(Box::new(limits.clone())))
            }
            Question::Kubeconfig(path) => self.may_use(who, path).map(|()| Facts::Kubeconfig),
            Question::Credential { path, url } => self.may_show(who, path, url).map(|()| Facts::Credential),
            Question::Skipping => Ok(self.admit_skipping().map(|()| Facts::Act)?),
            Question::Address(host) => self.may_ask(who, host).map(Facts::Address),
            Question::Rules => Ok(Facts::Rules(self.rules())),
            Question::Leave => Ok(Facts::Leave(Box::new(self.leave(who, now)))),
            Question::Command(_)
            | Question::Python(_)
            | Question::Unit(_)
            | Question::Processes(_)
            | Question::Log { .. }
            | Question::Targets(_)
            | Question::Services(_) => {
                let text = "this is answered by a look at the host, and not by the policy alone";
                Err(ApiError::new(ErrorCode::Unavailable, text))
            }
        }
    }

    /// Decides whether somebody may do this with a fault: by what it is, and by every name in it. One that is only registered may lack a
    /// target yet, and is judged by its names alone.
    fn judge_request(
        &self,
        who: &Who,
        act: Act,
        request: &FaultRequest,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let intent = match act {
            Act::Plan => Intent::Plan,
            Act::Inject => Intent::Single,
            Act::Run => Intent::Run,
            _ => {
                self.admit(who, act)?;
                return Ok(self.spare_production_in(request)?);
            }
        };
        let request = self.aimed(request);
        let fault = request.parse()?;
        self.spare_production_in(&request)?;
        // How many are active, and what was lately, the policy alone does not know.
        let (active, recent) = (0, Recent::default());
        Ok(self.judge(&Asked { who, fault: &fault, active, recent, intent, now })?)
    }
}
