//! Services with a weakness, for advice to find: each listens, answers every request, and does one thing that it should not. All of it
//! has an end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Pid;

/// How long a service runs at most, should nobody end it.
const LONGEST: Duration = Duration::from_secs(180);
/// How much memory one takes at most.
const MOST_MEMORY: usize = 192 << 20;
/// How many descriptors one may have.
const MOST_DESCRIPTORS: u64 = 512;
/// How much one writes at most.
const MOST_WRITTEN: usize = 24 << 20;
/// How many lines one logs at most.
const MOST_LINES: usize = 400;

/// Runs one until it is ended: writes its port into `file`, and does what `weakness` says, with `more`.
///
/// # Errors
/// When the weakness is not known, or what it needs is not to be had.
pub fn serve(file: &str, weakness: &str, more: Option<&str>) -> io::Result<()> {
    // A service that is started anew has the port that it had.
    let port = more.filter(|_| weakness == "calm").unwrap_or("0");
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let port = listener.local_addr()?.port();
    let needed = || more.ok_or_else(|| io::Error::other(format!("{weakness} needs one word more")));
    let mut held = Vec::new();
    match weakness {
        "calm" | "deaf" => {}
        "memory" => drop(thread::spawn(leak_memory)),
        "descriptors" => {
            setrlimit(Resource::RLIMIT_NOFILE, MOST_DESCRIPTORS, MOST_DESCRIPTORS)?;
            drop(thread::spawn(leak_descriptors));
        }
        "sessions" => setrlimit(Resource::RLIMIT_NOFILE, MOST_DESCRIPTORS, MOST_DESCRIPTORS)?,
        "disk" => {
            let file = OpenOptions::new().create(true).append(true).open(needed()?)?;
            drop(thread::spawn(move || fill(file)));
        }
        "processors" => (0..3).try_for_each(|_| thread::Builder::new().spawn(spin).map(drop))?,
        "errors" => drop(thread::spawn(complain)),
        "dependency" => held.push(TcpStream::connect(needed()?)?),
        other => return Err(io::Error::other(format!("no weakness {other:?}"))),
    }
    std::fs::write(file, port.to_string())?;
    if weakness != "deaf" {
        thread::spawn(move || accept(&listener));
        thread::sleep(LONGEST);
    } else {
        thread::sleep(LONGEST);
        drop(listener);
    }
    drop(held);
    Ok(())
}

fn accept(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(1..) = stream.read(&mut buffer) {
        let said = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        if said.is_err() {
            return;
        }
    }
}

fn leak_memory() {
    let mut all = Vec::new();
    while all.len() * (1 << 20) < MOST_MEMORY {
        // Of other than zeros, so that it is there.
        all.push(vec![7_u8; 1 << 20]);
        thread::sleep(Duration::from_millis(150));
    }
    thread::sleep(LONGEST);
    drop(all);
}

fn leak_descriptors() {
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
        thread::sleep(Duration::from_millis(60));
    }
    thread::sleep(LONGEST);
    drop(all);
}

fn fill(mut file: File) {
    let block = vec![7_u8; 128 << 10];
    let mut written = 0;
    while written < MOST_WRITTEN && file.write_all(&block).is_ok() {
        written += block.len();
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(LONGEST);
    drop(file);
}

/// All of them on one processor, so that they wait for each other, and others have those that are left.
fn spin() {
    let only = |allowed: CpuSet| -> nix::Result<()> {
        let first = (0..CpuSet::count()).find(|number| allowed.is_set(*number).unwrap_or(false));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or_default())?;
        sched_setaffinity(Pid::from_raw(0), &one)
    };
    // Where that is refused they take what they get.
    let _ = sched_getaffinity(Pid::from_raw(0)).and_then(only);
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        std::hint::spin_loop();
    }
}

fn complain() {
    for number in 0..MOST_LINES {
        // Nobody who reads it is fine.
        let _ = writeln!(io::stdout(), "{} ERROR cannot take order {number}", jiff::Timestamp::now());
        thread::sleep(Duration::from_millis(100));
    }
}
