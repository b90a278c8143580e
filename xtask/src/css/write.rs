//! Joins `style/app.css`, has the engine make the utilities, and writes the result.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};

use super::sheet::{self, Statement};
use super::{candidates, order};
use crate::paths;
use crate::step::{self, step};

/// Where utilities come into the sheet.
const UTILITIES: &str = "@import \"tailwindcss/utilities.css\" layer(utilities)";
/// Layers with rules of ours, whose classes are no utilities.
const OURS: [&str; 2] = ["@layer base", "@layer components"];

/// Generates the sheet and writes it, or with `check` compares it with what is there.
pub(super) fn write(check: bool) -> Result<ExitCode> {
    let _lock = step::exclusive("css")?;
    let output = paths::root().join("style/dist/app.css");
    let css = step("style sheet", generate)?;
    if fs::read_to_string(&output).is_ok_and(|kept| kept == css) {
        println!("    style/dist/app.css is up to date, {} bytes", css.len());
        return Ok(ExitCode::SUCCESS);
    }
    if check {
        eprintln!("error: style/dist/app.css is not what its sources make: run `cargo xtask css`");
        return Ok(ExitCode::FAILURE);
    }
    step::write(&output, css.as_bytes())?;
    println!("    wrote style/dist/app.css, {} bytes", css.len());
    Ok(ExitCode::SUCCESS)
}

fn generate() -> Result<String> {
    let root = paths::root();
    let mut sheet = sheet::merge_layers(sheet::read(&root.join("style/app.css"))?);
    let mut ours = BTreeSet::new();
    for statement in sheet.iter().filter(|statement| OURS.contains(&statement.head.as_str())) {
        sheet::classes(statement.body.as_deref().unwrap_or_default(), &mut ours);
    }
    let theme: Vec<Statement> = sheet.extract_if(.., |statement| is_tailwinds(statement)).collect();
    let utilities = engine(&theme, &candidates(&ours)?)?;
    let Some(place) = sheet.iter().position(|statement| statement.head == UTILITIES) else {
        bail!("style/app.css does not contain `{UTILITIES};`");
    };
    sheet.splice(place..=place, clean(utilities, &theme, &sheet[..place])?);
    let css = sheet::to_css(&sheet);
    let missing = undefined(&css);
    if !missing.is_empty() {
        bail!("variables without a definition in the style sheet: {}", missing.join(" "));
    }
    Ok(format!("/* Made by `cargo xtask css` from style/ and the classes in the sources: do not edit. */\n{css}"))
}

/// Statements that only the engine understands.
fn is_tailwinds(statement: &Statement) -> bool {
    ["@theme", "@utility ", "@custom-variant "].iter().any(|head| statement.head.starts_with(head))
}

/// What the sources may use as utilities. A name of one of our components is never one.
fn candidates(ours: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let root = paths::root();
    for file in paths::files(&[root.join("app/src"), root.join("server/src")]) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            candidates::in_rust(&source, &mut found);
        }
    }
    Ok(&found - ours)
}

/// Runs the engine over theme and candidates; its own file is its only interface that knows `@theme`.
fn engine(theme: &[Statement], candidates: &BTreeSet<String>) -> Result<Vec<Statement>> {
    let mut input = String::from(
        "@import \"tailwindcss/theme.css\" layer(theme);\n@import \"tailwindcss/utilities.css\" layer(utilities) source(none);\n",
    );
    for candidate in candidates {
        writeln!(input, "@source inline(\"{candidate}\");")?;
    }
    for statement in theme {
        // A declaration per line: the engine reads lines.
        writeln!(input, "{} {{", statement.head)?;
        for declaration in statement.body.iter().flatten() {
            writeln!(input, "  {};", declaration.head)?;
        }
        input.push_str("}\n");
    }
    let (from, to) = (paths::scratch().join("css/in.css"), paths::scratch().join("css/out.css"));
    step::write(&from, input.as_bytes())?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    ironframe::run(ironframe::Command::Build {
        inputs: Vec::new(),
        out: Some(text(&to)),
        input_css: Some(text(&from)),
        compare_css: None,
        // Its own minifier drops semicolons before nested rules.
        minify: false,
        config: None,
        ignore: Vec::new(),
    })
    .map_err(|error| anyhow!("the Tailwind engine: {}", error.message))?;
    let css = fs::read_to_string(&to).with_context(|| format!("cannot read {}", to.display()))?;
    sheet::parse(&css).context("in the engine's output")
}

