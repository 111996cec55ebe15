//! A small service with a database, for tests to cut it off: each request of it asks the database, over one connection that it keeps.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a service runs at most, should nobody end it.
const LONGEST: Duration = Duration::from_secs(180);
/// How long the database has to answer.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often it is asked when nobody asks the service.
const IDLE: Duration = Duration::from_millis(200);

/// The connection to the database, if there is one.
type Connection = Arc<Mutex<Option<BufReader<TcpStream>>>>;

/// Runs one until it is ended: at `address`, with its database there; writes its port into `file`.
///
/// # Errors
/// When the address is none, or cannot be listened at.
pub fn serve(file: &str, address: &str, database: &str) -> io::Result<()> {
    let address: IpAddr = address.parse().map_err(io::Error::other)?;
    let database: SocketAddr = database.parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind(SocketAddr::new(address, 0))?;
    let connection = Connection::default();
    ask(&connection, database);
    std::fs::write(file, listener.local_addr()?.port().to_string())?;
    let asking = Arc::clone(&connection);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = Arc::clone(&asking);
            thread::spawn(move || answer(stream, &connection, database));
        }
    });
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        ask(&connection, database);
        thread::sleep(IDLE);
    }
    Ok(())
}

/// 200 if the database has answered, and 503 otherwise.
fn answer(mut stream: TcpStream, connection: &Connection, database: SocketAddr) {
    let mut line = String::new();
    let Ok(reading) = stream.try_clone() else { return };
    let mut reader = BufReader::new(reading);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let status = if ask(connection, database) { "200 OK" } else { "503 Service Unavailable" };
    let said = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // Who has gone needs no answer.
    let _ = stream.write_all(said.as_bytes());
}

/// Whether the database answers now.
fn ask(connection: &Connection, database: SocketAddr) -> bool {
    let mut kept = connection.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = match kept.take() {
        Some(open) => question(open),
        None => TcpStream::connect_timeout(&database, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            question(BufReader::new(stream))
        }),
    };
    *kept = asked.ok();
    kept.is_some()
}

/// Asks once: the connection, if there was an answer.
fn question(mut open: BufReader<TcpStream>) -> io::Result<BufReader<TcpStream>> {
    open.get_mut().write_all(b"?\n")?;
    let mut line = String::new();
    match open.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(open),
    }
}

/// Is a database at this listener, for as long as anybody asks.
pub fn database(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let Ok(mut writer) = stream.try_clone() else { return };
                for line in BufReader::new(stream).lines() {
                    if line.is_err() || writer.write_all(b"!\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
}
