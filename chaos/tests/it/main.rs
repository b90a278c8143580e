//! The program as `cargo xtask` starts it.

use std::process::Command;

#[test]
fn a_scenario_nobody_knows_is_refused_with_those_there_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_jobdeck-chaos")).arg("earthquake").output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("there is no scenario \"earthquake\"") && said.contains("sigkill_loop, frozen_worker"),
        "{said}"
    );
}
