//! The `laneway` binary: everything is in the library, so that tests and benches reach it too.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    laneway::cli::run()
}
