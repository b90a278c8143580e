//! Breadth first, so that the first broken promise has a shortest path; then backwards from the ends, for the states that cannot
//! reach one.

use std::collections::{HashMap, VecDeque};

use super::state::{Rules, State};

pub(crate) enum Finding {
    Sound { n_states: usize },
    Broken { promise: &'static str, path: Vec<String> },
}

/// Searches every state that can be reached.
pub(crate) fn explore(rules: Rules) -> Finding {
    let mut places = HashMap::from([(State::start(), 0_usize)]);
    let mut states = vec![State::start()];
    // How each state was first reached, and from where it is reached without a person.
    let mut reached_by: Vec<Option<(usize, String)>> = vec![None];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut open = VecDeque::from([0]);
    while let Some(place) = open.pop_front() {
        for step in states[place].steps(rules) {
            let next = match step.next {
                Ok(next) => next,
                Err(promise) => return Finding::Broken { promise, path: path(&reached_by, place, Some(step.what)) },
            };
            let next_place = *places.entry(next.clone()).or_insert_with(|| {
                states.push(next);
                reached_by.push(Some((place, step.what.clone())));
                before.push(Vec::new());
                open.push_back(states.len() - 1);
                states.len() - 1
            });
            if step.by_itself {
                before[next_place].push(place);
            }
        }
    }
    let mut ends = vec![false; states.len()];
    let mut open: VecDeque<usize> = (0..states.len()).filter(|place| states[*place].status.is_final()).collect();
    for place in &open {
        ends[*place] = true;
    }
    while let Some(place) = open.pop_front() {
        for earlier in &before[place] {
            if !std::mem::replace(&mut ends[*earlier], true) {
                open.push_back(*earlier);
            }
        }
    }
    match ends.iter().position(|ends| !ends) {
        Some(stuck) => {
            Finding::Broken { promise: "every state can come to an end", path: path(&reached_by, stuck, None) }
        }
        None => Finding::Sound { n_states: states.len() },
    }
}

fn path(reached_by: &[Option<(usize, String)>], mut place: usize, last: Option<String>) -> Vec<String> {
    let mut steps: Vec<String> = last.into_iter().collect();
    while let Some((earlier, what)) = &reached_by[place] {
        steps.push(what.clone());
        place = *earlier;
    }
    steps.reverse();
    steps
}
