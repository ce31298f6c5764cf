//! Merges the records of hunts that ran in parallel, each with its own seed or its own shard of a search.

use std::collections::BTreeSet;

use super::HuntRecord;

/// Merges hunts for the same lock, or shards of one search for every placement. The times are those of the longest
/// hunt, as they ran at the same time.
pub fn merge(mut records: Vec<HuntRecord>) -> Result<HuntRecord, String> {
    // the record of an earlier merge may be in the same folder
    records.retain(|record| record.merged.is_empty());
    let mut records = records.into_iter();
    let Some(mut all) = records.next() else {
        return Err("there is nothing to merge".into());
    };
    all.merged.push(name(&all));
    for other in records {
        let (own, others) = (sorted(&all), sorted(&other));
        let differ = own.symmetric_difference(&others);
        // an option with different values is in both
        let differ: BTreeSet<String> = differ.map(|(option, _)| format!("--{option}")).collect();
        if !differ.is_empty() {
            let differ: Vec<String> = differ.into_iter().collect();
            return Err(format!(
                "the hunts with the seeds {} and {} have different options: {}",
                all.merged[0],
                other.seed,
                differ.join(", ")
            ));
        }
        if all.merged.contains(&name(&other)) {
            return Err(format!(
                "two hunts have the seed {}: was one of them named twice?",
                name(&other)
            ));
        }
        match (&mut all.exhaustive, &other.exhaustive) {
            (None, None) => {}
            (Some(_), Some(_)) if all.harness != other.harness => {
                return Err(format!(
                    "seed {} was searched by harness {}, and seed {} by harness {}: their runs may have other messages, so the placements do not add up",
                    all.merged[0],
                    all.harness,
                    name(&other),
                    other.harness
                ));
            }
            (Some(search), Some(more)) if all.seed == other.seed => search.merge(more)?,
            _ => return Err("a hunt of every placement merges only with shards of the same scenario".to_owned()),
        }
        all.merged.push(name(&other));
        merge_into(&mut all, other);
    }
    all.own = None;
    if let Some(search) = &mut all.exhaustive {
        search.set_missing(all.merged.len());
    } else {
        all.seed = all.merged.join(", ");
        all.open.clear();
    }
    Ok(all)
}

/// Returns the name of a hunt among those that are merged.
fn name(record: &HuntRecord) -> String {
    let shard = record.exhaustive.as_ref().and_then(|search| search.shard);
    let shard = shard.map(|shard| format!(", part {shard}")).unwrap_or_default();
    format!("{}{shard}", record.seed)
}

fn sorted(record: &HuntRecord) -> BTreeSet<&(String, String)> {
    record.options.iter().collect()
}

fn merge_into(all: &mut HuntRecord, mut other: HuntRecord) {
    if other.exhaustive.as_ref().is_some_and(|search| search.shard.is_some()) {
        leave_shared_out(&mut other);
    }
    all.started = all.started.clone().min(other.started);
    all.for_ms = all.for_ms.max(other.for_ms);
    all.took_ms = all.took_ms.max(other.took_ms);
    all.at_most = all.at_most.zip(other.at_most).map(|(one, more)| one + more);
    if all.exhaustive.is_some() {
        all.next = all.next.max(other.next);
        all.open.extend(&other.open);
    } else {
        all.next += other.next;
    }
    all.counts += other.counts;
    for (fault, count) in other.faults {
        *all.faults.entry(fault).or_default() += count;
    }
    all.left_out.retain(|message| other.left_out.contains(message));
    all.states.merge(other.states);
    all.coverage.merge(other.coverage);
    all.contract = all.contract.take().or(other.contract);
    all.error = all.error.take().or(other.error);
    all.errors_in_a_row = all.errors_in_a_row.max(other.errors_in_a_row);
    all.interrupted |= other.interrupted;
    for find in other.finds {
        let mut known = all.finds.iter_mut();
        match known.find(|known| known.is_of(find.property, &find.class)) {
            Some(known) => known.count_also(find),
            None => all.finds.push(find),
        }
    }
}

