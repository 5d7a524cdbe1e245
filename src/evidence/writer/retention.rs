//! Computes the age of segments, for `keep`, even if the clock is wrong. Pure.

use std::time::{Duration, SystemTime};

/// The time since each segment ended, except the last, which continues. Takes the smaller of two ages: by the current clock, and by
/// the sum of the gaps between the starts of segments. A gap counts for at most a third of `keep`, or a day if that is longer, so that a
/// wrong clock makes segments older by no more than that.
pub fn ages(begun: &[SystemTime], keep: Duration, now: SystemTime) -> Vec<Duration> {
    let (most, mut earlier) = (DAY.max(keep / BELIEVED), Vec::new());
    let times: Vec<_> = begun.iter().copied().chain([now]).collect();
    let gaps = times.windows(2).enumerate().map(|(number, pair)| {
        earlier.push(pair[0]);
        let gap = pair[1].duration_since(pair[0]).unwrap_or_default();
        if gap <= most {
            return gap;
        }
        // One of the two starts may have a wrong time: the clock was behind (after a boot without a battery) or ahead. So the
        // gap is taken between the latest earlier start that is plausible and the earliest later one. That later start is
        // remembered as an earlier one, so that no further gap counts the same time again.
        let from = earlier.iter().copied().filter(|time| *time <= pair[1]).max().unwrap_or(pair[0]);
        let to = times[number + 1..].iter().copied().filter(|time| *time >= from).min().unwrap_or(from);
        earlier.push(to);
        to.duration_since(from).unwrap_or_default().min(most)
    });
    let gaps: Vec<_> = gaps.collect();
    let (mut ended, mut passed) = (now, Duration::ZERO);
    let mut ages: Vec<_> = begun
        .iter()
        .zip(gaps)
        .skip(1)
        .rev()
        .map(|(began, gap)| {
            passed += gap;
            // The segment ended before any later one began, whatever the clock said at that time.
            ended = ended.min(*began);
            now.duration_since(ended).unwrap_or_default().min(passed)
        })
        .collect();
    ages.reverse();
    ages
}

/// Divisor: a gap between segments counts for at most `keep` divided by this, or for a day if that is longer.
const BELIEVED: u32 = 3;
const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    /// Ages in days, of segments that began on these days.
    fn days(begun: &[u32], now: u32) -> Vec<u64> {
        let at = |day: u32| SystemTime::UNIX_EPOCH + day * DAY;
        let begun: Vec<_> = begun.iter().map(|day| at(*day)).collect();
        ages(&begun, 90 * DAY, at(now)).iter().map(|age| age.as_secs() / 86_400).collect()
    }

    #[test]
    fn age_of_a_segment_counts_from_the_start_of_the_next() {
        assert_eq!(days(&[1000, 1001, 1002, 1003], 1010), [9, 8, 7]);
        assert_eq!(days(&[1000, 1020, 1045], 1060), [40, 15], "weeks without a record count in full");
        assert_eq!((days(&[1000], 2000), days(&[], 2000)), (vec![], vec![]));
    }

    #[test]
    fn clock_jump_counts_for_at_most_a_third_of_keep() {
        assert_eq!(days(&[1000, 1001, 1002, 1003], 5000), [32, 31, 30], "the jump came after the last start");
        assert_eq!(days(&[1000, 1001, 5000, 5001], 5002), [32, 2, 1], "the jump came before the last start");
        assert_eq!(days(&[1000, 5000, 1001, 1002], 1003), [2, 2, 1], "the clock was set back afterwards");
        assert_eq!(days(&[1000, 5000, 1001, 4900, 1002, 4800, 1003], 4700)[0], 32, "the clock jumped several times");
        assert_eq!(days(&[1000, 5, 5000, 5, 4900, 5, 4800], 4700)[0], 30, "some starts were in 1970");
    }

    #[test]
    fn reverted_clock_jump_does_not_reduce_ages() {
        assert_eq!(
            days(&[1000, 5000, 1001, 1041, 1081], 1121),
            [90, 90, 60, 30],
            "weeks without a record count in full, as if the clock had not jumped"
        );
        assert_eq!(days(&[5000, 1001, 1041, 1081], 1121), [90, 60, 30], "after the earlier segments were removed");
        assert_eq!(
            days(&[1000, 5000, 1001, 5, 1041, 5, 1081], 1121),
            [90, 90, 90, 60, 60, 30],
            "the clock was wrong at each start"
        );
    }

    #[test]
    fn daily_segments_are_counted_in_full_with_a_short_keep() {
        let at = |day: u32| SystemTime::UNIX_EPOCH + day * DAY;
        assert_eq!(ages(&[at(1), at(2), at(3)], DAY / 24, at(4)), [2 * DAY, DAY]);
    }

    #[test]
    fn clock_that_is_behind_does_not_increase_ages() {
        assert_eq!(days(&[1000, 1001, 5, 1003], 1004), [3, 3, 1], "the clock was corrected");
        assert_eq!(days(&[1000, 1001, 5, 1002, 6, 1003], 1004), [3, 3, 2, 2, 1], "the clock was wrong at each start");
        assert_eq!(days(&[1000, 1001, 1002], 5), [0, 0]);
    }
}
