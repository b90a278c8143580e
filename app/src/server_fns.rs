//! What the browser may ask of the server. Each function passes `ssr::require` first, under the permission
//! listed here.

pub mod jobs;

use crate::model::Permission;

/// Every server function with the permission it needs. A test compares this with the code.
pub const SERVER_FUNCTIONS: &[(&str, Permission)] = &[
    ("list_jobs", Permission::ViewJobs),
    ("read_job", Permission::ViewJobs),
    ("follow_job", Permission::ViewJobs),
    ("retry_job", Permission::RetryJobs),
    ("cancel_job", Permission::CancelJobs),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Role;

    const SOURCES: &[&str] = &[include_str!("server_fns/jobs.rs")];

    #[test]
    fn every_server_function_asks_for_the_permission_in_the_table() {
        let mut found = Vec::new();
        for source in SOURCES {
            for part in source.split("#[server(").skip(1) {
                let name = part.split("pub async fn ").nth(1).and_then(|rest| rest.split('(').next()).expect("a name");
                let body = part.split_once('{').expect("a body").1.trim_start();
                let gate = body.split_once("require(Permission::").map(|(before, rest)| {
                    assert!(!before.contains(".await"), "{name} does something before it asks for a permission");
                    rest.split_once(", ").expect("an action")
                });
                let (permission, rest) = gate.unwrap_or_else(|| panic!("{name} asks for no permission"));
                assert!(rest.starts_with(&format!("{name:?}")), "{name} is refused under another name");
                found.push((name.to_owned(), permission.to_owned()));
            }
        }
        let listed: Vec<_> =
            SERVER_FUNCTIONS.iter().map(|(name, permission)| ((*name).to_owned(), format!("{permission:?}"))).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn every_source_with_server_functions_is_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut open = vec![folder];
        let mut n_files = 0;
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let source = std::fs::read_to_string(&path).expect("a source");
                    n_files += usize::from(source.lines().any(|line| line.starts_with("#[server(")));
                }
            }
        }
        assert_eq!(n_files, SOURCES.len());
    }

    #[test]
    fn roles_may_do_what_the_design_says() {
        use Permission::*;
        let may = |role: Role| [ViewJobs, RetryJobs, EnqueueJobs, CancelJobs].map(|permission| role.allows(permission));
        assert_eq!(may(Role::Viewer), [true, false, false, false]);
        assert_eq!(may(Role::Operator), [true, true, true, false]);
        assert_eq!(may(Role::Admin), [true, true, true, true]);
    }
}