/// Leaves the placements that every shard makes out of the counts of one. An older harness did not count the others apart.
fn leave_shared_out(shard: &mut HuntRecord) {
    let own = shard.own.take().unwrap_or_default();
    let most_acts = shard.exhaustive.as_ref().and_then(|search| search.tried.last());
    if most_acts.is_some_and(|counts| own.counts.experiments < counts.tried) {
        return;
    }
    shard.counts = own.counts;
    for find in &mut shard.finds {
        let same = own.finds.iter().find(|same| same.is_of(find.property, &find.class));
        find.count = same.map_or(0, |same| same.count);
    }
    shard.faults = own.faults;
}

#[cfg(test)]
mod tests {
    use super::super::coverage;
    use super::super::exhaustive::Exhaustive;
    use super::super::testing::{record, result};
    use super::*;
    use crate::config::Shard;
    use crate::exit::Exit;

    fn hunt(seed: &str, took_ms: u64) -> HuntRecord {
        HuntRecord {
            seed: seed.into(),
            took_ms,
            ..record()
        }
    }

    #[test]
    fn counts_are_added_and_the_find_that_came_first_is_shown() {
        let stale = [("HL001", "stale-holder", None)];
        let mut one = hunt("1", 50_000);
        one.add(&result(9, &[("partition=holder", true)], &stale));
        one.add(&result(10, &[("drop-reply=SET:1", false)], &[("HL005", "lost", None)]));
        one.add(&result(11, &[("drop-reply=SET:1", false)], &[]));
        let seen = coverage::tests::experiment("SET:waiter", 500, &[]);
        one.coverage.add(&seen, &[]);
        let mut other = hunt("2", 60_000);
        other.add(&result(3, &[("reset", true)], &stale));
        other.add(&result(4, &[("drop-reply=SET:1", true)], &[]));
        other.coverage.add(&seen, &[]);
        let separate = (one.coverage.clone(), other.coverage.clone());
        assert!(one.left_out.contains("SET") && other.left_out.is_empty());

        let all = merge(vec![one, other]).unwrap();
        let counts = [all.counts.experiments, all.counts.violated, all.counts.held];
        assert_eq!(counts, [5, 3, 2]);
        assert_eq!((all.took_ms, all.seed.as_str()), (60_000, "1, 2"));
        assert_eq!(all.exit(), Exit::Violated);
        let finds = all.finds.iter();
        let finds = finds.map(|find| (find.class.as_str(), find.count, find.experiment));
        assert_eq!(finds.collect::<Vec<_>>(), [("stale-holder", 2, 3), ("lost", 1, 10)]);
        let drops = all.faults["drop-reply=SET"];
        assert_eq!((drops.windows, drops.with_effect), (3, 1));
        assert!(all.left_out.is_empty(), "one of them struck it");
        let mut together = separate.0;
        together.merge(separate.1);
        assert_eq!(all.coverage, together);
        assert!(together.has_passed("SET"));
    }

    #[test]
    fn hunts_for_different_locks_or_the_same_hunt_twice_are_not_merged() {
        let mut other = hunt("2", 1);
        other.options.push(("recipe".into(), "redlock".into()));
        let refused = merge(vec![hunt("1", 1), other]).unwrap_err();
        assert!(refused.ends_with("different options: --recipe"), "{refused}");
        let refused = merge(vec![hunt("1", 1), hunt("1", 1)]).unwrap_err();
        assert!(refused.contains("named twice"), "{refused}");
        let merged = merge(vec![hunt("1", 1), hunt("2", 1)]).unwrap();
        assert_eq!(merge(vec![merged.clone(), hunt("1", 1)]).unwrap().merged, ["1"]);
        assert!(merge(vec![merged]).is_err(), "nothing is left");
    }

    #[test]
    fn shards_of_two_versions_of_harness_are_not_one_search() {
        let shard = |number, harness: &str| {
            let mut search = Exhaustive::new(1, vec!["kill=any:#".to_owned()]);
            search.shard = Some(Shard { number, of: 2 });
            HuntRecord {
                harness: harness.to_owned(),
                exhaustive: Some(search),
                ..record()
            }
        };
        let refused = merge(vec![shard(1, "0.1.0"), shard(2, "0.2.0")]).unwrap_err();
        assert!(
            refused.contains("harness 0.1.0,") && refused.contains("harness 0.2.0:"),
            "{refused}"
        );
        assert!(merge(vec![shard(1, "0.1.0"), shard(2, "0.1.0")]).is_ok());
    }
}
