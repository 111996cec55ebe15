//! Who is hit, who never is, and that both are known before.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use super::*;
use crate::Pair;
use crate::caller::Caller;
use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::guard::Guard;
use crate::kernel::oracle::Fake;
use crate::netns::{NetNs, output};
use crate::pair::INTERFACE;
use crate::process::{self, Process};
use crate::victim::Victim;

tests![
    a_preview_names_who_would_be_hit_and_a_kill_of_the_same_seed_hits_exactly_those,
    a_larger_share_has_a_smaller_one_of_the_same_seed_among_it,
    processes_are_found_by_pid_cgroup_program_and_command_line,
    a_kill_by_each_selector_ends_whom_it_selects_and_nobody_else,
    below_another_process_are_its_children_and_theirs_and_nobody_elses,
    who_comes_in_the_place_of_a_process_below_another_is_seen_there,
    whoever_the_host_or_the_caller_needs_is_refused_or_left_out_by_name,
    what_configures_the_hosts_network_is_refused_by_name_and_what_does_another_is_a_target,
    nobody_and_nonsense_are_refused_by_the_field,
    a_preview_of_a_fault_of_a_place_names_who_is_there,
];

fn plan(mcp: &Mcp, target: &Value) -> Result<Value> {
    let fault = json!({"fault_name": "p", "fault_type": "process_kill", "target": target});
    let mut answer = mcp.call_tool("chaos_plan", fault)?.ok()?;
    Ok(answer["targets"].take())
}

/// The processes of a preview, of those that would be hit or of all.
fn pids(targets: &Value, only_hit: bool) -> BTreeSet<i64> {
    let list = targets["processes"].as_array().cloned().unwrap_or_default();
    let wanted = |process: &&Value| !only_hit || process["hit"] == true;
    list.iter().filter(wanted).filter_map(|process| process["pid"].as_i64()).collect()
}

