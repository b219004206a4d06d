# shellcheck shell=bash
# What script/server and script/test share: finding what Laneway needs on a Debian-like machine, and installing it.
# Sourced, never run. The want_* functions only look; install_wanted installs all that they missed, in one go.
# Invariant: a PostgreSQL that is already here is never reconfigured, started or stopped.

# The caller sets `set -euo pipefail`. An administrator's tools are not on every user's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

# PostgreSQL older than this lacks what the schema uses (multiranges).
postgres_major_min=14

wanted=()

say() { printf '==> %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints the directory of the newest usable server binaries: the one on PATH first, then the distribution's.
postgres_bin() {
    local dir major
    while read -r dir; do
        [[ -x $dir/postgres && -x $dir/initdb ]] || continue
        major=$("$dir/postgres" --version 2>/dev/null | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
        if ((${major:-0} >= postgres_major_min)); then
            printf '%s\n' "$dir"
            return 0
        fi
    done < <(
        dirname "$(command -v postgres || echo /nonexistent/postgres)"
        printf '%s\n' /usr/lib/postgresql/*/bin | sort --version-sort --reverse
    )
    return 1
}

want_postgres() {
    say "Looking for PostgreSQL server binaries"
    postgres_bin >/dev/null || wanted+=(postgresql)
}

# Compiles and links a program: a compiler without the C library's headers is of no use.
cc_links() {
    local dir status=0
    dir=$(mktemp -d) || die "cannot make a temporary directory: free some space or set TMPDIR to a writable directory."
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$dir/probe.c"
    cc -o "$dir/probe" "$dir/probe.c" >/dev/null 2>&1 || status=1
    rm -rf "$dir"
    return "$status"
}

# For the README's tour, which a test takes, and for brokers whose clocks are off.
want_tour() {
    say "Looking for curl and libfaketime"
    command -v curl >/dev/null || wanted+=(curl)
    compgen -G '/usr/lib*/*/faketime/libfaketimeMT.so.1' >/dev/null || compgen -G '/usr/lib*/faketime/libfaketimeMT.so.1' >/dev/null ||
        wanted+=(libfaketime)
}

want_toolchain() {
    say "Looking for a C toolchain and root certificates"
    cc_links || wanted+=(gcc libc6-dev)
    command -v make >/dev/null || wanted+=(make)
    [[ -e /etc/ssl/certs/ca-certificates.crt || -e /etc/pki/tls/certs/ca-bundle.crt ]] || wanted+=(ca-certificates)
}

want_pgbouncer() {
    say "Looking for PgBouncer"
    command -v pgbouncer >/dev/null || wanted+=(pgbouncer)
}

# The names under which distributions install Chromium, the same as in tests/browser.
want_chromium() {
    say "Looking for Chromium"
    command -v chromium chromium-browser google-chrome >/dev/null || wanted+=(chromium)
}

# Prints a Python that can make a virtual environment with pip; Debian packages that ability apart.
python_with_venv() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            printf '%s\n' "$python"
            return 0
        fi
    done
    return 1
}

want_python() {
    say "Looking for Python with venv"
    python_with_venv >/dev/null || wanted+=(python3 python3-venv)
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Installs the wanted packages, or says who has to do it and how.
install_wanted() {
    ((${#wanted[@]} > 0)) || return 0
    command -v apt-get >/dev/null ||
        die "this machine has no apt-get: install what Debian calls '${wanted[*]}' with your package manager, then run this again."
    ((EUID == 0)) || sudo -n true 2>/dev/null ||
        die "packages are missing and you cannot sudo: have root run 'apt-get update && apt-get install --yes ${wanted[*]}', then run this again."

    say "Installing ${wanted[*]}"
    # A foreign repository that does not answer must not stop us; a package that is not found will.
    as_root apt-get update -qq </dev/null || true
    apt_install_without_cluster "${wanted[@]}" ||
        die "installing ${wanted[*]} failed: mend what apt-get says above (the network, or 'dpkg --configure -a' as root), then run this again."
    [[ " ${wanted[*]} " != *' pgbouncer '* ]] || rest_pgbouncer
    check_installed
    wanted=()
}

# Under this setting PostgreSQL's package creates no cluster, so none is started either. It lasts only for our own
# install: what the machine's owner installs later behaves as they expect. apt-get is heard only when it fails.
apt_install_without_cluster() (
    drop_in=/etc/postgresql-common/createcluster.d/laneway-setup.conf
    log=$(mktemp)
    trap 'as_root rm -f "$drop_in" "$log"' EXIT
    as_root mkdir -p "${drop_in%/*}" &&
        as_root tee "$drop_in" <<<'create_main_cluster = false' >/dev/null &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
            install -qq --yes --no-install-recommends "$@" </dev/null >"$log" 2>&1 && return
    tail -n 40 "$log" >&2
    return 1
)

# PgBouncer's package starts a service. The tests start their own, so the one that we brought is put to rest.
rest_pgbouncer() {
    say "Stopping and disabling the pgbouncer service that came with its package"
    as_root invoke-rc.d pgbouncer stop >/dev/null 2>&1 || true
    as_root update-rc.d pgbouncer disable >/dev/null 2>&1 || true
}

# The distribution may be too old: say so here and not deep inside a build.
check_installed() {
    postgres_bin >/dev/null || [[ " ${wanted[*]} " != *' postgresql '* ]] ||
        die "this distribution's PostgreSQL is older than $postgres_major_min: install a newer 'postgresql' from the PostgreSQL project's apt repository."
    cc_links ||
        die "'cc' still cannot build a program: run 'apt-get install --reinstall gcc libc6-dev' as root, then run this again."
}

# Rust is the developer's choice: we name the version and leave the installing to them.
require_cargo() {
    say "Looking for cargo"
    local bin=${CARGO_HOME:-${HOME:-}/.cargo}/bin version minimum
    command -v cargo >/dev/null || [[ ! -x $bin/cargo ]] || PATH=$bin:$PATH
    minimum=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
    [[ -n $minimum ]] || die "Cargo.toml names no rust-version: restore the line 'rust-version = \"...\"' under [workspace.package]."
    command -v cargo >/dev/null ||
        die "cargo is missing: install Rust $minimum or newer with rustup (https://rustup.rs) or from your distribution, then run this again."
    version=$(cd "$root" && cargo --version 2>/dev/null | awk '{ print $2 }') || true
    [[ -n $version ]] ||
        die "'cargo --version' does not work: run 'rustup default stable' to choose a toolchain, then run this again."
    [[ $(printf '%s\n' "$minimum" "$version" | sort --version-sort | head -n 1) == "$minimum" ]] ||
        die "cargo $version is older than Rust $minimum: run 'rustup update stable', or install rustup (https://rustup.rs) where the distribution is behind."
}
