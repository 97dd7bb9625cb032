//! The rates of perftest's report, which are in the unit of its table.

use crate::bench::report::BandwidthRow;
use ringside_rendezvous::perftest::BandwidthReport;

/// Bytes of a mebibyte, the unit without `--report_gbits`.
const MEBIBYTE: f64 = 1_048_576.0;
/// Bytes of 10^9 bits, the unit with it.
const GIGABIT: f64 = 125_000_000.0;

/// This side's row as the peer prints it. Source: perftest `perftest_parameters.c`,
/// `print_report_bw`: the rates are divided for the table before they are sent.
pub(super) fn of_row(row: &BandwidthRow, in_gigabits: bool) -> BandwidthReport {
    let unit = if in_gigabits { GIGABIT } else { MEBIBYTE };
    BandwidthReport {
        bytes: row.bytes,
        iterations: row.iterations,
        peak: row.peak_bytes_per_second / unit,
        average: row.average_bytes_per_second / unit,
        rate: row.messages_per_second / 1e6,
    }
}

/// The peer's report as a row. The report does not tell its unit, which is the peer's: messages a
/// second and their bytes give the average without it, and the peak by its ratio to that.
pub(super) fn as_row(report: &BandwidthReport) -> BandwidthRow {
    let messages_per_second = report.rate * 1e6;
    let average = messages_per_second * report.bytes as f64;
    let peaks = report.peak / report.average;
    BandwidthRow {
        bytes: report.bytes,
        iterations: report.iterations,
        peak_bytes_per_second: if peaks.is_finite() {
            average * peaks
        } else {
            0.0
        },
        average_bytes_per_second: average,
        messages_per_second,
        verified_messages: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: BandwidthRow = BandwidthRow {
        bytes: 65_536,
        iterations: 2000,
        peak_bytes_per_second: 4.0e9,
        average_bytes_per_second: 65_536.0 * 25_588.0,
        messages_per_second: 25_588.0,
        verified_messages: 0,
    };

    #[test]
    fn a_report_is_in_the_unit_of_the_table_and_read_in_either() {
        let gigabits = of_row(&ROW, true);
        let mebibytes = of_row(&ROW, false);
        assert!((gigabits.average - 13.415).abs() < 0.001, "{gigabits:?}");
        assert!((mebibytes.average - 1599.25).abs() < 0.01, "{mebibytes:?}");
        for report in [gigabits, mebibytes] {
            let row = as_row(&report);
            assert!(
                (row.average_bytes_per_second / ROW.average_bytes_per_second - 1.0).abs() < 1e-9
            );
            assert!((row.peak_bytes_per_second / ROW.peak_bytes_per_second - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_report_of_nothing_gives_no_rate() {
        let row = as_row(&BandwidthReport::default());
        assert_eq!(
            (row.average_bytes_per_second, row.peak_bytes_per_second),
            (0.0, 0.0)
        );
    }
}
