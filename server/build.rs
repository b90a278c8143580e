//! A release binary holds the browser half, so it is built again when that one was. A debug build reads the folder.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        println!("cargo:rerun-if-changed=../target/site/manifest.json");
    }
}
