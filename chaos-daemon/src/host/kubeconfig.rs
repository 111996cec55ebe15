//! Kubeconfigs (<https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>): where an API server is, by whose word it is who it
//! says, and who asks. What cannot be done is refused by name, and no error shows anything of what a file has for values.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::secret::{own, roots};

/// What of a cluster or of a user would be another way to get there, and is none here.
const REFUSED: &[(&str, &str)] = &[
    ("tls-server-name", "give a server whose certificate is for the host of its address"),
    ("proxy-url", "no proxy is used: give an address that can be reached"),
    ("exec", "no program is run for a credential: give a token, or a certificate"),
    ("auth-provider", "no program is run for a credential: give a token, or a certificate"),
    ("username", "give a token, or a certificate"),
    ("password", "give a token, or a certificate"),
    ("as", "nobody else is impersonated: give the credential of who is to ask"),
    ("as-uid", "nobody else is impersonated: give the credential of who is to ask"),
    ("as-groups", "nobody else is impersonated: give the credential of who is to ask"),
    ("as-user-extra", "nobody else is impersonated: give the credential of who is to ask"),
];

/// A way to an API server, with all that it takes: it refers to no other file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// `https://…`, without a slash at the end.
    pub server: String,
    /// By whose word it is who it says.
    pub authorities: Authorities,
    /// Where resources are meant to be when nobody says.
    pub namespace: Option<String>,
    /// What is shown in each request.
    pub token: Option<String>,
    /// What is shown for the connection: certificates and their key, in PEM.
    pub certificate: Option<(String, String)>,
}

/// By whose word a server is who it says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authorities {
    /// That of those which the host trusts.
    Host,
    /// That of these, in PEM.
    Pem(String),
    /// Nobody's.
    Unasked,
}

/// What a file has: its contexts by name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubeconfig {
    current: Option<String>,
    contexts: BTreeMap<String, Result<Access, String>>,
}

/// Reads a file that a kubeconfig is, or that it refers to. The second says whether it holds a secret.
pub type Reader<'a> = &'a dyn Fn(&Path, bool) -> Result<Vec<u8>, String>;

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("server", &self.server).finish_non_exhaustive()
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("contexts", &self.contexts.keys()).finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// The one at `path`, with all that it refers to.
    ///
    /// # Errors
    /// When it cannot be read, or is none. What a single context lacks, [`Self::access`] says.
    pub fn read(path: &Path, read: Reader<'_>) -> Result<Self, String> {
        let text = read(path, true)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, folder, read).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    fn parse(text: &[u8], folder: &Path, read: Reader<'_>) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_text| "it is not text".to_owned())?;
        // What is wrong with it may be the line that has the token.
        let document: Value = serde_saphyr::from_str(text).map_err(|error| match error.location() {
            Some(place) => format!("it is not YAML, in line {}", place.line()),
            None => "it is not YAML".to_owned(),
        })?;
        if !document["clusters"].is_array() {
            return Err("it is no kubeconfig: it has no clusters".to_owned());
        }
        let contexts = document["contexts"].as_array().into_iter().flatten().filter_map(|context| {
            let name = context["name"].as_str()?;
            Some((name.to_owned(), access(&document, &context["context"], folder, read)))
        });
        Ok(Self { current: text_of(&document, "current-context")?, contexts: contexts.collect() })
    }

    /// The way that a context is, or the current one.
    ///
    /// # Errors
    /// When there is none of this name, or what is wrong with it.
    pub fn access(&self, context: Option<&str>) -> Result<&Access, String> {
        let name = context.or(self.current.as_deref());
        let name = name.ok_or("it has no current-context: give --context".to_owned())?;
        match self.contexts.get(name) {
            Some(access) => access.as_ref().map_err(Clone::clone),
            None => {
                let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
                Err(format!("it has no context {name:?}, but {}", known.join(", ")))
            }
        }
    }
}

fn access(document: &Value, context: &Value, folder: &Path, read: Reader<'_>) -> Result<Access, String> {
    let (cluster_name, cluster) = named(document, "clusters", "cluster", context)?;
    let (user_name, user) = named(document, "users", "user", context)?;
    let of_cluster = |problem: String| format!("cluster {cluster_name:?}: {problem}");
    let of_user = |problem: String| format!("user {user_name:?}: {problem}");
    let server = refuse(cluster).and_then(|()| server(cluster)).map_err(of_cluster)?;
    refuse(user).map_err(of_user)?;
    let files = Files { folder, read };
    let authorities = files.authorities(cluster).map_err(of_cluster)?;
    let token = files.token(user).map_err(of_user)?;
    let certificate = files.certificate(user).map_err(of_user)?;
    if token.is_none() && certificate.is_none() {
        return Err(of_user(
            "it has no credential: give token, tokenFile, or client-certificate and client-key".to_owned(),
        ));
    }
    let namespace = text_of(context, "namespace")?.filter(|namespace| !namespace.is_empty());
    Ok(Access { server, authorities, namespace, token, certificate })
}

