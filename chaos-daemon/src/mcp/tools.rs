//! The tools: names, descriptions, schemas, and which code carries each out.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::results::{InjectOutput, Output, RunOutput, StatusOutput};
use super::schema::{object, text};
use super::waiting::Asker;
use super::{
    catalogue, control, describe, experiment, history, inject, params, plan, probe, schedule, schema, status,
};
use crate::experiment::schema as experiment_schema;
use crate::probe::KINDS;
use crate::request::{ApiError, Caller};
use crate::server::service::Service;
use crate::spec::units::{DEFAULT_FAULT, LONGEST_FAULT, SHORTEST_FAULT};
use crate::spec::{FAULT_TYPES, Probability, TargetRequest};

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    InjectFault,
    RunExperiment,
    Status,
    RegisterExperiment,
    ListExperiments,
    DescribeExperiment,
    Plan,
    PlanExperiment,
    Stop,
    Doctor,
    Probe,
    ListRuns,
    GetRun,
    Statistics,
    Schedule,
}

const CALLS: [Call; 15] = [
    Call::DescribeExperiment,
    Call::Doctor,
    Call::GetRun,
    Call::InjectFault,
    Call::ListExperiments,
    Call::ListRuns,
    Call::Plan,
    Call::PlanExperiment,
    Call::Probe,
    Call::RegisterExperiment,
    Call::RunExperiment,
    Call::Schedule,
    Call::Statistics,
    Call::Status,
    Call::Stop,
];

impl Call {
    pub(super) fn named(name: &str) -> Option<Self> {
        CALLS.into_iter().find(|call| call.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::InjectFault => "chaos_inject_fault",
            Self::RunExperiment => "chaos_run_experiment",
            Self::Status => "chaos_status",
            Self::RegisterExperiment => "chaos_register_experiment",
            Self::ListExperiments => "chaos_list_experiments",
            Self::DescribeExperiment => "chaos_describe_experiment",
            Self::Plan => "chaos_plan",
            Self::PlanExperiment => "chaos_plan_experiment",
            Self::Stop => "chaos_stop",
            Self::Doctor => "chaos_doctor",
            Self::Probe => "chaos_probe",
            Self::ListRuns => "chaos_list_runs",
            Self::GetRun => "chaos_get_run",
            Self::Statistics => "chaos_statistics",
            Self::Schedule => "chaos_schedule",
        }
    }

    /// Whether it looks at the host, which may take long, and changes nothing: who leaves does without.
    pub(super) fn only_looks(self) -> bool {
        matches!(self, Self::Plan | Self::PlanExperiment | Self::Doctor | Self::Probe)
    }

    /// Does what is asked.
    pub(super) async fn carry_out(
        self,
        service: &Service,
        caller: Caller,
        given: Map<String, Value>,
        asker: &Asker,
    ) -> CallToolResult {
        let arguments = given.clone();
        let result = match self {
            Self::InjectFault => {
                inject::carry_out(service, caller, given, asker).await.map(|output| output.result())
            }
            Self::RunExperiment => {
                experiment::run(service, caller, given, asker).await.map(|output| output.result())
            }
            Self::Status => status::carry_out(service, given).await.map(|output| output.result()),
            Self::RegisterExperiment => {
                experiment::register(service, caller, given).await.map(|output| output.result())
            }
            Self::ListExperiments => catalogue::list(service, given).await.map(|output| output.result()),
            Self::DescribeExperiment => {
                describe::describe(service, given).await.map(|output| output.result())
            }
            Self::Plan => inject::plan(service, caller, given).await.map(|output| output.result()),
            Self::PlanExperiment => {
                experiment::plan(service, caller, given).await.map(|output| output.result())
            }
            Self::Stop => control::stop(service, given, caller).await.map(|output| output.result()),
            Self::Doctor => control::doctor(service, caller, given).await.map(|output| output.result()),
            Self::Probe => probe::take(service, caller, given).await.map(|output| output.result()),
            Self::ListRuns => history::list(service, given).await.map(|output| output.result()),
            Self::GetRun => history::run(service, given, asker).await.map(|output| output.result()),
            Self::Statistics => history::figures(service, given).await.map(|output| output.result()),
            Self::Schedule => schedule::carry_out(service, caller, given).await.map(|output| output.result()),
        };
        result.unwrap_or_else(|error| self.failed(&arguments, &error, caller))
    }

    /// The result of a call that failed: an error that the model can read, in the tool's own shape.
    pub(super) fn failed(
        self,
        arguments: &Map<String, Value>,
        error: &ApiError,
        caller: Caller,
    ) -> CallToolResult {
        tracing::info!(%caller, tool = self.name(), code = ?error.code, %error, "refused or failed");
        match self {
            Self::InjectFault => inject::failed(arguments, error),
            Self::RunExperiment | Self::PlanExperiment => experiment::run_failed(arguments, error),
            Self::Status => status::failed(error),
            Self::RegisterExperiment => experiment::register_failed(arguments, error),
            Self::ListExperiments => catalogue::list_failed(error),
            Self::DescribeExperiment => describe::failed(arguments, error),
            Self::Plan => inject::plan_failed(arguments, error),
            Self::Stop => control::stop_failed(error),
            Self::Doctor => control::doctor_failed(error),
            Self::Probe => probe::failed(error),
            Self::ListRuns => history::list_failed(error),
            Self::GetRun => history::run_failed(arguments, error),
            Self::Statistics => history::figures_failed(error),
            Self::Schedule => schedule::failed(error),
        }
    }

