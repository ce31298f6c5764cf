//! Shrinking of a violation to fewer events: delta debugging over units that may be removed together.
//!
//! A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002),
//! <https://doi.org/10.1109/32.988498>.

/// Checks after which shrinking stops with its present result.
const MAX_CHECKS: usize = 600;

/// Removes units as long as the rest is a violation, and returns the places of the items that remain.
///
/// `units` are sets of places in `0..items` that are removed together; places in no unit always stay. `violates` decides about the places
/// that remain, in order; it must hold for all of them. The result is 1-minimal in units unless the number of checks runs out: without any
/// one more unit it is no violation.
pub fn shrink(items: usize, units: &[Vec<usize>], mut violates: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut kept: Vec<&Vec<usize>> = units.iter().collect();
    let mut in_unit = vec![false; items];
    units.iter().flatten().for_each(|place| in_unit[*place] = true);
    let remaining = |kept: &[&Vec<usize>]| {
        let fixed = (0..items).filter(|place| !in_unit[*place]);
        let mut places: Vec<usize> = fixed.chain(kept.iter().flat_map(|unit| unit.iter().copied())).collect();
        places.sort_unstable();
        places
    };
    let mut checks = 0;
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 && checks < MAX_CHECKS {
        let before = kept.len();
        let mut start = 0;
        while start < kept.len() && checks < MAX_CHECKS {
            let end = (start + chunk).min(kept.len());
            let fewer: Vec<&Vec<usize>> = kept[..start].iter().chain(&kept[end..]).copied().collect();
            checks += 1;
            if violates(&remaining(&fewer)) {
                kept = fewer;
            } else {
                start = end;
            }
        }
        chunk = match chunk {
            1 if kept.len() < before => 1,
            _ => chunk / 2,
        };
    }
    remaining(&kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_remains() {
        let units: Vec<Vec<usize>> = (0..50).map(|unit| vec![2 * unit, 2 * unit + 1]).collect();
        let needs = |places: &[usize]| [14, 15, 70, 100].iter().all(|needed| places.contains(needed));
        assert_eq!(shrink(101, &units, needs), [14, 15, 70, 71, 100]);
    }
}
