//! The side that listens: it follows the client's choices, if its own flags allow them.

use super::agreement::{Request, TEST_BYTES, Test, disagreement, encode_answer};
use super::end::{End, Link};
use super::session::{Served, driven, finish, meet, part, plan_of, title};
use super::{bandwidth, latency, verify};
use crate::bench::report::VerifiedRow;
use crate::bench::run::Run;
use crate::cli::Measure;
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_bus::DeviceAddress;
use ringside_rendezvous::Step;
use std::io::Write;

pub(super) fn run(run: &mut Run<'_>, address: &DeviceAddress) -> Result<(), Failure> {
    let (served, mut link) = meet(run, address)?;
    run.report.driven = driven(run, address, &link);
    run.report.devices = vec![
        address.to_string(),
        format!("peer at {}", link.session.peer()),
    ];
    writeln!(run.out, "{}", run.report.driven)?;
    loop {
        match serve(run, &served, &mut link) {
            Ok(true) => {}
            Ok(false) => return finish(run, served, Some(link), Ok(())),
            Err(failure) => return finish(run, served, None, Err(part(link, failure))),
        }
    }
}

/// One test; false if the client has ended the session.
fn serve(run: &mut Run<'_>, served: &Served, link: &mut Link) -> Result<bool, Failure> {
    let mut bytes = [0; TEST_BYTES];
    link.session.receive(&mut bytes, link.limit)?;
    let test = match Request::decode(&bytes)? {
        Request::Test(test) => test,
        Request::End => {
            link.session.send(&encode_answer(None), link.limit)?;
            return Ok(false);
        }
    };
    if let Some(reason) = disagreement(run.options, &test) {
        link.session
            .send(&encode_answer(Some(&reason)), link.limit)?;
        return Err(Failure::usage(anyhow!("{reason}")));
    }
    link.session.send(&encode_answer(None), link.limit)?;
    let (verified, messages) = follow(served, link, &test)?;
    let warmed_up = match test.measure {
        Some(Measure::Lat) => ", warm-up included",
        _ => "",
    };
    let moved = messages.map_or(String::new(), |messages| {
        format!(", {messages} answered or received{warmed_up}")
    });
    writeln!(
        run.out,
        "{}: {verified} messages verified here{moved}",
        title(&test)
    )?;
    run.out.flush()?;
    run.report.verified.push(VerifiedRow {
        operation: test.task.title(),
        bytes: test.size,
        verified_messages: verified,
    });
    Ok(true)
}

/// The server's part of a test: messages compared here, and messages answered or received.
fn follow(served: &Served, link: &mut Link, test: &Test) -> Result<(u64, Option<u64>), Failure> {
    let plan = plan_of(test);
    let mut end = End::connect((&served.device, &served.neighbours), &plan, test, link)?;
    let verified = verify::verify(&mut end, link, test)?;
    let messages = match test.measure {
        None => None,
        Some(Measure::Lat) => Some(latency::answer(&mut end, link, test)?),
        Some(Measure::Bw) => Some(bandwidth::serve(&mut end, link, test, &plan)?),
    };
    link.step(Step::Done)?;
    Ok((verified, messages.filter(|&messages| messages > 0)))
}
