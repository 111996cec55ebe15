//! A picture as SVG.

use std::fmt::Write;

use super::{Panel, Picture, height, share};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const EDGE: f64 = 48.0;

/// The picture as a document of its own. Names are never markup.
pub fn svg(picture: &Picture) -> String {
    let whole = EDGE + picture.panels.len() as f64 * (HEIGHT + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {whole}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{}</title>\n<text x=\"{EDGE}\" y=\"24\" font-size=\"14\">{}</text>\n",
        WIDTH + 2.0 * EDGE,
        escaped(&picture.title),
        escaped(&picture.title),
    );
    for (at, panel) in picture.panels.iter().enumerate() {
        let top = EDGE + at as f64 * (HEIGHT + 2.0 * EDGE);
        let _ = writeln!(out, "<g class=\"panel\" transform=\"translate({EDGE} {top})\">");
        draw(&mut out, panel);
        out.push_str("</g>\n");
    }
    if picture.left_out > 0 {
        let _ = writeln!(
            out,
            "<text x=\"{EDGE}\" y=\"{}\">{} more parameters</text>",
            whole - 8.0,
            picture.left_out
        );
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel) {
    let x = |rungs: &[u32]| share(&panel.axes[0], rungs[0]) * WIDTH;
    let y = |rungs: &[u32]| panel.axes.get(1).map(|axis| (1.0 - share(axis, rungs[1])) * HEIGHT);
    let _ = writeln!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#888\"/>");
    if panel.axes.len() == 1 {
        let middle = HEIGHT / 2.0;
        let _ = writeln!(
            out,
            "<line class=\"objective\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#888\" \
             stroke-dasharray=\"4 4\"/>"
        );
    }
    if let Some((low, high)) = &panel.begins {
        let (left, right) = (x(low), x(high));
        let (top, bottom) = (y(high).unwrap_or(0.0), y(low).unwrap_or(HEIGHT));
        let _ = writeln!(
            out,
            "<rect class=\"begins\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             fill=\"#e6a700\" fill-opacity=\"0.4\"/>",
            (right - left).max(1.0),
            (bottom - top).max(1.0),
        );
    }
    for dot in &panel.dots {
        let (class, colour) = if dot.margin > 0.0 { ("failed", "#c0392b") } else { ("held", "#2471a3") };
        let (ring, size) = if dot.best { (" stroke=\"#000\" stroke-width=\"2\"", 6) } else { ("", 4) };
        let class = if dot.best { "best" } else { class };
        let _ = writeln!(
            out,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{size}\" fill=\"{colour}\"{ring}><title>margin \
             {:.3}, {} runs</title></circle>",
            x(&dot.at),
            y(&dot.at).unwrap_or((1.0 - height(dot.margin)) * HEIGHT),
            dot.margin,
            dot.runs,
        );
    }
    let across = &panel.axes[0];
    let below = HEIGHT + 16.0;
    let _ = writeln!(
        out,
        "<text y=\"{below}\">{}</text><text x=\"{}\" y=\"{below}\" text-anchor=\"middle\">{}</text><text x=\"{WIDTH}\" \
         y=\"{below}\" text-anchor=\"end\">{}</text>",
        escaped(&across.ends.0),
        WIDTH / 2.0,
        escaped(&across.name),
        escaped(&across.ends.1),
    );
    let up = panel
        .axes
        .get(1)
        .map_or("margin".to_owned(), |axis| format!("{}: {} to {}", axis.name, axis.ends.0, axis.ends.1));
    let _ = writeln!(
        out,
        "<text transform=\"rotate(-90)\" x=\"{}\" y=\"-8\" text-anchor=\"middle\">{}</text>",
        -HEIGHT / 2.0,
        escaped(&up)
    );
}

/// Text that means nothing but itself in XML and HTML, also within quotes. The end of a line is a blank.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
