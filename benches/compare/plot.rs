//! Two pictures: how fast backlogs drain, and what an open snapshot does to that.

use std::{fmt::Write as _, path::Path};

use crate::report::{Figure, Report, Series, number};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
/// One for each system, told apart also where red and green look alike.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#888888", "#444444",
];

pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<()> {
    for part in ["P1", "P2"] {
        let drained = |figure: &&Figure| {
            figure.part == part && figure.unit == "calls/s" && figure.value.is_some()
        };
        let figures: Vec<_> = report.figures.iter().filter(drained).collect();
        if let Some(first) = figures.first() {
            let file = format!("{}.svg", part.to_lowercase());
            std::fs::write(folder.join(file), bars(&first.what, &figures))?;
        }
    }
    let lines: Vec<_> = report
        .series
        .iter()
        .filter(|series| series.part == "P5")
        .collect();
    if !lines.is_empty() {
        std::fs::write(folder.join("p5.svg"), curves(&lines))?;
    }
    Ok(())
}

fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn index(position: usize) -> f64 {
    f64::from(u32::try_from(position).unwrap())
}

/// Medians, with a line from the least to the most.
fn bars(title: &str, figures: &[&Figure]) -> String {
    let most = figures
        .iter()
        .filter_map(|f| f.value)
        .map(|v| v.most)
        .fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let mut svg = begin(
        60.0 + 30.0 * index(figures.len()),
        &format!("{title}, calls/s"),
    );
    for (position, figure) in figures.iter().enumerate() {
        let Some(value) = figure.value else { continue };
        let top = 44.0 + 30.0 * index(position);
        let colour = if figure.system == "leafhopper" {
            COLOURS[0]
        } else {
            "#b8b8b8"
        };
        let (end, middle) = (LEFT + value.median * scale, top + 10.0);
        let (least, most) = (LEFT + value.least * scale, LEFT + value.most * scale);
        writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{top:.0}\" width=\"{:.1}\" height=\"20\" fill=\"{colour}\"/>\
             <line x1=\"{least:.1}\" y1=\"{middle:.0}\" x2=\"{most:.1}\" y2=\"{middle:.0}\" stroke=\"#222\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            LEFT - 8.0,
            top + 15.0,
            escaped(&figure.system),
            end - LEFT,
            most.max(end) + 6.0,
            top + 15.0,
            number(value.median),
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

/// Calls a second over calls done.
fn curves(lines: &[&Series]) -> String {
    const TOP: f64 = 50.0;
    const BOTTOM: f64 = 330.0;
    let points = || lines.iter().flat_map(|line| &line.points);
    let (far, high) = points().fold((1.0_f64, 1.0_f64), |(x, y), point| {
        (x.max(point.0), y.max(point.1))
    });
    let place = |&(x, y): &(f64, f64)| {
        let across = 70.0 + x / far * (WIDTH - 70.0 - 150.0);
        (across, BOTTOM - y / high * (BOTTOM - TOP))
    };
    let mut svg = begin(
        380.0,
        "Calls a second while a snapshot is held, over calls done",
    );
    for quarter in 0..=4 {
        let value = high * f64::from(quarter) / 4.0;
        let (_, y) = place(&(0.0, value));
        let (x, _) = place(&(far * f64::from(quarter) / 4.0, 0.0));
        writeln!(
            svg,
            "<line x1=\"70\" y1=\"{y:.1}\" x2=\"{:.0}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            WIDTH - 150.0,
            y + 4.0,
            number(value.round()),
            BOTTOM + 22.0,
            number((far * f64::from(quarter) / 4.0).round()),
        )
        .unwrap();
    }
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path: Vec<_> = line
            .points
            .iter()
            .map(place)
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let (x, y) = line.points.last().map(place).unwrap_or_default();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            x + 8.0,
            y + 4.0,
            escaped(&line.system),
        )
        .unwrap();
    }
    svg + "</svg>\n"
}