fn a_preview_names_who_would_be_hit_and_a_kill_of_the_same_seed_hits_exactly_those(
    _: &Context,
) -> TestResult {
    let program = Program::new()?;
    let words = ["one", "two", "three", "four"];
    let mut workers = words.iter().map(|word| program.start(1, word)).collect::<Result<Vec<_>>>()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let target = json!({"exe": program.path(), "share": "50%", "seed": 7});
    let preview = plan(&mcp, &target)?;
    assert_eq!(
        (&preview["matching"], &preview["hit"], &preview["share"]),
        (&json!(4), &json!(2), &json!(0.5))
    );
    let everybody: BTreeSet<_> = workers.iter().map(|worker| i64::from(worker.pid())).collect();
    assert_eq!(pids(&preview, false), everybody, "{preview}");
    for shown in preview["processes"].as_array().ok_or("no processes")? {
        let pid = shown["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).ok_or("no pid")?;
        let seen = Process::read(pid).ok_or("gone")?;
        assert_eq!(shown["start_time"], json!(seen.start_time), "{shown}");
        assert_eq!(shown["exe"], json!(program.path()), "{shown}");
    }
    // The same by the command line, as JSON and as text.
    let socket = format!("--socket={}", daemon.socket().display());
    let exe = format!("--exe={}", program.path().display());
    let chaosctl = |more: &[&str]| {
        let mut command = Command::new(binary("chaosctl")?);
        let words = [&socket, "targets", "process_kill", &exe, "--share=50%", "--seed=7"];
        output(command.args(words).args(more))
    };
    let said: Value = serde_json::from_str(&chaosctl(&["--json"])?)?;
    assert_eq!(pids(&said, true), pids(&preview, true));
    assert!(chaosctl(&[])?.starts_with("2 of 4 matching processes (50 %, seed 7)"));
    assert!(workers.iter().all(|worker| worker.runs()), "looking has changed something");

    let fault = Fault::new("process_kill").aimed(target);
    fault.inject(&mcp)?;
    let hit = pids(&preview, true);
    assert!(wait_until(HANG, || workers
        .iter_mut()
        .filter_map(|each| each.has_ended().then_some(()))
        .count()
        == 2));
    for worker in &mut workers {
        assert_eq!(worker.has_ended(), hit.contains(&i64::from(worker.pid())), "{} of {hit:?}", worker.pid());
    }
    assert!(workers.iter_mut().all(|worker| worker.has_ended() || worker.runs()));
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn a_larger_share_has_a_smaller_one_of_the_same_seed_among_it(_: &Context) -> TestResult {
    let program = Program::new()?;
    let start = |number: usize| program.start(0, &format!("n{number}"));
    let _workers = (0..10).map(start).collect::<Result<Vec<_>>>()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let hit = |share: Value, seed: u64| -> Result<BTreeSet<i64>> {
        let target = json!({"exe": program.path(), "share": share, "seed": seed});
        Ok(pids(&plan(&mcp, &target)?, true))
    };
    let mut smaller = BTreeSet::new();
    for (share, count) in
        [(json!("1%"), 1), (json!("10%"), 1), (json!(0.25), 3), (json!("50%"), 5), (json!(1), 10)]
    {
        let larger = hit(share.clone(), 3)?;
        assert!(larger.len() == count && smaller.is_subset(&larger), "{share}: {smaller:?}, then {larger:?}");
        smaller = larger;
    }
    let others = (0..8).map(|seed| hit(json!("10%"), seed)).collect::<Result<BTreeSet<_>>>()?;
    assert!(others.len() > 1, "the seed makes no difference");
    Ok(Outcome::Pass)
}

fn processes_are_found_by_pid_cgroup_program_and_command_line(_: &Context) -> TestResult {
    let program = Program::new()?;
    // Its group goes last, when nobody is in it any more.
    let victim = Victim::new(&[])?;
    let (red, blue) = (program.start(0, "red")?, program.start(0, "blue")?);
    victim.write("cgroup.procs", &red.pid().to_string())?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let exe = program.path();
    let of_red = BTreeSet::from([i64::from(red.pid())]);
    let both = BTreeSet::from([i64::from(red.pid()), i64::from(blue.pid())]);
    for (target, expected) in [
        (json!({"pid": red.pid()}), &of_red),
        (json!({"exe": exe}), &both),
        (json!({"exe": exe, "command": "red$"}), &of_red),
        (json!({"exe": exe, "command": "worker .* [01] (red|blue)"}), &both),
        (json!({"exe": exe, "cgroup": victim.name()}), &of_red),
        (json!({"cgroup": victim.name(), "command": "worker"}), &of_red),
    ] {
        assert_eq!(&pids(&plan(&mcp, &target)?, true), expected, "{target}");
    }
    // A link to a program is the program.
    let link = exe.with_file_name("link");
    std::os::unix::fs::symlink(&exe, &link)?;
    assert_eq!(pids(&plan(&mcp, &json!({"exe": link}))?, true), both);
    Ok(Outcome::Pass)
}

fn a_kill_by_each_selector_ends_whom_it_selects_and_nobody_else(_: &Context) -> TestResult {
    let program = Program::new()?;
    // Their groups go last, when nobody is in them any more.
    let (group, (container, id)) = (Cgroup::new()?, Cgroup::of_container()?);
    let mut bystander = program.start(1, "bystander")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let command = format!("^{} .* by-command$", program.path().display());
    for (how, joins, target) in [
        ("by-pid", None, json!({})),
        ("by-cgroup", Some(&group), json!({"cgroup": group.name()})),
        ("by-container", Some(&container), json!({"container": &id[..40]})),
        ("by-command", None, json!({"command": command})),
    ] {
        let mut worker = program.start(1, how)?;
        let pid = worker.pid();
        if let Some(group) = joins {
            group.set("cgroup.procs", &pid.to_string())?;
        }
        let target = if how == "by-pid" { json!({"pid": pid}) } else { target };
        assert!(worker.runs() && bystander.runs(), "before {how}");
        let fault = Fault::new("process_kill").named(how).aimed(target);
        let answer = fault.inject(&mcp)?;
        assert_eq!(answer["evidence"]["signals_sent"], 1, "{answer}");
        assert!(wait_until(HANG, || worker.has_ended()), "{how}: {answer}");
        assert!(!bystander.has_ended() && bystander.runs(), "{how} has met the bystander");
        fault.remove(&mcp)?;
    }
    Ok(Outcome::Pass)
}

fn a_preview_of_a_fault_of_a_place_names_who_is_there(_: &Context) -> TestResult {
    let (pair, victim, daemon) = (Pair::new()?, Victim::new(&[])?, Daemon::start()?);
    let caller = Caller::start(&pair.far, None)?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let there = |kind: &str, target: &Value, params: Value| -> Result<Value> {
        let fault = json!({"fault_name": "p", "fault_type": kind, "target": target, "params": params});
        Ok(mcp.call_tool("chaos_plan", fault)?.ok()?["targets"].take())
    };
    let (group, far) = (json!({"cgroup": victim.name()}), pair.far.name());
    for (kind, target, params, pid) in [
        ("pause", &group, json!({}), victim.pid()),
        ("connect_error", &group, json!({}), victim.pid()),
        ("timeout", &group, json!({}), victim.pid()),
        ("resource_exhaustion", &group, json!({"resource": "pids", "count": 1}), victim.pid()),
        ("link_down", &json!({"interface": INTERFACE, "netns": far}), json!({}), caller.pid()),
        ("timeout", &json!({"interface": INTERFACE, "netns": far}), json!({}), caller.pid()),
        ("timeout", &json!({"interface": INTERFACE, "pid": caller.pid()}), json!({}), caller.pid()),
    ] {
        let shown = there(kind, target, params)?;
        assert_eq!(pids(&shown, true), [i64::from(pid)].into(), "{kind} of {target}: {shown}");
        assert_eq!((&shown["matching"], &shown["share"]), (&json!(1), &json!(1.0)), "{kind} of {target}");
    }
    // What is everybody's is nobody's in particular, and chaosctl says so.
    assert!(there("timeout", &json!({"interface": "lo", "cidr": "127.0.0.9"}), json!({}))?.is_null());
    let mut command = Command::new(binary("chaosctl")?);
    command.arg("--socket").arg(daemon.socket()).args([
        "targets",
        "timeout",
        "--interface",
        "lo",
        "--cidr",
        "127.0.0.9",
    ]);
    let said = command.output()?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && words.contains("the whole host's"), "{words}");
    Ok(Outcome::Pass)
}

/// A word for the command line of a shell, which nobody else has in theirs.
fn agent(word: &str) -> String {
    format!("agent-{}-{word}", std::process::id())
}

fn below_another_process_are_its_children_and_theirs_and_nobody_elses(_: &Context) -> TestResult {
    let program = Program::new()?;
    let plain = program.start(0, "plain")?;
    let (red, blue) =
        (program.start_below(&agent("red"), "red")?, program.start_below(&agent("blue"), "blue")?);
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let (exe, command) = (program.path(), format!("^{} ", program.path().display()));
    let (of_red, of_blue) = (i64::from(red.pid()), i64::from(blue.pid()));
    for (target, expected) in [
        (json!({"exe": exe, "below": agent("red")}), BTreeSet::from([of_red])),
        (json!({"command": command, "below": agent("(blue|green)")}), BTreeSet::from([of_blue])),
        (json!({"exe": exe, "below": agent("")}), BTreeSet::from([of_red, of_blue])),
        (json!({"pid": plain.pid(), "below": agent("none")}), BTreeSet::new()),
    ] {
        let hit = plan(&mcp, &target).map(|targets| pids(&targets, true)).unwrap_or_default();
        assert_eq!(hit, expected, "{target}");
    }
    // Alone, it is everybody there: the shell between them, too, and not the one that is meant by it.
    let everybody = plan(&mcp, &json!({"below": agent("red")}))?;
    let shells: Vec<_> =
        everybody["processes"].as_array().into_iter().flatten().map(|one| &one["name"]).collect();
    assert!(pids(&everybody, true).contains(&of_red) && shells.len() == 2, "{everybody}");
    // By the command line of chaosctl, which has the word in its own, and in a probe.
    let socket = format!("--socket={}", daemon.socket().display());
    let (whose, above) = (format!("--command={command}"), format!("--below={}", agent("red")));
    let chaosctl = |words: &[&str]| output(Command::new(binary("chaosctl")?).arg(&socket).args(words));
    let said = chaosctl(&["targets", "process_kill", &whose, &above])?;
    assert!(said.starts_with("1 of 1 matching process"), "{said}");
    chaosctl(&["probe", "--min=1", "--max=1", "process", &whose, &above])?;

    let fault = Fault::new("process_kill").aimed(json!({"command": command, "below": agent("red")}));
    let answer = fault.inject(&mcp)?;
    assert_eq!(answer["evidence"]["signals_sent"], 1, "{answer}");
    assert!(wait_until(HANG, || i64::from(red.pid()) != of_red), "{answer}");
    assert!(i64::from(blue.pid()) == of_blue && blue.runs() && plain.runs(), "a bystander was met");
    fault.remove(&mcp)?;
    let (code, words) = refused(&mcp, "process_kill", &json!({"below": agent("none")}), &json!({}))?;
    assert!(code == "TARGET_NOT_FOUND" && words.contains("below \"agent-"), "{words}");
    Ok(Outcome::Pass)
}

fn who_comes_in_the_place_of_a_process_below_another_is_seen_there(_: &Context) -> TestResult {
    let program = Program::new()?;
    let _plain = program.start(0, "plain")?;
    let nest = program.start_below(&agent("green"), "green")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let first = nest.pid();
    let fault = Fault::new("process_kill").aimed(json!({"exe": program.path(), "below": agent("green")}));
    let answer = fault.inject(&mcp)?;
    assert_eq!(answer["evidence"]["signals_sent"], 1, "{answer}");
    let status = met(&fault, &mcp, |status| status["evidence"]["back_after_seconds"].is_number())?;
    assert!(wait_until(HANG, || ![0, first].contains(&nest.pid())) && nest.runs(), "{status}");
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn whoever_the_host_or_the_caller_needs_is_refused_or_left_out_by_name(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(0, "plain")?;
    let daemon = Daemon::start_under("[open]\nhost_wide_selectors = true\nunits_at_once = 1000\n")?;
    let guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let me = std::process::id();
    let kernel = process::all().into_iter().find(|process| process.parent == 2 || process.pid == 2);
    let kernel = kernel.filter(|process| process.arguments.is_empty());
    let mut vital = vec![1, daemon.injector_pid(), me.cast_signed(), guard.pid()];
    vital.extend(daemon.processes().iter().map(|process| process.pid));
    vital.extend(kernel.map(|process| process.pid));
    for kind in ["process_kill", "process_pause"] {
        for pid in &vital {
            let (code, words) = refused(&mcp, kind, &json!({"pid": pid}), &json!({}))?;
            assert!(
                code == "TARGET_PROTECTED" && words.contains(&format!("process {pid} (")),
                "{kind} {pid}: {words}"
            );
        }
    }
    // Everybody whose command line has anything at all in it, which would be too many, so one of them.
    let everybody = plan(&mcp, &json!({"command": ".", "share": 0.000_001}))?;
    let left_out = everybody["left_out"].as_array().cloned().unwrap_or_default();
    let why =
        |pid: i32| left_out.iter().find(|left| left["pid"] == json!(pid)).map(|left| left["why"].clone());
    for pid in [1, daemon.injector_pid(), me.cast_signed(), guard.pid()] {
        assert!(why(pid).is_some(), "{pid} is not left out: {everybody}");
    }
    assert!(why(worker.pid()).is_none() && everybody["hit"] == 1, "{everybody}");
    // A group with somebody vital in it is refused as a whole, and nobody was harmed by all this.
    let victim = Victim::new(&[])?;
    victim.write("cgroup.procs", &daemon.injector_pid().to_string())?;
    let (code, words) = refused(&mcp, "process_kill", &json!({"cgroup": victim.name()}), &json!({}))?;
    assert_eq!(code, "TARGET_PROTECTED", "{words}");
    assert!(worker.runs() && mcp.call_tool("chaos_status", json!({}))?.ok().is_ok());
    drop(daemon);
    Ok(Outcome::Pass)
}

fn what_configures_the_hosts_network_is_refused_by_name_and_what_does_another_is_a_target(
    _: &Context,
) -> TestResult {
    let namespace = NetNs::new()?;
    let groups = [Victim::new(&[])?, Victim::new(&[])?];
    let client = || Fake::start_as("dhclient", "sleep", &["600"], Stdio::null());
    let (here, there) = (client()?, namespace.run(client)?);
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    for (group, client) in groups.iter().zip([&here, &there]) {
        group.write("cgroup.procs", &client.pid().to_string())?;
    }
    let named = format!("process {} (dhclient)", here.pid());
    for (kind, target) in [
        ("process_kill", json!({"pid": here.pid()})),
        ("process_pause", json!({"pid": here.pid()})),
        ("pause", json!({"cgroup": groups[0].name()})),
        ("network_partition", json!({"cgroup": groups[0].name()})),
    ] {
        let (code, words) = refused(&mcp, kind, &target, &json!({}))?;
        assert!(code == "TARGET_PROTECTED" && words.contains(&named), "{kind}: {code} {words}");
    }
    let pause = Fault::new("pause").aimed(json!({"cgroup": groups[1].name()}));
    pause.inject(&mcp)?;
    assert_eq!(groups[1].read("cgroup.freeze")?, "1");
    pause.remove(&mcp)?;
    let kill = Fault::new("process_kill").aimed(json!({"pid": there.pid()}));
    kill.inject(&mcp)?;
    assert!(wait_until(HANG, || !there.runs()) && here.runs());
    Ok(Outcome::Pass)
}

fn nobody_and_nonsense_are_refused_by_the_field(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    for (target, params, code, said) in [
        (json!({}), json!({}), "MISSING_PARAMETER", "target.unit"),
        (json!({"exe": "/no/such/program"}), json!({}), "TARGET_NOT_FOUND", "/no/such/program"),
        (json!({"unit": "no-such.service"}), json!({}), "TARGET_NOT_FOUND", "no-such.service"),
        (json!({"command": "("}), json!({}), "INVALID_PARAMETER", "target.command"),
        (json!({"below": "("}), json!({}), "INVALID_PARAMETER", "target.below"),
        (json!({"exe": "worker"}), json!({}), "INVALID_PARAMETER", "target.exe"),
        (json!({"exe": "/x", "share": 2}), json!({}), "INVALID_PARAMETER", "share"),
        (json!({"exe": "/x", "interface": "eth0"}), json!({}), "INVALID_PARAMETER", "target"),
        (json!({"exe": "/x"}), json!({"signal": "SIGSTOP"}), "INVALID_PARAMETER", "process_pause"),
    ] {
        let (found, words) = refused(&mcp, "process_kill", &target, &params)?;
        assert!(found == code && words.contains(said), "{target} {params}: {found} {words}");
    }
    let target = json!({"interface": "eth0", "exe": "/x"});
    let (code, words) = refused(&mcp, "link_down", &target, &json!({}))?;
    assert!(code == "INVALID_PARAMETER" && words.contains("interface and netns only"), "{words}");
    let (code, words) = refused(&mcp, "timeout", &target, &json!({}))?;
    assert!(code == "TARGET_NOT_FOUND" && words.contains("/x"), "{words}");
    Ok(Outcome::Pass)
}
