//! `chaosctl top`: what faults and runs there are on the host, again and again, with keys that end them.

mod eyes;
mod model;
mod page;
mod screen;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{Event, KeyEventKind};
use serde::Deserialize;
use serde_json::{Map, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::eyes::{Eyes, Look};
use self::model::{Deed, Model, Subject};
use self::screen::{Screen, keys};
use super::client::Client;
use super::failure::{Failure, client_failure};
use super::live::canvas::{Ink, can_be_drawn_on};
use super::runs::object;
use super::words::in_shell;
use crate::host::terminal;
use crate::spec::SpecError;

/// How often the host is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many columns one page has where there is no terminal.
const COLUMNS: u16 = 100;

/// How it is shown.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Print it once, as plain text, and end
    #[arg(long)]
    pub(super) once: bool,
}

/// Shows it. Returns what is to be printed.
pub(super) async fn carry_out(socket: &Path, args: &TopArgs, json: bool) -> Result<String, Failure> {
    let refused = |field: &str, why: &str| Err(Failure::Usage(SpecError::new(field, why)));
    if json {
        return refused("--json", "top is for people: chaosctl status --json says the same to programs");
    }
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    let can_be_drawn = is_terminal && can_be_drawn_on(std::env::var_os("TERM"));
    if !args.once && !can_be_drawn {
        return refused("top", "it needs a terminal: --once prints one page anywhere");
    }
    let mut eyes = Eyes::new(socket.to_owned());
    // Before the screen is another, so that a daemon that is not there is told of as by every command.
    let first = eyes.look().await?;
    let mut model = Model::new(&host_name());
    model.look(first);
    if args.once {
        let width = terminal::size(stdout()).map_or(COLUMNS, |(columns, _)| columns);
        return Ok(page::whole(&model, width));
    }
    stay(socket, eyes, model).await.map(|()| String::new())
}

fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Shows it until somebody has seen enough.
async fn stay(socket: &Path, eyes: Eyes, mut model: Model) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::Other(format!("{what}: {error}"));
    let mut signals = Signals::new().map_err(|error| failed("catching signals", error))?;
    let (ended, mut ends) = mpsc::channel(16);
    let mut looks = looking(eyes);
    let mut screen = Screen::open().map_err(|error| failed("drawing on this terminal", error))?;
    let mut keys = keys();
    while !model.is_over() {
        screen.draw(&model, Ink::here()).map_err(|error| failed("drawing on this terminal", error))?;
        tokio::select! {
            key = keys.recv() => match key {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => match model.press(key) {
                    Deed::Nothing => {}
                    Deed::Stop(subject) => drop(tokio::spawn(stop(socket.to_owned(), subject, ended.clone()))),
                },
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(failed("reading keys", error)),
                None => return Ok(()),
            },
            look = looks.recv() => match look {
                Some(Ok(look)) => model.look(look),
                Some(Err(why)) => model.lose(why),
                None => return Err(Failure::Other("nobody looks at the host any more".to_owned())),
            },
            Some((subject, outcome)) = ends.recv() => model.has_stopped(&subject, outcome),
            () = signals.next() => return Ok(()),
            () = sleep(INTERVAL) => {}
        }
    }
    Ok(())
}

/// Looks at the host again and again, also after the daemon was away.
fn looking(mut eyes: Eyes) -> mpsc::Receiver<Result<Look, String>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            sleep(INTERVAL).await;
            let look = eyes.look().await.map_err(|error| error.to_string());
            if sender.send(look).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// What a stop has come to, for people.
type Outcome = Result<String, String>;

/// Ends something, over a connection of its own, so that it waits for nobody.
async fn stop(socket: PathBuf, subject: Subject, ended: mpsc::Sender<(Subject, Outcome)>) {
    #[derive(Deserialize)]
    struct Said {
        message: Option<String>,
    }
    let which = match &subject {
        Subject::Fault(name) => object(json!({"fault_name": name})),
        Subject::Run { run_id, .. } => object(json!({"run_id": run_id})),
        Subject::All => Map::new(),
    };
    let asked = async {
        let client = Client::connect(&socket).await?;
        let said = client.ask::<Said>("chaos_stop", which).await;
        client.close().await;
        said
    };
    let outcome = match asked.await {
        Ok(said) => {
            Ok(said.read.message.map_or_else(|| format!("stopped {subject}"), |said| in_shell(&said)))
        }
        Err(error) => Err(client_failure(error).1),
    };
    // Whoever would have been told may be gone.
    let _ = ended.send((subject, outcome)).await;
}

/// What ends a command that has changed its terminal.
struct Signals([Signal; 4]);

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}
