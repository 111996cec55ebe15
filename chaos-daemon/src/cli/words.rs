//! What the daemon tells agents to do, as the shell has it: its texts name tools, and this is their commands.

/// What is said of a tool, and its command; what begins with another one stands before that.
const COMMANDS: &[(&str, &str)] = &[
    ("the input schema of the tool has every argument", "--help has every option"),
    ("the input schema of the tool says what is right", "--help says what is right"),
    ("chaos_run_experiment of ", "chaosctl run "),
    (" with stage ", " --stage "),
    ("chaos_stop with fault_name ", "chaosctl stop "),
    ("chaos_plan with the same target", "chaosctl targets with the same options"),
    ("chaos_get_run with wait_seconds", "chaosctl show --wait"),
    ("chaos_inject_fault with action \"register\"", "chaosctl inject"),
    ("chaos_schedule with action \"list\"", "chaosctl schedule list"),
    ("chaos_schedule with action \"pause\"", "chaosctl schedule pause --all"),
    ("chaos_search with action \"list\"", "chaosctl search list"),
    ("chaos_advise", "chaosctl advise"),
    ("chaos_describe_experiment", "chaosctl experiment show"),
    ("chaos_doctor", "chaosctl doctor"),
    ("chaos_get_run", "chaosctl show"),
    ("chaos_inject_fault", "chaosctl inject"),
    ("chaos_list_experiments", "chaosctl experiment list"),
    ("chaos_list_runs", "chaosctl runs"),
    ("chaos_node", "chaosctl doctor"),
    ("chaos_plan_experiment", "chaosctl run --dry-run"),
    ("chaos_plan", "chaosctl inject --dry-run"),
    ("chaos_probe", "chaosctl probe"),
    ("chaos_register_experiment", "chaosctl experiment register FILE"),
    ("chaos_report", "chaosctl report"),
    ("chaos_run_experiment", "chaosctl run"),
    ("chaos_schedule", "chaosctl schedule"),
    ("chaos_search", "chaosctl search"),
    ("chaos_statistics", "chaosctl statistics"),
    ("chaos_status", "chaosctl status"),
    ("chaos_stop", "chaosctl stop"),
    ("chaos_targets", "chaosctl targets"),
];

/// A text of the daemon for who sits at a shell.
pub(super) fn in_shell(text: &str) -> String {
    COMMANDS.iter().fold(text.to_owned(), |text, (said, command)| text.replace(said, command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::tool_names;

    #[test]
    fn every_tool_has_its_command_and_what_has_arguments_has_its_options() {
        for tool in tool_names() {
            let said = in_shell(&format!("look at {tool}"));
            assert!(said.starts_with("look at chaosctl ") && !said.contains("chaos_"), "{said}");
        }
        assert_eq!(
            in_shell("chaos_run_experiment of \"a b\" with stage 10"),
            "chaosctl run \"a b\" --stage 10"
        );
        assert_eq!(
            in_shell("end it with chaos_stop with fault_name 0/slow"),
            "end it with chaosctl stop 0/slow"
        );
    }
}
