//! `chaosctl mcp --print-config`: how each client is told to start `chaosctl mcp`.

use std::path::Path;

use clap::ValueEnum;
use serde_json::{Value, json};

/// The name of the server in a client.
const NAME: &str = "chaos";

/// A client, and where its documents say that servers are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum McpClient {
    /// <https://code.claude.com/docs/en/mcp>
    ClaudeCode,
    /// <https://modelcontextprotocol.io/docs/develop/connect-local-servers>
    ClaudeDesktop,
    /// <https://cursor.com/docs/context/mcp>
    Cursor,
    /// <https://code.visualstudio.com/docs/copilot/reference/mcp-configuration>
    #[value(name = "vscode", alias = "vs-code")]
    VsCode,
    /// <https://docs.windsurf.com/windsurf/cascade/mcp>
    Windsurf,
    /// <https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md>
    GeminiCli,
    /// <https://developers.openai.com/codex/mcp>
    Codex,
}

impl McpClient {
    /// The file into which it goes.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".mcp.json in the project",
            Self::ClaudeDesktop => "claude_desktop_config.json (Settings, Developer, Edit Config)",
            Self::Cursor => ".cursor/mcp.json in the project, or ~/.cursor/mcp.json",
            Self::VsCode => ".vscode/mcp.json in the workspace",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::GeminiCli => ".gemini/settings.json in the project, or ~/.gemini/settings.json",
            Self::Codex => "~/.codex/config.toml",
        }
    }

    /// What goes into it, to start `program`, which connects with `socket` if that is not the usual one.
    ///
    /// # Errors
    /// When a path is no text.
    pub(super) fn text(self, program: &Path, socket: Option<&Path>) -> Result<String, String> {
        let text =
            |path: &Path| path.to_str().map(str::to_owned).ok_or(format!("{} is no text", path.display()));
        let program = text(program)?;
        let mut words = Vec::new();
        if let Some(socket) = socket {
            words.extend(["--socket".to_owned(), text(socket)?]);
        }
        words.push("mcp".to_owned());
        let plain = json!({"command": program, "args": words});
        let typed = json!({"type": "stdio", "command": program, "args": words});
        Ok(match self {
            Self::ClaudeCode | Self::Cursor => in_json("mcpServers", typed),
            Self::ClaudeDesktop | Self::Windsurf | Self::GeminiCli => in_json("mcpServers", plain),
            Self::VsCode => in_json("servers", typed),
            Self::Codex => {
                let words = words.into_iter().map(toml::Value::from).collect::<Vec<_>>();
                let (program, words) = (toml::Value::from(program), toml::Value::from(words));
                format!("[mcp_servers.{NAME}]\ncommand = {program}\nargs = {words}\n")
            }
        })
    }
}

fn in_json(table: &str, server: Value) -> String {
    format!("{:#}\n", json!({table: {NAME: server}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_reads_what_is_printed_for_it() {
        let (program, socket) = (Path::new("/opt/a \"b\\c'd/chaosctl"), Path::new("/run/é/mcp.sock"));
        for client in McpClient::value_variants() {
            for (socket, words) in
                [(None, json!(["mcp"])), (Some(socket), json!(["--socket", socket.to_str().unwrap(), "mcp"]))]
            {
                let text = client.text(program, socket).unwrap();
                let read: Value = match client {
                    McpClient::Codex => toml::from_str(&text).unwrap(),
                    _ => serde_json::from_str(&text).unwrap(),
                };
                let (table, kind) = match client {
                    McpClient::Codex => ("mcp_servers", None),
                    McpClient::VsCode => ("servers", Some("stdio")),
                    McpClient::ClaudeCode | McpClient::Cursor => ("mcpServers", Some("stdio")),
                    _ => ("mcpServers", None),
                };
                let server = &read[table]["chaos"];
                assert_eq!(read.as_object().unwrap().len(), 1, "{text}");
                assert_eq!(server["command"], program.to_str().unwrap(), "{client:?}: {text}");
                assert_eq!(server["args"], words, "{client:?}: {text}");
                assert_eq!(server.get("type").and_then(Value::as_str), kind, "{client:?}");
            }
            assert!(!client.file().is_empty());
        }
    }
}