    fn tool(self) -> Tool {
        let (title, description, input) = match self {
            Self::InjectFault => (
                "Inject a fault",
                "Registers, injects or removes a real fault on this Linux host, by name. register stores what the \
                 fault is (fault_type is required; a network fault needs target.interface), in place of any of the \
                 same name; inject rolls the registered probability (default 0.1) once and, if it says so, injects \
                 until duration_seconds are over; remove ends the fault and forgets it, and succeeds for an unknown \
                 name. The fault is real: name the narrowest target that serves.",
                inject_input(),
            ),
            Self::RunExperiment => experiment::run_tool(),
            Self::Status => (
                "Status",
                "Current state: registered and active faults with what they have met, registered experiments, and \
                 historical results if asked for.",
                object(
                    json!({
                        "include_results": {"type": "boolean", "default": false, "description": "Include historical experiment results."},
                        "experiment_name": text("Filter results and statistics to one experiment."),
                    }),
                    &[],
                ),
            ),
            Self::RegisterExperiment => (
                "Register an experiment",
                "Registers an experiment for chaos_run_experiment, in place of any of the same name. Takes a Chaos \
                 Toolkit document: steady-state probes with a tolerance (provider http, or process \"chaosctl\" with \
                 arguments [\"probe\", \"tcp\", \"HOST:PORT\"], or a program that the policy names), and a method of actions (provider process \"chaosctl\" with \
                 arguments such as {\"inject\": \"latency\", \"--interface\": \"eth0\", \"--delay\": \"300ms\", \
                 \"--for\": \"30s\"}), which is not executed but understood. Anything unsupported is refused by name.",
                register_input(),
            ),
            Self::Plan => (
                "Plan a fault",
                "What injecting would do, without doing it: kernel operations in order, each with its undo. Takes \
                 the name of a registered fault, or the same fields as chaos_inject_fault's register. For a process \
                 fault also which processes it would hit, what share of those that match that is, and who is left out; \
                 for process_kill who would start them anew, with a warning when nobody is found.",
                object(fault_properties(), &["fault_name"]),
            ),
            Self::ListExperiments => catalogue::list_tool(),
            Self::DescribeExperiment => describe::tool(),
            Self::PlanExperiment => experiment::plan_tool(),
            Self::Stop => control::stop_tool(),
            Self::Doctor => (
                "Doctor",
                "Which faults this host's kernel can do, what is missing for the others, and leftovers if any.",
                doctor_input(),
            ),
            Self::Probe => probe_tool(),
            Self::ListRuns => history::list_tool(),
            Self::GetRun => history::run_tool(),
            Self::Statistics => history::statistics_tool(),
            Self::Schedule => schedule::tool(),
        };
        Tool::new(self.name(), description, input)
            .with_title(title)
            .with_raw_output_schema(self.output())
            .with_annotations(self.annotations(title))
    }

    fn output(self) -> Arc<JsonObject> {
        match self {
            Self::InjectFault => schema::of_output::<InjectOutput>(),
            Self::RunExperiment | Self::PlanExperiment => schema::of_output::<RunOutput>(),
            Self::Status => schema::of_output::<StatusOutput>(),
            Self::RegisterExperiment => schema::of_output::<experiment::RegisterOutput>(),
            Self::ListExperiments => schema::of_output::<catalogue::ListOutput>(),
            Self::DescribeExperiment => schema::of_output::<describe::Description>(),
            Self::Plan => schema::of_output::<plan::PlanOutput>(),
            Self::Stop => schema::of_output::<control::StopOutput>(),
            Self::Doctor => schema::of_output::<control::DoctorOutput>(),
            Self::Probe => schema::of_output::<probe::ProbeOutput>(),
            Self::ListRuns => schema::of_output::<history::ListOutput>(),
            Self::GetRun => schema::of_output::<history::RunDetails>(),
            Self::Statistics => schema::of_output::<history::StatisticsOutput>(),
            Self::Schedule => schema::of_output::<schedule::ScheduleOutput>(),
        }
    }

    /// Hints for clients that ask their user before a call: true to what the tool does.
    fn annotations(self, title: &str) -> ToolAnnotations {
        let (read_only, destructive, idempotent) = match self {
            Self::InjectFault | Self::RunExperiment => (false, true, false),
            // What it sets breaks something later; to set it again changes nothing.
            Self::Schedule => (false, true, true),
            // A request of it may be any (POST), a program of it whatever the policy names, and so is what another server's tool does.
            Self::Probe => (false, true, false),
            // It replaces what is registered under the name.
            Self::RegisterExperiment => (false, true, true),
            Self::Status
            | Self::ListExperiments
            | Self::DescribeExperiment
            | Self::Plan
            | Self::PlanExperiment
            | Self::Doctor
            | Self::ListRuns
            | Self::GetRun
            | Self::Statistics => (true, false, true),
            Self::Stop => (false, false, true),
        };
        // Probes reach out to addresses that the caller, or the experiment, names.
        let open_world = matches!(
            self,
            Self::InjectFault | Self::RunExperiment | Self::PlanExperiment | Self::Probe | Self::Schedule
        );
        ToolAnnotations::with_title(title)
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world)
    }
}

