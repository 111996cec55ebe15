//! Whether a text speaks of `chaosctl`, or of the daemon's socket, also where that is quoted or encoded. It finds what is hidden by
//! common means, and no more: whoever means harm finds another, and meets the daemon's own decision.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The program, and the name of the socket.
const NAMES: &[&str] = &["chaosctl", "mcp.sock"];
/// How often something may be encoded.
const MOST_LAYERS: usize = 3;
/// The shortest text in which one of the names may be encoded.
const SHORTEST: usize = 8;

/// Whether a text speaks of it.
pub(super) fn is_in(text: &str) -> bool {
    speaks(text.as_bytes(), MOST_LAYERS)
}

/// Whether a text that is not plain has the parts of the name, to be put together.
pub(super) fn has_parts(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_part =
        |(at, _): (usize, &str)| !lower[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric());
    lower.contains("chaos") && lower.match_indices("ctl").any(is_part)
}

fn speaks(bytes: &[u8], layers: usize) -> bool {
    let plain: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\'' | b'"' | b'\\' | b'\n' | b'\r'))
        .map(|byte| byte.to_ascii_lowercase())
        .collect();
    let turned: Vec<u8> = plain.iter().rev().copied().collect();
    let shifted: Vec<u8> = plain.iter().copied().map(rot13).collect();
    if [&plain, &turned, &shifted].into_iter().any(|text| names(text)) {
        return true;
    }
    // What is no text holds no other one: so a picture in a line costs little.
    let is_text =
        |inner: &[u8]| inner.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    layers > 0
        && decoded(bytes).iter().any(|inner| match is_text(inner) {
            true => speaks(inner, layers - 1),
            false => names(inner),
        })
}

fn names(text: &[u8]) -> bool {
    NAMES.iter().any(|name| text.windows(name.len()).any(|window| window == name.as_bytes()))
}

fn rot13(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        other => other,
    }
}

/// What the encoded parts of a text may mean.
fn decoded(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![escapes(bytes)];
    for run in bytes.split(|byte| !(byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))) {
        if run.len() < SHORTEST {
            continue;
        }
        // It may begin within other letters.
        for start in 0..4.min(run.len()) {
            let part = &run[start..];
            // An incomplete group of letters at its end means nothing.
            let part = if part.len() % 4 == 1 { &part[..part.len() - 1] } else { part };
            let lenient = part.iter().map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            });
            let lenient: Vec<u8> = lenient.collect();
            let whole = &lenient[..lenient.len() / 4 * 4];
            found.extend([STANDARD_NO_PAD.decode(whole), URL_SAFE_NO_PAD.decode(part)].into_iter().flatten());
        }
        found.extend(hexadecimal(run));
    }
    found.retain(|inner| inner.len() >= SHORTEST && inner != bytes);
    found
}

/// A text of hexadecimal digits alone.
fn hexadecimal(run: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(run).ok()?;
    let pairs = text.as_bytes().chunks_exact(2).map(std::str::from_utf8);
    pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect()
}

/// A text with what `\x63` and `\143` stand for.
fn escapes(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let number = |digits: &[u8], radix| u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
        let meant = match (first, after) {
            (b'\\', [b'x', high, low, more @ ..]) => number(&[*high, *low], 16).map(|byte| (byte, more)),
            (b'\\', [b'0', a, b, c, more @ ..]) => number(&[*a, *b, *c], 8).map(|byte| (byte, more)),
            (b'\\', [a, b, c, more @ ..]) => number(&[*a, *b, *c], 8).map(|byte| (byte, more)),
            _ => None,
        };
        let (byte, more) = meant.unwrap_or((*first, after));
        text.push(byte);
        rest = more;
    }
    text
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn the_name_is_found_quoted_escaped_encoded_and_turned() {
        let inner = "chaosctl inject latency --interface eth0";
        let once = STANDARD.encode(inner);
        let hex: String = inner.bytes().map(|byte| format!("{byte:02x}")).collect();
        for text in [
            inner.to_owned(),
            "c\"h\"a'os'ct\\l".to_owned(),
            format!("echo {once} | base64 -d | sh"),
            format!("echo {} | base64 -d", STANDARD.encode(format!("echo {once}"))),
            format!("echo x{once}"),
            format!("echo {hex} | xxd -r -p"),
            "printf '\\x63\\x68\\x61\\x6f\\x73\\x63\\x74\\x6c'".to_owned(),
            "printf '\\143haosctl'".to_owned(),
            "echo ltcsoahc | rev".to_owned(),
            "echo punbfpgy | tr a-z n-za-m".to_owned(),
            "nc -U /run/chaos-daemon/mcp.sock".to_owned(),
            "CHAOSCTL".to_owned(),
        ] {
            assert!(is_in(&text), "{text}");
        }
        for text in ["", "cargo test", "ls /usr/bin", "systemctl status chaos-daemon", "kubectl get pods"] {
            assert!(!is_in(text), "{text}");
        }
        assert!(has_parts("X=chaos; ${X}ctl stop") && has_parts("A=ctl; chaos$A"));
        assert!(!has_parts("systemctl status chaos-daemon | grep $X"));
    }
}
