//! What a flow beside a fault loses: nothing, unless the kernel has to restart the device's queue for a clsact qdisc.

use std::time::Duration;

use super::{Attach, Context, Outcome, TestResult, tests, with_netem};
use crate::Reason;
use crate::bystander::Beside;
use crate::skip::Environment;

tests![
    a_bystander_loses_no_packet_while_a_partition_comes_and_goes,
    a_bystander_loses_no_packet_while_delays_of_others_come_and_go,
    a_bystander_loses_no_packet_where_a_clsact_is_there_already_with_and_without_a_queue,
    a_clsact_that_comes_and_goes_costs_a_bystander_some_milliseconds_of_packets_and_no_more,
];

/// No queue, as a veth; and the queue of every device that has one, until it is told otherwise.
const QUEUES: [Option<&str>; 2] = [None, Some("pfifo_fast")];

/// Of packets, lost by one coming and one going: 0.2 to 0.4 ms natively, 3 to 18 ms on an emulated processor.
const COST: Duration = Duration::from_millis(60);

fn cycles(context: &Context) -> u32 {
    match context.environment {
        Environment::Host => 100,
        Environment::Vm => 6,
    }
}

/// A thousand of these: `cargo xtask soak`.
fn a_bystander_loses_no_packet_while_a_partition_comes_and_goes(context: &Context) -> TestResult {
    if context.kernel < (6, 6) {
        return Ok(Outcome::Skip(Reason::NoTcx, "clsact itself costs a bystander packets".into()));
    }
    let bystander = Beside::cycles(cycles(context)).measure()?;
    assert_eq!(bystander.harmed(), 0, "{bystander}");
    Ok(Outcome::Pass)
}

/// Its packets never see the queue of the delay, which is on a device of ours. The clsact qdisc of old kernels is there already.
fn a_bystander_loses_no_packet_while_delays_of_others_come_and_go(context: &Context) -> TestResult {
    with_netem(context, || {
        let clsact = context.kernel < (6, 6);
        let bystander = Beside { kind: "latency", clsact, ..Beside::cycles(cycles(context)) }.measure()?;
        println!("beside delays: {bystander}");
        assert_eq!(bystander.harmed(), 0, "{bystander}");
        Ok(Outcome::Pass)
    })
}

fn a_bystander_loses_no_packet_where_a_clsact_is_there_already_with_and_without_a_queue(
    context: &Context,
) -> TestResult {
    for queue in QUEUES {
        let beside =
            Beside { attach: Attach::Clsact, queue, clsact: true, ..Beside::cycles(cycles(context)) };
        let bystander = beside.measure()?;
        println!("{queue:?}, clsact there already: {bystander}");
        assert_eq!(bystander.harmed(), 0, "{queue:?}: {bystander}");
    }
    Ok(Outcome::Pass)
}

/// What kernels before 6.6 cannot do without: each coming and each going of a clsact restarts the device's queue.
fn a_clsact_that_comes_and_goes_costs_a_bystander_some_milliseconds_of_packets_and_no_more(
    context: &Context,
) -> TestResult {
    for queue in QUEUES {
        let beside = Beside { attach: Attach::Clsact, queue, ..Beside::cycles(cycles(context)) };
        let bystander = beside.measure()?;
        println!("{queue:?}, clsact comes and goes: {bystander}");
        let lost = bystander.flow.lost() as f64 / f64::from(bystander.rate * bystander.cycles);
        assert!(lost < COST.as_secs_f64(), "{queue:?}: {lost:.4} s of packets a cycle: {bystander}");
        assert_eq!(bystander.flow.refused + bystander.flow.duplicated, 0, "{queue:?}: {bystander}");
    }
    Ok(Outcome::Pass)
}
