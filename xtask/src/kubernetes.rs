//! kube-apiserver for the tests. Debian has its source, and no program of it: so it is built once, with Debian's Go, from the source package
//! and nothing else, and kept in `target/kubernetes`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::{run, tools};

/// A package of the same source, by which apt knows where that is.
const SIBLING: &str = "kubernetes-client";
/// What Debian 12 has, with all that it depends on in it.
const SOURCE: &str = "kubernetes_1.20.5+really1.20.2.orig.tar.gz";
const SHA256: &str = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc";
const VERSION: &str = "1.20.2";
/// What of the tree has an API of its own, which is an example.
const OTHERS: &[&str] = &["/code-generator/", "/sample-apiserver/"];

/// The program, built now unless it is there.
pub(crate) fn server() -> Result<PathBuf, Error> {
    let dir = run::root().join("target/kubernetes");
    let server = dir.join(format!("kube-apiserver-{VERSION}"));
    if server.is_file() {
        return Ok(server);
    }
    tools::require(tools::GO)?;
    let work = dir.join("work");
    let _ = fs::remove_dir_all(&work);
    let tree = work.join("src/k8s.io/kubernetes");
    fs::create_dir_all(&tree).map_err(Error::file("create", &tree))?;
    fetch(&work)?;
    run::output(
        Command::new("tar")
            .args(["--extract", "--gzip", "--strip-components=1", "--file"])
            .arg(work.join(SOURCE))
            .arg("--directory")
            .arg(&tree),
    )?;
    eprintln!("building kube-apiserver {VERSION} (once, minutes)");
    let built = work.join("kube-apiserver");
    generate(&work, &tree)?;
    compile(&work, &tree, "./cmd/kube-apiserver", &built)?;
    fs::rename(&built, &server).map_err(Error::file("rename", &built))?;
    fs::remove_dir_all(&work).map_err(Error::file("remove", &work))?;
    Ok(server)
}

/// Downloads the source into a folder. Only what has this hash is kept.
fn fetch(dir: &Path) -> Result<(), Error> {
    let folder = match folder() {
        Some(folder) => folder,
        None => {
            tools::update()?;
            folder()
                .ok_or_else(|| Error::Lacking(format!("apt knows no package {SIBLING}: Debian 12 has it")))?
        }
    };
    eprintln!("downloading {SOURCE}");
    let address = format!("{folder}/{}", SOURCE.replace('+', "%2b"));
    let hash = format!("SHA256:{SHA256}");
    run::output(
        Command::new("/usr/lib/apt/apt-helper")
            .args(["download-file", &address])
            .arg(dir.join(SOURCE))
            .arg(hash),
    )
    .map(drop)
}

/// Where the packages of the source are.
fn folder() -> Option<String> {
    let said =
        run::text(Command::new("apt-get").args(["download", "--print-uris", SIBLING])).unwrap_or_default();
    let address = said.split('\'').nth(1);
    address.and_then(|address| address.rsplit_once('/')).map(|(folder, _)| folder.to_owned())
}

/// What Kubernetes makes before it is built, and does not ship: the description of its API, as its Makefile.generated_files has it made.
fn generate(work: &Path, tree: &Path) -> Result<(), Error> {
    let generator = work.join("openapi-gen");
    compile(work, tree, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen", &generator)?;
    let mut tagged = Command::new("grep");
    tagged.args(["-rl", "--include=*.go", "+k8s:openapi-gen=", "staging/src/k8s.io"]).current_dir(tree);
    let tagged = run::text(&mut tagged)?;
    let folders: BTreeSet<_> = tagged
        .lines()
        .filter(|path| !OTHERS.iter().any(|other| path.contains(other)))
        .filter_map(|path| Some(path.strip_prefix("staging/src/")?.rsplit_once('/')?.0))
        .map(|folder| format!("k8s.io/kubernetes/vendor/{folder}"))
        .collect();
    let mut command = go(Command::new(&generator), work, tree);
    command.arg("-i").arg(folders.into_iter().collect::<Vec<_>>().join(","));
    command.args(["-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O", "zz_generated.openapi"]);
    command.args(["-h", "hack/boilerplate/boilerplate.generatego.txt", "-o"]).arg(work.join("src"));
    run::output(command.arg("-r").arg(work.join("violations"))).map(drop)
}

/// Without `-trimpath`: the generator finds the sources of Go itself by the path that is in it.
fn compile(work: &Path, tree: &Path, package: &str, built: &Path) -> Result<(), Error> {
    let mut command = go(Command::new("go"), work, tree);
    command.args(["build", "-ldflags=-s -w", "-o"]).arg(built).arg(package);
    run::output(&mut command).map(drop)
}

/// Has a command see the tree as Go did when it had no modules, which is how Debian builds it: with what is there, and no network.
fn go(mut command: Command, work: &Path, tree: &Path) -> Command {
    command.current_dir(tree).env("GOPATH", work).env("GOCACHE", work.join("cache"));
    command.envs([("GO111MODULE", "off"), ("GOFLAGS", ""), ("GOPROXY", "off"), ("CGO_ENABLED", "0")]);
    command
}