/// Every tool, by name.
pub(super) fn list() -> Vec<Tool> {
    CALLS.into_iter().map(Call::tool).collect()
}

/// Title, description and input of `chaos_probe`.
fn probe_tool() -> (&'static str, &'static str, JsonObject) {
    (
        "Take a sample",
        "Takes one sample, as an experiment's probe does, and says whether it is as it should be. A systemd unit: \
                 [\"unit\", \"a.service\", \"--measure\", \"restarts\"]; the processes of a service: [\"process\", \
                 \"--unit\", \"a.service\", \"--measure\", \"memory_mb\", \"--max\", 500]; the host: [\"host\", \
                 \"memory_used_percent\", \"--max\", 80]; an address, as in [\"tcp\", \"127.0.0.1:5432\"]; or a program \
                 that the daemon's policy names: [\"command\", \"--\", \"/usr/lib/payment/check\"].",
        object(
            json!({
                "arguments": {
                    "type": "array", "minItems": 1,
                    "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                    "description": format!("The words after \"chaosctl probe\", which begin with one of {}.", KINDS.join(", ")),
                },
            }),
            &["arguments"],
        ),
    )
}

fn fault_properties() -> Value {
    let types: Vec<_> = FAULT_TYPES.iter().map(|kind| kind.name()).collect();
    let summary = |kind: &crate::spec::FaultType| format!("{}: {}", kind.name(), kind.summary());
    let summaries: Vec<_> = FAULT_TYPES.iter().map(summary).collect();
    let takes = |kind: &crate::spec::FaultType| {
        let names: Vec<_> = kind.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
        format!("{}: {}", kind.name(), names.join(", "))
    };
    let parameters: Vec<_> = FAULT_TYPES.iter().map(takes).collect();
    json!({
        "fault_name": {
            "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$",
            "description": "Unique fault identifier, e.g. \"slow-database\".",
        },
        "fault_type": {
            "type": "string", "enum": types,
            "description": format!("Required for register. {}.", summaries.join("; ")),
        },
        "probability": {
            "type": "number", "minimum": 0, "maximum": 1, "default": Probability::DEFAULT.get(),
            "description": "Injection probability, rolled once per inject.",
        },
        "duration_seconds": {
            "type": "number", "minimum": SHORTEST_FAULT.as_secs_f64(), "maximum": LONGEST_FAULT.as_secs_f64(),
            "default": DEFAULT_FAULT.as_secs_f64(),
            "description": "How long each injection lasts before it ends by itself.",
        },
        "error_message": {
            "type": "string", "maxLength": 512,
            "description": "Error message for error and timeout faults, reported when triggered.",
        },
        "target": target(),
        "params": {
            "type": "object",
            "description": format!("How much, per fault type: {}.", parameters.join("; ")),
            "properties": params::properties(),
            "additionalProperties": false,
        },
    })
}

fn target() -> Value {
    let mut target = schema::of_input::<TargetRequest>();
    target.insert(
        "description".to_owned(),
        json!("Where the fault goes. Every field narrows. A network fault and link_down need interface (network_partition and timeout of a unit, cgroup or processes do not, and are of all \
               their packets then); service_stop and \
               service_restart need unit; pause, limits, connect_error, file_error and socket_error need unit or cgroup, which narrow a \
               network fault of an interface in direction egress; instead of them \
               network faults, connect_error, file_error and socket_error take exe, command, below, container or pid, of processes with a network namespace or cgroup of \
               their own; socket_error takes protocol and ports; and cpu, memory, pids and disk_io can be used up in one; ports take netns and protocol; connection_load takes netns; port_in_use needs \
               local_port and takes protocol and netns; process faults and mcp_error \
               need unit, cgroup, exe, command, below, container or pid, and take share and seed."),
    );
    Value::Object(target)
}

fn inject_input() -> JsonObject {
    let mut properties = fault_properties();
    properties["action"] = json!({
        "type": "string", "enum": ["register", "inject", "remove"],
        "description": "register stores the fault, inject triggers a registered one, remove ends and forgets it.",
    });
    properties["idempotency_key"] = experiment::key_property(
        "For inject: one with the key of an earlier one rolls no dice, injects nothing, and is answered with what that one did.",
    );
    object(properties, &["fault_name", "action"])
}

fn doctor_input() -> JsonObject {
    let description = "Also look everywhere on the host for what faults have left.";
    object(json!({"residue": {"type": "boolean", "default": false, "description": description}}), &[])
}

fn register_input() -> JsonObject {
    object(experiment_schema::properties(), &["title", "steady-state-hypothesis", "method"])
}

#[cfg(any(test, fuzzing))]
#[path = "tools_fuzzed.rs"]
pub(super) mod fuzzed;