/// Of the engine's output: the utilities in Tailwind's order, and of its variables and properties those they use.
fn clean(output: Vec<Statement>, theme: &[Statement], before: &[Statement]) -> Result<Vec<Statement>> {
    let mut utilities = Vec::new();
    let mut variables = Vec::new();
    let mut rest = Vec::new();
    for statement in output {
        match (statement.head.as_str(), statement.body) {
            ("@layer utilities", Some(body)) => utilities.extend(body),
            ("@layer theme", Some(body)) => {
                variables.extend(body.into_iter().flat_map(|rule| rule.body.unwrap_or_default()))
            }
            (head, Some(body)) if head.starts_with("@property ") || head.starts_with("@keyframes ") => {
                rest.push(Statement::block(head, body));
            }
            _ => {}
        }
    }
    drop_unset_line_heights(&mut utilities, theme);
    order::sort(&mut utilities, &breakpoints(theme)?);

    let text: String = utilities.iter().map(Statement::text).collect();
    let ours: String = before.iter().map(Statement::text).collect();
    let mut used = sheet::variables_used(&text);
    loop {
        let more: BTreeSet<String> = variables
            .iter()
            .filter(|variable| used.contains(name(variable)))
            .flat_map(|variable| sheet::variables_used(&variable.head))
            .collect();
        if more.is_subset(&used) {
            break;
        }
        used.extend(more);
    }
    variables.retain(|variable| used.contains(name(variable)) && !ours.contains(&format!("{}:", name(variable))));
    let values: String = variables.iter().map(Statement::text).collect();
    rest.retain(|statement| match statement.head.strip_prefix("@property ") {
        Some(property) => text.contains(property),
        None => {
            let frames = statement.head.trim_start_matches("@keyframes ");
            (text.contains(frames) || values.contains(frames)) && !ours.contains(&format!("@keyframes {frames}{{"))
        }
    });

    let mut result = Vec::new();
    if !variables.is_empty() {
        result.push(Statement::block("@layer base", vec![Statement::block(":root", variables)]));
    }
    result.push(Statement::block("@layer utilities", utilities));
    result.extend(rest);
    Ok(result)
}

/// The name in `--name: value`.
fn name(declaration: &Statement) -> &str {
    declaration.head.split(':').next().unwrap_or_default().trim()
}

/// Our text sizes come without a line height of their own; the engine asks for one all the same.
fn drop_unset_line_heights(rules: &mut [Statement], theme: &[Statement]) {
    let defined: String = theme.iter().map(Statement::text).collect();
    for rule in rules {
        let Some(body) = &mut rule.body else { continue };
        body.retain(|declaration| {
            !(declaration.head.starts_with("line-height:")
                && sheet::variables_used(&declaration.head)
                    .iter()
                    .any(|variable| variable.ends_with("--line-height") && !defined.contains(variable.as_str())))
        });
        drop_unset_line_heights(body, theme);
    }
}

/// Names and pixel widths of `--breakpoint-*`.
fn breakpoints(theme: &[Statement]) -> Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    for declaration in theme.iter().flat_map(|statement| statement.body.iter().flatten()) {
        let Some(rest) = declaration.head.strip_prefix("--breakpoint-") else {
            continue;
        };
        let (name, width) = rest.split_once(':').context("a breakpoint without a width")?;
        if name != "*" {
            let width = width.trim().strip_suffix("px").and_then(|width| width.parse().ok());
            found.push((name.to_owned(), width.with_context(|| format!("--breakpoint-{name} is not in whole px"))?));
        }
    }
    Ok(found)
}

/// Variables that are asked for without a fallback and defined nowhere.
fn undefined(css: &str) -> Vec<String> {
    css.split("var(")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find([',', ')'])?;
            (rest.as_bytes()[end] == b')').then(|| rest[..end].trim().to_owned())
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|name| {
            ![format!("{name}:"), format!("@property {name}{{")].iter().any(|definition| {
                css.match_indices(definition.as_str())
                    .any(|(at, _)| at == 0 || !css[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-'))
            })
        })
        .collect()
}
