//! The figures: printed as they come, and at the end as one table and as JSON.

use std::path::Path;

use serde::Serialize;

use crate::{machine::Machine, stats::Spread};

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) part: &'static str,
    pub(crate) what: String,
    pub(crate) system: String,
    pub(crate) value: Option<Spread>,
    pub(crate) unit: &'static str,
    pub(crate) goal: Option<String>,
    pub(crate) reached: Option<bool>,
    pub(crate) note: Option<String>,
}

impl Figure {
    pub(crate) fn new(
        part: &'static str,
        what: impl Into<String>,
        system: impl Into<String>,
        values: Vec<f64>,
        unit: &'static str,
    ) -> Self {
        Self {
            part,
            what: what.into(),
            system: system.into(),
            value: Some(Spread::of(values)),
            unit,
            goal: None,
            reached: None,
            note: None,
        }
    }

    pub(crate) fn failed(part: &'static str, what: &str, system: &str, why: &str) -> Self {
        Self {
            part,
            what: what.to_owned(),
            system: system.to_owned(),
            value: None,
            unit: "",
            goal: None,
            reached: None,
            note: Some(why.to_owned()),
        }
    }

    pub(crate) fn at_least(self, goal: f64) -> Self {
        let reached = self.value.is_some_and(|value| value.median >= goal);
        self.with_goal(format!("≥ {}", number(goal)), reached)
    }

    pub(crate) fn at_most(self, goal: f64) -> Self {
        let reached = self.value.is_some_and(|value| value.median <= goal);
        self.with_goal(format!("≤ {}", number(goal)), reached)
    }

    fn with_goal(mut self, goal: String, reached: bool) -> Self {
        self.goal = Some(goal);
        self.reached = Some(reached);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    fn line(&self) -> String {
        let value = self.value.map_or_else(
            || "-".to_owned(),
            |value| format!("{} {}", number(value.median), self.unit),
        );
        let spread = self
            .value
            .filter(|value| value.rounds > 1)
            .map(|value| format!("{} – {}", number(value.least), number(value.most)));
        let goal = match (&self.goal, self.reached) {
            (Some(goal), Some(true)) => format!("{goal}: reached"),
            (Some(goal), _) => format!("{goal}: missed"),
            _ => String::new(),
        };
        let line = format!(
            "{:<4} {:<44} {:<28} {:>16} {:>19}  {:<18} {}",
            self.part,
            self.what,
            self.system,
            value,
            spread.unwrap_or_default(),
            goal,
            self.note.as_deref().unwrap_or_default()
        );
        line.trim_end().to_owned()
    }
}

/// Three figures that count, thousands apart.
pub(crate) fn number(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(w, r)| (w, Some(r)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest {
        Some(rest) => format!("{grouped}.{rest}"),
        None => grouped,
    }
}

/// A line of a plot: what lies on its x axis and its y axis.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) part: &'static str,
    pub(crate) system: String,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    command: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) series: Vec<Series>,
    seconds: f64,
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            machine,
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            figures: Vec::new(),
            series: Vec::new(),
            seconds: 0.0,
        }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        println!("{}", figure.line());
        self.figures.push(figure);
    }

    /// The median of what was measured for this system.
    pub(crate) fn median(&self, part: &str, what: &str, system: &str) -> Option<f64> {
        let same = |figure: &&Figure| {
            figure.part == part && figure.what == what && figure.system == system
        };
        Some(self.figures.iter().find(same)?.value?.median)
    }

    pub(crate) fn finish(
        &mut self,
        folder: &Path,
        took: std::time::Duration,
    ) -> anyhow::Result<()> {
        self.seconds = took.as_secs_f64();
        let mut table = format!("{}\n", self.machine);
        for figure in &self.figures {
            table.push_str(&figure.line());
            table.push('\n');
        }
        let reached = |wanted| {
            self.figures
                .iter()
                .filter(|f| f.reached == Some(wanted))
                .count()
        };
        table.push_str(&format!(
            "\n{} goals reached, {} missed; {:.0} s\n",
            reached(true),
            reached(false),
            self.seconds
        ));
        println!("\n{table}");
        std::fs::write(folder.join("results.txt"), table)?;
        std::fs::write(
            folder.join("results.json"),
            serde_json::to_string_pretty(self)?,
        )?;
        Ok(())
    }
}