/// What `list` has under the name that a context gives.
fn named<'a>(
    document: &'a Value,
    list: &str,
    kind: &str,
    context: &Value,
) -> Result<(String, &'a Value), String> {
    let name = text_of(context, kind)?.ok_or_else(|| format!("its context names no {kind}"))?;
    let mut all = document[list].as_array().into_iter().flatten();
    match all.find(|one| one["name"] == name.as_str()) {
        Some(found) => Ok((name, &found[kind])),
        None => Err(format!("it has no {kind} {name:?}, which its context names")),
    }
}

fn refuse(part: &Value) -> Result<(), String> {
    let is_given = |value: &Value| {
        !value.is_null() && *value != "" && value.as_array().is_none_or(|all| !all.is_empty())
    };
    match REFUSED.iter().find(|(field, _)| is_given(&part[*field])) {
        Some((field, instead)) => Err(format!("{field} is not supported: {instead}")),
        None => Ok(()),
    }
}

fn server(cluster: &Value) -> Result<String, String> {
    let server = text_of(cluster, "server")?.unwrap_or_default();
    let host = server.strip_prefix("https://").unwrap_or_default();
    if host.is_empty()
        || host.starts_with('/')
        || host.contains(|c: char| c.is_whitespace() || matches!(c, '@' | '?' | '#'))
    {
        return Err("its server is no address of https, such as https://127.0.0.1:6443".to_owned());
    }
    Ok(server.trim_end_matches('/').to_owned())
}

/// A text, which is not shown when it is something else.
fn text_of(part: &Value, field: &str) -> Result<Option<String>, String> {
    match &part[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(format!("{field} is not text")),
    }
}

/// Where what a kubeconfig refers to is, and how it is read.
struct Files<'a> {
    folder: &'a Path,
    read: Reader<'a>,
}

