//! "Did you mean …?"

/// The name that was probably meant.
pub(crate) fn closest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    // Measured on typical slips (a letter too many, two swapped, `-` for `_`), which score above 0.9;
    // names that merely share a prefix stay below.
    const ALIKE: f64 = 0.85;
    known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), *known))
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
