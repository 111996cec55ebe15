//! Tests of the structure of pictures.

use super::*;
use crate::Search;
use crate::samples::{complete, delay, faults, spec, value};

fn searched(space: crate::Space) -> Search {
    let mut search = Search::new(spec(space.clone())).unwrap();
    complete(&mut search, |candidate| {
        (0..space.kinds.len()).map(|kind| value(&space, candidate, kind)).sum::<f64>() / 100.0 - 1.0
    });
    search
}

/// Every element of a document is closed in its turn; how many there are of each class.
fn count(document: &str, class: &str) -> usize {
    let mut open: Vec<&str> = Vec::new();
    for tag in document.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "in {document}");
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?} in {document}");
    document.matches(&format!("class=\"{class}\"")).count()
}

#[test]
fn one_parameter_is_drawn_as_its_margins_with_the_objective_and_where_failures_begin() {
    let search = searched(delay());
    let picture = search.picture();
    assert_eq!((picture.panels.len(), picture.panels[0].axes.len()), (1, 1));
    assert_eq!(picture.panels[0].axes[0].name, "a delay [ms]");
    let document = svg(&picture);
    let dots = &picture.panels[0].dots;
    assert_eq!(count(&document, "failed") + count(&document, "held") + 1, dots.len());
    assert_eq!(count(&document, "held"), dots.iter().filter(|dot| dot.margin <= 0.0).count());
    assert_eq!(
        (count(&document, "best"), count(&document, "begins"), count(&document, "objective")),
        (1, 1, 1)
    );
}

#[test]
fn two_parameters_are_one_plane_and_more_are_one_projection_each() {
    let two = searched(faults(2)).picture();
    assert_eq!((two.panels.len(), two.panels[0].axes.len()), (1, 2));
    assert_eq!(count(&svg(&two), "panel"), 1);
    let three = searched(faults(3)).picture();
    assert_eq!((three.panels.len(), three.left_out), (3, 0));
    assert_eq!(count(&svg(&three), "panel"), 3);
    let ten = crate::Space { most: 2, ..faults(10) };
    let ten = Search::new(spec(ten)).unwrap().picture();
    assert_eq!((ten.panels.len(), ten.left_out), (MOST_PANELS, 2));
    assert!(svg(&ten).contains("2 more parameters") && text(&ten).contains("2 more parameters"));
}

#[test]
fn a_picture_in_text_fits_a_terminal_and_shows_the_best_failure() {
    for space in [delay(), faults(2), faults(3)] {
        let picture = searched(space).picture();
        let drawn = text(&picture);
        assert!(drawn.contains('◆') && drawn.contains('·') && drawn.contains('░'), "{drawn}");
        let plots = drawn.lines().filter(|line| line.starts_with("  │")).count();
        assert_eq!(plots, 15 * picture.panels.len(), "{drawn}");
        assert!(drawn.lines().skip(1).all(|line| line.chars().count() <= 70), "{drawn}");
    }
}

#[test]
fn a_picture_of_nothing_says_so() {
    let picture = Search::new(spec(delay())).unwrap().picture();
    assert!(text(&picture).starts_with("Nothing has failed in 0 runs"));
    assert_eq!(count(&svg(&picture), "held"), 0);
}

#[test]
fn a_name_is_never_markup_and_no_control_of_a_terminal() {
    let mut space = delay();
    space.kinds[0].name = "<b>&\"\u{1b}[31m".into();
    let picture = searched(space).picture();
    let document = svg(&picture);
    count(&document, "held");
    assert!(!document.contains("<b>") && document.contains("&lt;b&gt;&amp;&quot;"), "{document}");
    assert!(!document.contains('\u{1b}') && !text(&picture).contains('\u{1b}'));
}

#[test]
fn a_picture_is_data() {
    let picture = searched(faults(2)).picture();
    let text = serde_json::to_string(&picture).unwrap();
    assert_eq!(svg(&serde_json::from_str(&text).unwrap()), svg(&picture));
}
