# Programs that the tests start beside the broker. Sourced by script/test, which owns the cache; both are kept between runs.
#
#   LANEWAY_SCHEMATHESIS  asks the HTTP API what its description allows, and what it does not (a Python package)
#   LANEWAY_PROMTOOL      reads alert rules as Prometheus does (from the distribution's package, unpacked, not installed)
# shellcheck shell=bash
# shellcheck disable=SC2154 # $cache is script/test's

schemathesis_version=4.32.5

# Sets and exports both, installing what is missing. A second run of script/test waits at the lock.
provide_checkers() {
    say "Looking for schemathesis and promtool"
    cache=$(cache_dir)
    exec 8>"$cache/checkers.lock"
    flock 8
    provide_schemathesis
    provide_promtool
    exec 8>&-
    say "schemathesis is $LANEWAY_SCHEMATHESIS, promtool is $LANEWAY_PROMTOOL"
}

schemathesis_works() { [[ $("$1" --version 2>/dev/null) == *" $schemathesis_version" ]]; }

provide_schemathesis() {
    local environment=$cache/schemathesis-$schemathesis_version
    export LANEWAY_SCHEMATHESIS=$environment/bin/schemathesis
    schemathesis_works "$LANEWAY_SCHEMATHESIS" && return
    say "Installing schemathesis $schemathesis_version into $environment"
    rm -rf "$environment"
    "$(python_with_venv)" -m venv "$environment" ||
        die "Python cannot make a virtual environment: run 'apt-get install python3-venv' as root, then run this again."
    "$environment/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
        "schemathesis==$schemathesis_version" ||
        die "pip did not install schemathesis $schemathesis_version: check the network, then run this again."
    schemathesis_works "$LANEWAY_SCHEMATHESIS" ||
        die "schemathesis does not run: see what '$LANEWAY_SCHEMATHESIS --version' says."
}

promtool_works() { "$1" --version >/dev/null 2>&1; }

provide_promtool() {
    export LANEWAY_PROMTOOL
    LANEWAY_PROMTOOL=$(command -v promtool) && return
    LANEWAY_PROMTOOL=$cache/prometheus/usr/bin/promtool
    promtool_works "$LANEWAY_PROMTOOL" || unpack_promtool
    promtool_works "$LANEWAY_PROMTOOL" ||
        die "promtool does not run: see what '$LANEWAY_PROMTOOL --version' says, or put another one on PATH."
}

# The package also starts a service when it is installed; one program of it is all that we want.
unpack_promtool() {
    local parcel=$cache/prometheus.parcel
    say "Unpacking promtool into $cache/prometheus"
    rm -rf "$parcel" "$cache/prometheus"
    mkdir -p "$parcel"
    download_prometheus "$parcel" || { as_root apt-get update --quiet && download_prometheus "$parcel"; } ||
        die "apt-get did not download the package prometheus (see $cache/promtool.log): put a promtool on PATH, then run this again."
    dpkg-deb --extract "$parcel"/prometheus_*.deb "$cache/prometheus" ||
        die "dpkg-deb did not unpack the package prometheus: put a promtool on PATH, then run this again."
    rm -rf "$parcel"
}

download_prometheus() (cd "$1" && apt-get download --quiet prometheus >"$cache/promtool.log" 2>&1)
