#!/usr/bin/env bash
# Installs what building needs, then builds the package and the test programs from the tree, for provision.sh. Runs as root.
# Can be run again: it installs only what is missing.
set -euo pipefail
tree=${1:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$tree"

export HOME=/root DEBIAN_FRONTEND=noninteractive
export PATH="$HOME/.cargo/bin:$PATH"

packages=(build-essential ca-certificates curl git)
if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends "${packages[@]}"
fi

# Debian's cargo is too old: the version that the workspace names, through rustup.
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! cargo "+$version" --version >/dev/null 2>&1; then
    if ! command -v rustup >/dev/null; then
        curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs |
            sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain none
    fi
    rustup toolchain install "$version" --profile minimal
fi
rustup default "$version"

# The tree belongs to another user than root, which git asks to be told about.
git config --global --replace-all safe.directory "$tree"

package=$(cargo xtask dist | tail -n 1)
# Under a name that the Vagrantfile can know.
ln -sf "$(basename "$package")" target/dist/chaos-daemon.deb
cargo build --package chaos-tests --bins
# Apart from the others, which must not get its traps.
cargo build --package chaos-daemon --features fail-points --bin chaos-daemon-failing