impl Files<'_> {
    fn authorities(&self, cluster: &Value) -> Result<Authorities, String> {
        match &cluster["insecure-skip-tls-verify"] {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => return Ok(Authorities::Unasked),
            _ => return Err("insecure-skip-tls-verify is neither true nor false".to_owned()),
        }
        let pem = self.pem(cluster, "certificate-authority", false)?;
        Ok(pem.map_or(Authorities::Host, Authorities::Pem))
    }

    fn token(&self, user: &Value) -> Result<Option<String>, String> {
        // The file counts where there are both (k8s.io/client-go, `rest.Config.BearerTokenFile`).
        let Some(path) = text_of(user, "tokenFile")?.filter(|path| !path.is_empty()) else {
            let token = text_of(user, "token")?.filter(|token| !token.is_empty());
            let is_wrong = token.as_deref().is_some_and(|token| !is_word(token));
            return if is_wrong { Err("token is none".to_owned()) } else { Ok(token) };
        };
        let text = (self.read)(&self.folder.join(&path), true)?;
        let token = String::from_utf8_lossy(&text).trim().to_owned();
        is_word(&token).then_some(Some(token)).ok_or(format!("there is no token in {path}"))
    }

    fn certificate(&self, user: &Value) -> Result<Option<(String, String)>, String> {
        let chain = self.pem(user, "client-certificate", false)?;
        let key = self.pem(user, "client-key", true)?;
        match (chain, key) {
            (Some(chain), Some(key)) => Ok(Some((chain, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client-key is missing".to_owned()),
            (None, Some(_)) => Err("client-certificate is missing".to_owned()),
        }
    }

    /// What a field has in itself, or in the file that it names; the former counts.
    fn pem(&self, part: &Value, field: &str, secret: bool) -> Result<Option<String>, String> {
        let data = format!("{field}-data");
        let bytes = match (text_of(part, &data)?, text_of(part, field)?) {
            (Some(text), _) if !text.is_empty() => {
                let text: String = text.split_whitespace().collect();
                STANDARD.decode(text).map_err(|_text| format!("{data} is not in base64"))?
            }
            (_, Some(path)) if !path.is_empty() => (self.read)(&self.folder.join(path), secret)?,
            _ => return Ok(None),
        };
        String::from_utf8(bytes).map(Some).map_err(|_bytes| format!("{field} is not in the form PEM"))
    }
}

/// Whether it can be shown in a header.
fn is_word(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: pay
clusters:
- name: one
  cluster: {server: 'https://127.0.0.1:6443/', certificate-authority: ca.pem}
- name: two
  cluster: {server: https://k8s.test/cluster/7, certificate-authority-data: Q0EK, certificate-authority: no.pem}
- name: open
  cluster: {server: https://k8s.test, insecure-skip-tls-verify: true}
- name: plain
  cluster: {server: http://k8s.test}
- name: proxied
  cluster: {server: https://k8s.test, proxy-url: http://proxy}
- name: renamed
  cluster: {server: https://k8s.test, tls-server-name: other}
users:
- {name: token, user: {token: hunter2}}
- {name: file, user: {token: hunter2, tokenFile: token}}
- {name: both, user: {client-certificate-data: Q0VSVAo=, client-key: /keys/a.key}}
- {name: half, user: {client-certificate-data: Q0VSVAo=}}
- {name: broken, user: {client-certificate-data: hunter2!, client-key: /keys/a.key}}
- {name: exec, user: {exec: {command: hunter2}}}
- {name: provider, user: {token: hunter2, auth-provider: {name: gcp}}}
- {name: basic, user: {username: a, password: hunter2}}
- {name: other, user: {token: hunter2, as: admin}}
- {name: odd, user: {token: [hunter2]}}
- {name: lines, user: {token: \"hunter2\\r\\nX: y\"}}
- {name: nobody, user: {}}
contexts:
";

    /// The only context, of a cluster and a user.
    fn parsed(cluster: &str, user: &str) -> Result<Access, String> {
        let read = |path: &Path, secret: bool| match (path.to_str().unwrap(), secret) {
            ("/etc/k/ca.pem", false) => Ok(b"CA\n".to_vec()),
            ("/keys/a.key", true) => Ok(b"KEY\n".to_vec()),
            ("/etc/k/token", true) => Ok(b"hunter2\n".to_vec()),
            (other, _) => Err(format!("{other} cannot be read")),
        };
        let text = format!(
            "{FILE}- {{name: pay, context: {{cluster: {cluster}, user: {user}, namespace: shop}}}}\n"
        );
        let file = Kubeconfig::parse(text.as_bytes(), Path::new("/etc/k"), &read)?;
        assert!(!format!("{file:?}").contains("hunter2"));
        file.access(None).cloned()
    }

    #[test]
    fn a_context_becomes_a_way_with_all_that_it_takes() {
        let access = parsed("one", "token").unwrap();
        assert_eq!(access.server, "https://127.0.0.1:6443");
        assert!(access.authorities == Authorities::Pem("CA\n".into()) && access.certificate.is_none());
        assert_eq!((access.token.as_deref(), access.namespace.as_deref()), (Some("hunter2"), Some("shop")));
        let access = parsed("two", "file").unwrap();
        assert_eq!(
            (access.server.as_str(), access.token.as_deref()),
            ("https://k8s.test/cluster/7", Some("hunter2"))
        );
        assert!(access.authorities == Authorities::Pem("CA\n".into()));
        let access = parsed("open", "both").unwrap();
        assert!(access.authorities == Authorities::Unasked && access.token.is_none());
        assert_eq!(access.certificate, Some(("CERT\n".into(), "KEY\n".into())));
        assert!(!format!("{access:?}").contains("KEY"));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name_and_no_secret_is_shown() {
        for (cluster, user, said) in [
            ("one", "exec", "user \"exec\": exec is not supported: no program is run"),
            ("one", "provider", "user \"provider\": auth-provider is not supported"),
            ("one", "basic", "username is not supported"),
            ("one", "other", "as is not supported"),
            ("one", "odd", "token is not text"),
            ("one", "lines", "token is none"),
            ("one", "nobody", "has no credential"),
            ("one", "half", "client-key is missing"),
            ("one", "broken", "client-certificate-data is not in base64"),
            ("one", "absent", "it has no user \"absent\""),
            ("absent", "token", "it has no cluster \"absent\""),
            ("plain", "token", "cluster \"plain\": its server is no address of https"),
            ("proxied", "token", "proxy-url is not supported"),
            ("renamed", "token", "tls-server-name is not supported"),
        ] {
            let problem = parsed(cluster, user).unwrap_err();
            assert!(problem.contains(said) && !problem.contains("hunter2"), "{cluster} {user}: {problem}");
        }
    }

    #[test]
    fn a_file_that_is_none_and_a_context_that_is_not_there_are_named() {
        let nothing = |_: &Path, _: bool| Err("nothing is read".to_owned());
        let parse = |text: &str| Kubeconfig::parse(text.as_bytes(), Path::new("/"), &nothing);
        for text in ["", "hunter2", "[]", "users: []", "token: 'hunter2", "{\"a\": \"hunter2\""] {
            let problem = parse(text).unwrap_err();
            assert!(!problem.contains("hunter2"), "{text}: {problem}");
        }
        let file = parse(&format!("{FILE}- {{name: a, context: {{cluster: open, user: token}}}}\n")).unwrap();
        assert!(file.access(Some("a")).is_ok());
        assert_eq!(file.access(None).unwrap_err(), "it has no context \"pay\", but a");
        let without = parse("clusters: []").unwrap();
        assert!(without.access(None).unwrap_err().contains("give --context"));
    }

    /// Of what every host has. What only root can make is shown by the kernel tests.
    #[test]
    fn what_others_can_read_or_change_is_not_taken_for_roots() {
        let passwd = Path::new("/etc/passwd");
        assert_eq!(roots(passwd, false).unwrap(), std::fs::read(passwd).unwrap());
        let refused = |path: &str, secret| roots(Path::new(path), secret).unwrap_err();
        assert!(refused("/etc/passwd", true).contains("others may get at it"));
        assert!(refused("/etc/../etc/passwd", false).contains("leads over a link, or a detour"));
        assert!(refused("/etc", false).contains("no regular file"));
        assert!(refused("/etc/no-such-file", true).contains("no-such-file"));
        // Anybody may write to the folder of temporary files.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "x").unwrap();
        assert!(roots(&path, false).unwrap_err().contains("can be written by others"));
    }
}
